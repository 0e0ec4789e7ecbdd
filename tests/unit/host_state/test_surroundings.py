"""What the host program reads of its host, and the unit files it writes there."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.host_state.machine import Machine

from cudaup.host import forget, health, processes, services, units
from cudaup.host.mounts import Mount, parse_mounts
from cudaup.host.protocol import Failed
from cudaup.host.systemd import never, unit_in_cgroup

# Debian 12, systemd 252, cgroup 2; then CentOS 7, systemd 219, cgroup 1; then a login, a container, a user's service.
CGROUPS = [
    ("0::/system.slice/ml.service\n", "ml.service"),
    ("11:memory:/x.service\n1:name=systemd:/system.slice/system-ml.slice/ml@1.service\n", "ml@1.service"),
    ("0::/system.slice/ml.service/worker\n", "ml.service"),
    ("0::/user.slice/user-0.slice/session-3.scope\n", None),
    ("0::/system.slice/docker-4f2a.scope\n", None),
    ("0::/user.slice/user-0.slice/user@0.service/init.scope\n", None),
    ("0::/user.slice/user-0.slice/user@0.service/app.slice/ml.service\n", None),
    ("0::/system.slice/docker-4f2a.scope/system.slice/ml.service\n", None),
    ("9:name=systemd:/\n0::/system.slice/ml.service\n", "ml.service"),
]


@pytest.mark.parametrize(("content", "unit"), CGROUPS)
def test_the_unit_of_a_process(content: str, unit: str | None) -> None:
    assert unit_in_cgroup(content) == unit


def test_mounts_as_proc_shows_them() -> None:
    text = (
        "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "40 21 0:44 / /data\\040sets rw,noexec shared:5 master:1 - nfs4 server:/x rw,vers=4.2\n"
    )
    root, data = parse_mounts(text)
    assert root == Mount("8:1", Path("/"), Path("/"), "ext4", ["rw", "relatime"], ["rw"])
    assert data == Mount("0:44", Path("/"), Path("/data sets"), "nfs4", ["rw", "noexec"], ["rw", "vers=4.2"])
    assert (root.is_networked, data.is_networked) == (False, True)


@pytest.mark.parametrize(
    "mount",
    [
        "rw - overlay overlay rw",
        "rw,noexec - ext4 /dev/sda1 rw",
        "ro - ext4 /dev/sda1 rw",
        "rw - ext4 /dev/sda1 ro,errors=remount-ro",
        "rw - fuse.sshfs me@there rw",
        "rw - gfs2 /dev/sdb rw",
    ],
)
def test_where_the_root_may_lie(mount: str) -> None:
    (found,) = parse_mounts(f"21 1 8:1 / /opt {mount}\n")
    assert found.is_fit_for_root is ("overlay" in mount)


def test_drop_ins_are_written_once_and_found_again_by_what_they_say(machine: Machine) -> None:
    others = machine.systemd.unit_dir / "other.service.d"
    others.mkdir()
    (others / "cudaup.conf").write_text("# of another root: `/srv/cudaup/bin/cudaup-host forget`\n")
    assert units.install_drop_ins(machine.ctx, ["ml.service"])
    assert not units.install_drop_ins(machine.ctx, ["ml.service"])
    assert units.install_recovery(machine.ctx)
    assert not units.install_recovery(machine.ctx)

    drop_in = machine.systemd.unit_dir / "ml.service.d" / "cudaup.conf"
    assert f"EnvironmentFile=-{machine.ctx.root}/current/env" in drop_in.read_text().splitlines()
    assert "After=cudaup-recover.service" in drop_in.read_text().splitlines()
    recovery = (machine.systemd.unit_dir / units.RECOVER_UNIT).read_text().splitlines()
    assert f"ExecStart={machine.ctx.layout.program} recover --boot --root {machine.ctx.root}" in recovery

    units.hold(machine.ctx)
    assert len(list(machine.systemd.run_dir.glob("*.held"))) == 1
    forget.forget(machine.ctx)
    assert [path.name for path in machine.systemd.unit_dir.iterdir()] == ["other.service.d"]
    assert list(machine.systemd.run_dir.glob("*.held")) == []


def test_what_a_process_uses_is_found_by_every_way(machine: Machine) -> None:
    pid = machine.systemd.show("ml.service").pid
    found = {use.how: use.path for use in processes.uses(pid, [machine.path])}
    assert found == {"argument": str(machine.path / "serve.py"), "cwd": str(machine.path)}
    assert processes.uses(pid, [machine.folder / "ml"]) == []  # not by half a name
    assert [use.pid for use in processes.users_of([machine.path])] == [pid]


def test_the_shells_of_ssh_are_not_a_service_to_stop(machine: Machine) -> None:
    machine.systemd.running["ssh.service"] = machine.systemd.running["ml.service"]
    del machine.systemd.running["ml.service"]
    running = services.running_from(machine.ctx, [machine.path])
    assert (running.units, len(running.foreign)) == ((), 1)


class _Answers(http.server.BaseHTTPRequestHandler):
    codes: list[int]

    def do_GET(self) -> None:
        self.send_response(self.codes.pop(0) if self.path == "/health?deep=1" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:  # quiet
        return


@pytest.fixture
def url() -> Iterator[str]:
    """It is loading at first, as a model server is."""
    _Answers.codes = [503, 503, 200]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/health?deep=1"
        server.shutdown()
        thread.join()


def test_http_health_waits_until_the_service_is_ready(machine: Machine, url: str) -> None:
    health.require(machine.ctx, [], {"http": {"url": url, "timeout_s": 20}}, never)
    assert _Answers.codes == []


def test_http_health_says_what_it_got_last(machine: Machine, url: str) -> None:
    wrong = url.replace("health", "other")
    with pytest.raises(Failed, match=r"not healthy within 1 s: .*answers 404"):
        health.require(machine.ctx, [], {"http": {"url": wrong, "timeout_s": 1}}, never)


def test_waiting_for_health_ends_when_it_should_stop(machine: Machine) -> None:
    nobody = {"http": {"url": "http://127.0.0.1:1/", "timeout_s": 9999}}
    with pytest.raises(Failed, match="refused") as failure:
        health.require(machine.ctx, [], nobody, lambda: True)
    assert failure.value.code == "abandoned"


def test_a_crash_loop_is_not_health(machine: Machine) -> None:
    def restart() -> bool:
        machine.systemd.stop("ml.service")
        machine.systemd.start("ml.service")
        return True

    health.require(machine.ctx, ["ml.service"], {}, never)
    with pytest.raises(Failed, match=r"`ml\.service` is active \(pid \d+, then \d+\)"):
        health.require(machine.ctx, ["ml.service"], {}, restart)
