"""Services as hosts really have them: restart policies, sockets and timers, units that are down, hooks, containers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.lab.command import Cudaup, by_hand, kill, service, small_stack
from tests.lab.conftest import take_down, unique_name
from tests.waiting import eventually

from cudaup.lab.fleet import Lab

pytestmark = pytest.mark.lab

HOST = "h1"
OLD = {"msgpack": "1.0.8", "packaging": "23.2"}
NEW = {"msgpack": "1.2.4", "packaging": "26.4"}
# The new generation's smoke waits here while a test looks around in the middle of a switch.
_SITECUSTOMIZE = """\
import os, sys, time
while any("cudaup.smoke" in argument for argument in sys.orig_argv) and os.path.exists("/run/wait"):
    time.sleep(0.1)
"""
PYTHON = "/root/ml-env/bin/python"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One host that was upgraded and put back: both generations are there."""
    name, folder = unique_name(), tmp_path_factory.mktemp("services")
    cudaup = Cudaup(folder / "state")
    try:
        lab = Lab.up(name, hosts=1)
        put(lab, "/opt/site/sitecustomize.py", _SITECUSTOMIZE)
        stack = small_stack(folder, "services", env={"PYTHONPATH": "/opt/site", "CUDAUP_TEST": "new"})
        cudaup.run("apply", "-i", lab.inventory, "-s", stack, "--yes")
        cudaup.run("rollback", "-i", lab.inventory, expect=4)
        yield lab
    finally:
        take_down(name)


@pytest.fixture
def units(lab: Lab) -> Iterator[Callable[[dict[str, str]], None]]:
    """Puts unit files on the host, for this test. `name+` adds to the unit instead."""
    paths: list[str] = []
    names: list[str] = []

    def install(files: dict[str, str]) -> None:
        for name, text in files.items():
            unit = name.rstrip("+")
            paths.append(f"/etc/systemd/system/{unit}" + (".d/test.conf" if name.endswith("+") else ""))
            names.append(unit)
            put(lab, paths[-1], text)
        systemctl(lab, "daemon-reload")

    yield install
    others = [name for name in names if name != "ml.service"]
    if others:
        systemctl(lab, "stop", *(name.replace("@.", "@*.") for name in others))
    lab.run(HOST, ["rm", "-f", *paths])
    systemctl(lab, "daemon-reload")
    systemctl(lab, "reset-failed")
    systemctl(lab, "restart", "ml.service")
    eventually(lambda: bool(answers(lab)), "it serves again")


def put(lab: Lab, path: str, text: str) -> None:
    lab.run(HOST, ["sh", "-c", f"mkdir -p {Path(path).parent}; cat >{path}"], input=text)


def systemctl(lab: Lab, *arguments: str) -> str:
    return lab.run(HOST, ["systemctl", *arguments], check=False).stdout.strip()


def active(lab: Lab, *names: str) -> list[str]:
    return systemctl(lab, "is-active", *names).splitlines()


def generations(lab: Lab) -> list[str]:
    return [each["id"] for each in by_hand(lab, HOST, "status")["data"]["generations"]]


def activate(lab: Lab, *options: str) -> dict[str, Any]:
    times = ("--ttl", "5", "--ceiling", "60", "--suite", '{"cases": ["record"]}')
    return by_hand(lab, HOST, "activate", generations(lab)[1], *times, *options)


def assert_state(answer: dict[str, Any], wanted: str) -> None:
    assert answer.get("data", {}).get("state") == wanted, answer


def answers(lab: Lab) -> str:
    return lab.run(HOST, ["curl", "-sf", "127.0.0.1:8000"], check=False).stdout


def go_back(lab: Lab) -> None:
    assert_state(by_hand(lab, HOST, "rollback"), "rolled-back-proven")
    assert service(lab, HOST)["versions"] == OLD


def runs_from(lab: Lab, path: str) -> list[str]:
    script = (
        f"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep -a {path} | grep -v grep"
    )
    return lab.run(HOST, ["sh", "-c", script], check=False).stdout.splitlines()


_AROUND = {
    "ml.service+": "[Service]\nRestart=always\nRestartSec=1\n",
    "proxy.service": "[Unit]\nRequires=ml.service\nAfter=ml.service\n[Service]\nExecStart=/bin/sleep 9999\n",
    "door.socket": "[Socket]\nListenStream=127.0.0.1:9100\n",
    "door.service": f"[Service]\nExecStart={PYTHON} -c 'import time; time.sleep(9999)'\n",
    "batch.timer": "[Timer]\nOnActiveSec=600\nOnUnitInactiveSec=1\n",
    "batch.service": f"[Service]\nType=oneshot\nExecStart={PYTHON} -c 'import time; time.sleep(0.2)'\n",
    "nudge.timer": "[Timer]\nOnActiveSec=1\nOnUnitInactiveSec=1\n",
    "nudge.service": "[Unit]\nWants=ml.service\n[Service]\nType=oneshot\nExecStart=/bin/true\n",
}


def test_nobody_starts_a_service_in_the_middle_of_a_switch_and_all_that_stopped_runs_again(
    lab: Lab, units: Callable[[dict[str, str]], None]
) -> None:
    units(_AROUND)
    systemctl(lab, "start", "ml.service", "proxy.service", "door.socket", "door.service", "nudge.timer", "batch.timer")
    around = ["ml.service", "proxy.service", "door.socket", "door.service", "batch.timer", "nudge.timer"]
    assert active(lab, *around) == ["active"] * 6
    lab.run(HOST, ["touch", "/run/wait"])
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(activate, lab)
        eventually(lambda: bool(runs_from(lab, "cudaup.smoke.record")), "the new generation's smoke waits", within_s=30)
        tried = lab.run(HOST, ["systemctl", "start", "ml.service"], check=False)
        assert "Assertion failed on job for ml.service" in tried.stderr
        systemctl(lab, "start", "batch.service")
        assert lab.run(HOST, ["busybox", "nc", "127.0.0.1", "9100"], check=False, input="x").returncode == 1
        lab.run(HOST, ["sleep", "2.5"])  # RestartSec= and two nudges go by
        assert active(lab, *around) == ["inactive"] * 5 + ["active"]
        assert runs_from(lab, PYTHON) == []
        lab.run(HOST, ["rm", "/run/wait"])
        assert_state(answer.result(timeout=60), "awaiting-confirm")
    assert active(lab, *around) == ["active"] * 6
    assert service(lab, HOST)["versions"] == NEW
    go_back(lab)
    assert active(lab, *around) == ["active"] * 6


_DIES_ON_THE_OLD_STACK = "ExecStartPre=/bin/sh -c 'test -n \"$CUDAUP_TEST\"'\nRestart=always\nRestartSec=1\n"


@pytest.mark.parametrize(
    ("limits", "state"), [("StartLimitIntervalSec=0", "activating"), ("StartLimitBurst=2", "failed")]
)
def test_a_service_that_crashes_on_the_old_stack_is_started_on_the_new_one(
    lab: Lab, units: Callable[[dict[str, str]], None], limits: str, state: str
) -> None:
    """Waiting for its next restart, or given up on."""
    units({"ml.service+": f"[Unit]\n{limits}\n[Service]\n{_DIES_ON_THE_OLD_STACK}"})
    systemctl(lab, "restart", "ml.service")
    eventually(lambda: active(lab, "ml.service") == [state], f"it is {state}", within_s=10)
    assert_state(activate(lab), "awaiting-confirm")
    assert service(lab, HOST)["versions"] == NEW
    put(lab, "/etc/systemd/system/ml.service.d/test.conf", "")
    systemctl(lab, "daemon-reload")
    go_back(lab)


_SLEEPER = f"{PYTHON} -c 'import time; time.sleep(999)'"
_LOST = f"[Service]\\nExecStart={PYTHON} -m http.server 81"
_USER_MANAGER = "[Service]\\nEnvironment=XDG_RUNTIME_DIR=/run/user/0"
_BEGIN = {
    "transient": f"systemd-run --unit=passing {_SLEEPER}",
    "fileless": f"""cd /etc/systemd/system; printf '{_LOST}' >lost.service; systemctl daemon-reload
systemctl start lost; rm lost.service; systemctl daemon-reload""",
    "job": f"systemd-run --unit=job --property=Type=oneshot --no-block {_SLEEPER}",
    "user": f"""mkdir -p /run/user/0 /run/systemd/system/user@0.service.d
printf '{_USER_MANAGER}' >/run/systemd/system/user@0.service.d/test.conf
systemctl daemon-reload; systemctl start user@0
XDG_RUNTIME_DIR=/run/user/0 systemd-run --user --unit=mine {_SLEEPER}""",
    "container": """mkdir -p /mnt/box; setsid unshare --mount --propagation private \\
sh -c 'mount --bind /root/ml-env /mnt/box; exec sleep 9998' >/dev/null 2>&1 &""",
}


@pytest.mark.parametrize(
    ("kind", "code", "text", "end"),
    [
        ("transient", "unsafe", "`passing.service` exists only while it runs", "systemctl stop passing"),
        ("fileless", "unsafe", "`lost.service` is masked, may not be started, or lost its file", "systemctl stop lost"),
        ("job", "busy", "`job.service` is a job at work, and would be cut short", "systemctl stop job"),
        ("user", "busy", "used by processes that belong to no service: pid", "systemctl stop user@0"),
        ("container", "busy", "mounted elsewhere, perhaps in a container: `/mnt/box` of pid", "pkill -f 'sleep 9998'"),
    ],
)
def test_what_could_not_be_stopped_and_started_again_is_refused_by_name(
    lab: Lab, kind: str, code: str, text: str, end: str
) -> None:
    before = service(lab, HOST)["pid"]
    lab.run(HOST, ["sh", "-c", _BEGIN[kind]])
    try:
        lab.run(HOST, ["sleep", "0.5"])
        answer = activate(lab)
        assert (answer["kind"], answer["code"]) == ("refused", code), answer
        assert text in answer["text"]
        assert service(lab, HOST)["pid"] == before
    finally:
        lab.run(HOST, ["sh", "-c", end], check=False)


def test_a_unit_that_is_down_on_purpose_stays_down_and_is_told(
    lab: Lab, units: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    installable = f"[Service]\nExecStart={_SLEEPER}\n[Install]\nWantedBy=multi-user.target\n"
    units({"spare.service": installable})
    systemctl(lab, "start", "spare.service")  # running, though disabled: one of the environment's
    assert_state(activate(lab), "awaiting-confirm")
    assert active(lab, "spare.service") == ["active"]
    go_back(lab)
    systemctl(lab, "stop", "spare.service")

    stack = small_stack(tmp_path, "services", env={"PYTHONPATH": "/opt/site", "CUDAUP_TEST": "new"})
    cudaup = Cudaup(tmp_path / "state")
    assert "spare.service is inactive and stays so" in cudaup.run("plan", "-i", lab.inventory, "-s", stack)
    assert cudaup.outcomes("apply", "-i", lab.inventory, "-s", stack, "--yes") == {HOST: "applied"}
    assert active(lab, "ml.service", "spare.service") == ["active", "inactive"]
    assert cudaup.outcomes("rollback", "-i", lab.inventory, expect=4) == {HOST: "rolled-back"}
    assert active(lab, "ml.service", "spare.service") == ["active", "inactive"]

    systemctl(lab, "enable", "spare.service")  # so somebody wants it, and it is down
    assert "H010: spare.service is inactive" in cudaup.run("plan", "-i", lab.inventory, "-s", stack, expect=3)


def test_slow_and_odd_types_of_services_are_proven_too(lab: Lab, units: Callable[[dict[str, str]], None]) -> None:
    notify = "sleep 2; systemd-notify --ready; exec"
    units(
        {
            "slow@.service": f'[Service]\nType=notify\nNotifyAccess=all\nExecStart=/bin/sh -c "{notify} {_SLEEPER}"\n',
            "script.service": f'[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c "{_SLEEPER} &"\n',
        }
    )
    names = ["slow@1.service", "slow@2.service", "script.service"]
    systemctl(lab, "start", *names)
    answer = activate(lab)
    assert_state(answer, "awaiting-confirm")
    assert [each["unit"] for each in answer["data"]["live"]] == ["ml.service", "script.service", *names[:2]]
    assert active(lab, *names) == ["active"] * 3
    go_back(lab)


_LOG = "echo $0 $CUDAUP_GENERATION >>/run/hooks"
_SERVE = """\
#!/bin/sh
set -eu
case $1 in
start)
    pgrep -f hooked.py >/dev/null && exit
    set -a; test -e $CUDAUP_ROOT/current/env && . $CUDAUP_ROOT/current/env
    setsid /root/ml-env/bin/python /opt/ml/hooked.py >/dev/null 2>&1 &
    ;;
stop) pkill -f hooked.py || true ;;
esac
"""


def hooks(**scripts: str) -> dict[str, Any]:
    """Each notes that it ran, and on what."""
    logged = {name: ["sh", "-c", f"{_LOG}; {script}", name] for name, script in scripts.items()}
    return {name: {"command": command, "timeout_s": 20} for name, command in logged.items()}


ALL_HOOKS = hooks(drain="", stop="/opt/ml/serve stop", start="/opt/ml/serve start", bench="", undrain="")


def log_of(lab: Lab) -> list[str]:
    return lab.run(HOST, ["sh", "-c", "cat /run/hooks; rm -f /run/hooks"]).stdout.splitlines()


@pytest.fixture
def hooked(lab: Lab) -> Iterator[Callable[[], str]]:
    """A second server that no unit runs; tells the environment it runs from, or nothing."""
    put(lab, "/opt/ml/hooked.py", "import msgpack, time\ntime.sleep(9999)\n")
    put(lab, "/opt/ml/serve", _SERVE)
    lab.run(HOST, ["chmod", "+x", "/opt/ml/serve"])
    lab.run(HOST, ["env", "CUDAUP_ROOT=/opt/cudaup", "/opt/ml/serve", "start"])

    def runs_from_generation() -> str:
        mapped = "cat /proc/$(pgrep -f '[h]ooked.py')/maps | grep -m 1 msgpack"
        return lab.run(HOST, ["sh", "-c", mapped], check=False).stdout

    eventually(lambda: bool(runs_from_generation()), "it is up")
    yield runs_from_generation
    lab.run(HOST, ["/opt/ml/serve", "stop"])
    lab.run(HOST, ["rm", "-f", "/run/hooks"])


def with_hooks(lab: Lab, **changed: Any) -> dict[str, Any]:
    return activate(lab, "--hooks", json.dumps({**ALL_HOOKS, **changed}))


def test_hooks_run_in_their_order_and_a_rollback_uses_those_that_were_recorded(
    lab: Lab, hooked: Callable[[], str]
) -> None:
    old, new = generations(lab)
    answer = with_hooks(lab)
    assert_state(answer, "awaiting-confirm")
    assert [each["unit"] for each in answer["data"]["live"]] == ["ml.service", "hook start"]
    assert log_of(lab) == [f"drain {old}", f"stop {old}", f"start {new}", f"bench {new}"]
    assert new in hooked()
    assert_state(by_hand(lab, HOST, "confirm"), "confirmed")
    assert log_of(lab) == [f"undrain {new}"]
    go_back(lab)
    assert log_of(lab) == [f"stop {new}", f"start {old}", f"undrain {old}"]
    assert old in hooked()


def test_a_drain_that_does_not_finish_is_undone_and_nothing_was_stopped(lab: Lab, hooked: Callable[[], str]) -> None:
    old = generations(lab)[0]
    before = service(lab, HOST)["pid"]
    slow = {**hooks(drain="sleep 60")["drain"], "timeout_s": 1}
    answer = with_hooks(lab, drain=slow)
    assert (answer["kind"], answer["code"]) == ("refused", "drain"), answer
    assert "hook drain: no end after 1 s" in answer["text"]
    assert log_of(lab) == [f"drain {old}", f"undrain {old}"]
    assert (service(lab, HOST)["pid"], old in hooked()) == (before, True)
    status = by_hand(lab, HOST, "status")["data"]
    assert (status["transit"], status["last_end"]["end"], status["lease"]["state"]) == (None, "refused", "free")


def test_a_benchmark_that_is_not_content_puts_the_host_back(lab: Lab, hooked: Callable[[], str]) -> None:
    old, new = generations(lab)
    answer = with_hooks(lab, **hooks(bench="echo 54 of 90 tokens/s >&2; exit 1"))
    assert_state(answer, "reverted-proven")
    assert (answer["code"], "54 of 90 tokens/s" in answer["text"]) == ("hook", True)
    assert log_of(lab)[3:] == [f"bench {new}", f"stop {new}", f"start {old}", f"undrain {old}"]
    assert (service(lab, HOST)["versions"], old in hooked()) == (OLD, True)


def test_a_missing_hook_is_found_before_anything_stops(lab: Lab, hooked: Callable[[], str]) -> None:
    assert hooked()
    missing = {"command": ["/opt/ml/absent"], "timeout_s": 5}
    answer = with_hooks(lab, undrain=missing)
    assert (answer["kind"], answer["code"], "undrain: `/opt/ml/absent`" in answer["text"]) == (
        "refused",
        "not-found",
        True,
    )
    assert lab.run(HOST, ["test", "-e", "/run/hooks"], check=False).returncode == 1


def test_a_hook_that_fails_on_the_way_back_stops_nothing_and_quarantines(lab: Lab, hooked: Callable[[], str]) -> None:
    old = generations(lab)[0]
    answer = with_hooks(lab, **hooks(bench="exit 1", undrain="exit 7"))
    assert_state(answer, "reverted-unproven")
    assert answer["data"]["problems"] == ["hook undrain: exit code 7"]
    assert (service(lab, HOST)["versions"], old in hooked()) == (OLD, True)
    assert by_hand(lab, HOST, "status")["data"]["lease"]["state"] == "quarantined"
    by_hand(lab, HOST, "lease", "clear")


@pytest.mark.parametrize("by", ["timer", "reboot"])
def test_timer_and_boot_go_back_with_hooks_and_what_they_start_outlives_them(
    lab: Lab, hooked: Callable[[], str], by: str
) -> None:
    old = generations(lab)[0]
    assert_state(activate(lab, "--hooks", json.dumps(ALL_HOOKS), "--ceiling", "12"), "awaiting-confirm")
    log_of(lab)
    if by == "reboot":
        lab.fault(HOST, "reboot")
    eventually(lambda: by_hand(lab, HOST, "status")["data"]["transit"] is None, "it goes back", within_s=40)
    wanted = [f"start {old}", f"undrain {old}"]
    assert log_of(lab)[-2:] == wanted
    assert by_hand(lab, HOST, "status")["data"]["last_end"]["end"] == "proven"
    lab.run(HOST, ["sleep", "1"])
    assert active(lab, "cudaup-deadman-*") == []
    assert (service(lab, HOST)["versions"], old in hooked()) == (OLD, True)


SHORT = {"lease_s": 4, "ttl_s": 4, "ceiling_s": 90}


def bench_of(seconds: float) -> dict[str, Any]:
    return hooks(drain="", undrain="", bench=f"sleep {seconds:g}")


def test_a_benchmark_longer_than_the_time_to_live_is_waited_for_while_the_operator_renews(
    lab_factory: Callable[..., Lab], tmp_path: Path
) -> None:
    lab, cudaup = lab_factory(hosts=1), Cudaup(tmp_path / "state")
    stack = small_stack(tmp_path, "bench", timers=SHORT, hooks=bench_of(10))
    assert "hook bench: sh -c" in cudaup.run("plan", "-i", lab.inventory, "-s", stack)
    assert cudaup.outcomes("apply", "-i", lab.inventory, "-s", stack, "--yes") == {HOST: "applied"}
    assert [line.split()[0] for line in log_of(lab)] == ["drain", "bench", "undrain"]
    assert service(lab, HOST)["versions"] == NEW

    old = by_hand(lab, HOST, "status")["data"]["current"]["id"]
    later = small_stack(tmp_path, "later", timers=SHORT, hooks=bench_of(20))
    run = cudaup.start("apply", "-i", lab.inventory, "-s", later, "--yes")
    eventually(lambda: bool(runs_from(lab, "[s]leep.20")), "it is at the benchmark", within_s=60)
    kill(run)
    eventually(lambda: by_hand(lab, HOST, "status")["data"]["transit"] is None, "it goes back", within_s=20)
    assert log_of(lab)[-1] == f"undrain {old}"
    assert by_hand(lab, HOST, "status")["data"]["current"]["id"] == old
    assert runs_from(lab, "[s]leep.20") == []


def test_a_host_without_systemd_is_switched_and_put_back_by_its_hooks(
    lab_factory: Callable[..., Lab], tmp_path: Path
) -> None:
    lab, cudaup = lab_factory(hosts=1, init="sshd"), Cudaup(tmp_path / "state")
    put(lab, "/opt/ml/serve", _SERVE.replace("hooked.py", "serve.py"))
    lab.run(HOST, ["chmod", "+x", "/opt/ml/serve"])
    lab.run(HOST, ["env", "CUDAUP_ROOT=/opt/cudaup", "/opt/ml/serve", "start"])
    eventually(lambda: bool(answers(lab)), "it serves")
    wanted = hooks(stop="/opt/ml/serve stop", start="/opt/ml/serve start")
    health = {"http": {"url": "http://127.0.0.1:8000/", "timeout_s": 30}}
    first = small_stack(tmp_path, "first", timers=SHORT, hooks=wanted, health=health)
    assert "H007: init is other" in cudaup.run("plan", "-i", lab.inventory, "-s", first)
    assert cudaup.outcomes("apply", "-i", lab.inventory, "-s", first, "--yes") == {HOST: "applied"}
    assert service(lab, HOST)["versions"] == NEW
    assert cudaup.outcomes("rollback", "-i", lab.inventory, expect=4) == {HOST: "rolled-back"}
    assert service(lab, HOST)["versions"] == OLD

    slow = small_stack(tmp_path, "slow", timers=SHORT, health=health, hooks={**wanted, **hooks(bench="sleep 60")})
    run = cudaup.start("apply", "-i", lab.inventory, "-s", slow, "--yes")
    eventually(lambda: bool(runs_from(lab, "[s]leep.60")), "it is at the benchmark", within_s=60)
    assert service(lab, HOST)["versions"] == NEW
    lab.fault(HOST, "cut")
    transit = "/opt/cudaup/transit.json"
    eventually(lambda: lab.run(HOST, ["test", "-e", transit], check=False).returncode == 1, "it goes back", within_s=40)
    lab.fault(HOST, "restore")
    out, err = run.communicate(timeout=240)
    assert run.returncode == 4, out + err
    assert service(lab, HOST)["versions"] == OLD

    run = cudaup.start("apply", "-i", lab.inventory, "-s", slow, "--yes")
    eventually(lambda: bool(runs_from(lab, "[s]leep.60")), "it is at the benchmark again", within_s=60)
    kill(run)
    lab.fault(HOST, "reboot")
    eventually(lambda: lab.run(HOST, ["true"], check=False).returncode == 0, "it is back", within_s=30)
    told = cudaup.run("status", "-i", lab.inventory, expect=5)
    assert "NO TIMER: `cudaup rollback` puts it back" in told
    eventually(lambda: by_hand(lab, HOST, "status")["data"]["lease"]["expired"], "the killed run's lease expires")
    assert cudaup.outcomes("rollback", "-i", lab.inventory, expect=4) == {HOST: "rolled-back"}
    assert service(lab, HOST)["versions"] == OLD
