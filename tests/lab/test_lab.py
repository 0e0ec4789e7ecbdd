from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.waiting import eventually

from cudaup.domain.errors import CudaupError, UsageError
from cudaup.lab import cgroup, machine, registry
from cudaup.lab.fleet import Lab
from cudaup.lab.sysctl import MANY, Setting

pytestmark = pytest.mark.lab

LabFactory = Callable[..., Lab]
SAY_OK = ["echo", "ok"]


def ssh(lab: Lab, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(lab.ssh_config), "-o", "BatchMode=yes", *options, host, command]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


def answers(lab: Lab, host: str, timeout_s: int = 1) -> bool:
    return ssh(lab, host, "true", "-o", f"ConnectTimeout={timeout_s}").returncode == 0


def boot_id(lab: Lab, host: str) -> str:
    return lab.run(host, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()


def service(lab: Lab, host: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(lab.run(host, ["curl", "-sf", "http://localhost:8000/health"]).stdout)
    return answer


def connect_ms(lab: Lab, host: str) -> float:
    script = "import socket, sys, time; t = time.monotonic(); socket.create_connection((sys.argv[1], 22)); "
    script += "print((time.monotonic() - t) * 1000)"
    argv = lab.exec_argv(["/usr/bin/python3", "-c", script, lab.address(host)])
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def best_connect_ms(lab: Lab, host: str) -> float:
    """The quickest of five: a busy machine makes some slower and none quicker; the first also asks for the address."""
    return min(connect_ms(lab, host) for _ in range(5))


def namespaces(pid: int | str) -> set[str]:
    try:
        return {str(path.readlink()) for path in Path(f"/proc/{pid}/ns").iterdir()}
    except OSError:
        return set()


def residue(lab: Lab, theirs: set[str]) -> list[str]:
    """Whatever on the machine still belongs to the lab; `theirs` are its namespaces."""
    found = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if lab.name in line]
    found += [f"cgroup {path}" for path in machine.unified_cgroup().glob(f"*{lab.name}*")]
    backing = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    found += [f"loop device of {file}" for file in backing if lab.name in file]
    pids = [path.name for path in Path("/proc").glob("[0-9]*")]
    found += [f"process {pid}" for pid in pids if namespaces(pid) & theirs]
    return found + [f"folder {path}" for path in machine.LABS.glob(f"*{lab.name}*")]


def namespaces_of(lab: Lab) -> set[str]:
    return {space for pid in cgroup.processes(lab.spec.cgroup) for space in namespaces(pid)} - namespaces("self")


def interfaces() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def test_down_leaves_nothing_behind(lab_factory: LabFactory) -> None:
    before = interfaces()
    lab = lab_factory(hosts=2, disk="ext4:256m")
    lab.fault("h1", "latency", 20)
    holder = subprocess.Popen(lab.exec_argv(["sleep", "100"]))
    eventually(lambda: holder.pid in cgroup.processes(lab.spec.cgroup), "the shell is in the lab")
    theirs = namespaces_of(lab)
    assert len(theirs) >= 2 * 6  # two hosts with six namespaces each: the test sees what it looks for
    assert residue(lab, theirs)

    lab.down()

    assert holder.wait(5) == -signal.SIGKILL
    assert residue(lab, theirs) == []
    assert interfaces() == before


def test_down_cleans_up_after_a_killed_warden(lab_factory: LabFactory) -> None:
    lab = lab_factory(hosts=2, disk="ext4:256m")
    theirs = namespaces_of(lab)
    os.kill(lab.warden_pid, signal.SIGKILL)
    eventually(lambda: not registry.read(lab.name).is_up, "the lab is seen to be dead")
    with pytest.raises(UsageError, match="is dead"):
        Lab.find(lab.name)

    lab.down()

    assert residue(lab, theirs) == []


def test_the_last_lab_to_go_puts_the_changed_setting_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lab_factory: LabFactory
) -> None:
    setting = Setting(file=tmp_path / "max", saved=tmp_path / "saved")
    setting.file.write_text("128\n")
    monkeypatch.setattr(registry, "Setting", lambda: setting)
    monkeypatch.setattr(machine, "LABS", tmp_path / "labs")  # where no labs of others are
    monkeypatch.setattr(registry, "_LOCK", tmp_path / "labs/.lock")
    labs = [lab_factory(init="sshd") for _ in range(2)]
    labs[0].down()
    assert setting.file.read_text() == f"{MANY}\n"
    labs[1].down()
    assert setting.file.read_text() == "128\n"


def test_a_second_up_is_refused_and_a_dead_lab_replaced(lab_factory: LabFactory) -> None:
    lab = lab_factory()
    with pytest.raises(UsageError, match="is up already"):
        Lab.up(lab.name, hosts=1)
    assert lab.run("h1", SAY_OK).stdout == "ok\n"

    os.kill(lab.warden_pid, signal.SIGKILL)
    eventually(lambda: not registry.read(lab.name).is_up, "the lab is seen to be dead")
    again = Lab.up(lab.name, hosts=2, init="sshd")
    assert again.run("h2", SAY_OK).stdout == "ok\n"


def test_two_labs_coexist(fleet: Lab, lab_factory: LabFactory) -> None:
    other = lab_factory(init="sshd")
    assert other.address("h1") == fleet.address("h1")  # the same address in two networks
    other.run("h1", ["touch", "/root/of-the-other"])
    assert ssh(other, "h1", "ls /root").stdout == "ml-env\nof-the-other\n"
    assert ssh(fleet, "h1", "ls /root").stdout == "ml-env\n"
    other.down()
    assert answers(fleet, "h1")


def test_hosts_are_real_and_their_own(fleet: Lab) -> None:
    script = "hostname; cat /etc/machine-id; systemctl is-system-running; ps -o comm= -p 1"
    told = [ssh(fleet, host, script).stdout.split() for host in fleet.hosts]
    assert [words[0] for words in told] == ["h1", "h2", "h3"]
    assert len({words[1] for words in told}) == 3
    assert {tuple(words[2:]) for words in told} == {("running", "systemd")}
    assert len({boot_id(fleet, host) for host in fleet.hosts}) == 3


def test_a_host_cannot_reach_the_machine_or_its_kernel(fleet: Lab) -> None:
    routes = fleet.run("h1", ["ip", "route", "get", "192.0.2.1"], check=False)
    assert "unreachable" in routes.stderr
    assert fleet.run("h1", ["sysctl", "-w", "vm.swappiness=1"], check=False).returncode != 0
    assert fleet.run("h1", ["mknod", "/root/loop", "b", "7", "0"], check=False).returncode != 0
    assert ssh(fleet, "h1", "mknod /root/loop b 7 0").returncode != 0
    assert ssh(fleet, "h1", "date -s 2030-01-01").returncode != 0


def test_the_service_answers_with_what_it_loaded(fleet: Lab) -> None:
    answer = service(fleet, "h2")
    assert answer["versions"] == {"msgpack": "1.0.8", "packaging": "23.2"}
    assert answer["prefix"] == "/root/ml-env"
    assert answer["files"]["msgpack"].startswith("/root/ml-env/lib/")
    main_pid = fleet.run("h2", ["systemctl", "show", "--value", "-p", "MainPID", "ml.service"]).stdout
    assert answer["pid"] == int(main_pid)
    maps = fleet.run("h2", ["cat", f"/proc/{answer['pid']}/maps"]).stdout
    assert "/root/ml-env/lib/python3.11/site-packages/msgpack/_cmsgpack" in maps


def test_the_old_environment_can_be_moved_and_has_a_script_with_its_path(lab_factory: LabFactory) -> None:
    lab = lab_factory(init="sshd")
    assert lab.run("h1", ["head", "-1", "/root/ml-env/bin/tabulate"]).stdout == "#!/root/ml-env/bin/python\n"
    move = "import os; os.rename('/root/ml-env', '/root/aside')"  # mv would hide EXDEV behind a copy
    lab.run("h1", ["python3", "-c", move])
    assert lab.run("h1", ["ls", "/root"]).stdout == "aside\n"


def test_simulated_gpus_differ_by_host(fleet: Lab) -> None:
    query = "nvidia-smi --query-gpu=uuid,name,compute_cap,memory.total --format=csv,noheader"
    told = [ssh(fleet, host, query).stdout.splitlines() for host in fleet.hosts]
    assert all(
        line.endswith(", NVIDIA RTX PRO 6000 Blackwell Server Edition, 12.0, 97887 MiB")
        for lines in told
        for line in lines
    )
    assert len({line.partition(",")[0] for lines in told for line in lines}) == 3 * 8
    assert fleet.run("h1", ["modinfo", "-F", "version", "nvidia"]).stdout == "590.48.01\n"


def test_behind_a_bastion_as_a_user_with_sudo(lab_factory: LabFactory) -> None:
    lab = lab_factory(hosts=1, user="ann", bastion=True)
    assert lab.hosts == ("h1",)
    variables = yaml.safe_load(lab.inventory.read_text())["gpu"]["vars"]
    password = variables["ansible_become_password"]
    assert ssh(lab, "h1", "whoami").stdout == "ann\n"
    assert ssh(lab, "h1", f"echo {password} | sudo -S -p '' whoami").stdout == "root\n"
    assert ssh(lab, "h1", "echo wrong | sudo -S -p '' whoami").returncode != 0
    assert ssh(lab, "h1", "true", "-l", "root").returncode == 255
    with pytest.raises(subprocess.CalledProcessError) as around:
        connect_ms(lab, "h1")
    assert "Network is unreachable" in around.value.stderr
    assert connect_ms(lab, "bastion") > 0


def test_reboot_from_inside_keeps_the_disk_and_changes_the_boot(lab_factory: LabFactory) -> None:
    lab = lab_factory()
    lab.run("h1", ["sh", "-c", "echo kept >/root/note; echo gone >/run/note"])
    first = boot_id(lab, "h1")
    ssh(lab, "h1", "systemctl reboot")
    eventually(lambda: lab.state()["h1"]["boots"] == 2, "the host boots again")
    eventually(lambda: answers(lab, "h1"), "sshd answers again")
    assert boot_id(lab, "h1") != first
    assert ssh(lab, "h1", "cat /root/note; cat /run/note").stdout == "kept\n"
    eventually(lambda: lab.run("h1", ["curl", "-sf", "localhost:8000"], check=False).returncode == 0, "service")


def test_a_cut_host_is_gone_even_after_a_reboot_until_restored(lab_factory: LabFactory) -> None:
    lab = lab_factory(hosts=2)
    lab.fault("h1", "cut")
    assert not answers(lab, "h1")
    assert answers(lab, "h2")
    lab.fault("h1", "reboot")
    eventually(lambda: lab.run("h1", ["systemctl", "is-active", "ssh"], check=False).returncode == 0, "sshd runs")
    assert not answers(lab, "h1")
    lab.fault("h1", "restore")
    eventually(lambda: answers(lab, "h1"), "reached again")


@pytest.mark.parametrize("disk", ["tmpfs:64m", "ext4:64m"])
def test_a_full_disk_is_full_and_readable_and_can_be_freed(lab_factory: LabFactory, disk: str) -> None:
    lab = lab_factory(disk=disk)
    lab.fault("h1", "disk-full")
    written = lab.run("h1", ["dd", "if=/dev/zero", "of=/root/more", "bs=4k", "count=1"], check=False)
    assert "No space left on device" in written.stderr
    assert ssh(lab, "h1", "df --output=pcent / | tail -1").stdout.strip() == "100%"
    lab.fault("h1", "disk-ok")
    lab.run("h1", ["dd", "if=/dev/zero", "of=/root/more", "bs=1M", "count=8"])


@pytest.mark.parametrize("disk", ["tmpfs:64m", "ext4:64m"])
def test_without_inodes_no_file_is_made_and_old_ones_grow(lab_factory: LabFactory, disk: str) -> None:
    lab = lab_factory(disk=disk)
    lab.run("h1", ["touch", "/root/there"])
    lab.fault("h1", "inodes-full")
    assert "No space left on device" in lab.run("h1", ["touch", "/root/new"], check=False).stderr
    lab.run("h1", ["dd", "if=/dev/zero", "of=/root/there", "bs=4k", "count=4"])
    lab.fault("h1", "inodes-ok")
    lab.run("h1", ["touch", "/root/new"])


def received(lab: Lab, host: str) -> int:
    """Frames, as the host counts them."""
    return int(lab.run(host, ["cat", "/sys/class/net/eth0/statistics/rx_packets"]).stdout)


@pytest.mark.parametrize(("fault", "hears"), [("cut-in", False), ("cut-out", True)])
def test_one_direction_can_be_cut(lab_factory: LabFactory, fault: str, *, hears: bool) -> None:
    lab = lab_factory(init="sshd")
    assert answers(lab, "h1")
    lab.fault("h1", fault)
    before = received(lab, "h1")
    assert not answers(lab, "h1")
    assert (received(lab, "h1") > before) is hears
    lab.fault("h1", "restore")
    assert answers(lab, "h1")


def test_readonly_and_back(lab_factory: LabFactory) -> None:
    lab = lab_factory()
    lab.fault("h1", "readonly")
    refused = lab.run("h1", ["touch", "/root/ml-env/new"], check=False)
    assert "Read-only file system" in refused.stderr
    assert answers(lab, "h1")
    lab.fault("h1", "restore")
    lab.run("h1", ["touch", "/root/ml-env/new"])


def test_latency_and_loss_and_rate_end_with_restore(lab_factory: LabFactory) -> None:
    lab = lab_factory(init="sshd")
    plain_ms = best_connect_ms(lab, "h1")
    lab.fault("h1", "rate", 2000)
    start = time.monotonic()
    assert len(ssh(lab, "h1", "head -c 250000 /dev/zero").stdout) == 250000
    assert time.monotonic() - start > 0.8  # two megabits at two a second; a busy machine only takes longer
    lab.fault("h1", "latency", 50)
    late_ms = best_connect_ms(lab, "h1")
    assert 95 < late_ms - plain_ms < 190  # there and back
    lab.fault("h1", "loss", 100)
    assert not answers(lab, "h1")
    lab.fault("h1", "restore")
    assert best_connect_ms(lab, "h1") < late_ms / 2


def test_killed_sshd_ends_sessions_and_listens_again(lab_factory: LabFactory) -> None:
    lab = lab_factory()
    argv = ["ssh", "-F", str(lab.ssh_config), "h1", "echo there; sleep 20"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == "there\n"
        lab.fault("h1", "kill-sshd")
        assert session.wait(5) == 255
    assert lab.run("h1", ["pgrep", "sleep"]).stdout  # what the session ran lives on
    eventually(lambda: answers(lab, "h1"), "systemd starts sshd again")


def test_power_loss_takes_what_was_not_synced_only(lab_factory: LabFactory) -> None:
    lab = lab_factory(disk="ext4:256m")
    write = "echo kept >/root/kept; sync /root/kept /root; echo lost >/root/lost"
    lab.run("h1", ["sh", "-c", write])
    lab.fault("h1", "power-loss")
    eventually(lambda: lab.run("h1", ["systemctl", "is-active", "ssh"], check=False).returncode == 0, "boots")
    assert lab.run("h1", ["cat", "/root/kept"]).stdout == "kept\n"
    assert lab.run("h1", ["cat", "/root/lost"], check=False).stdout == ""
    assert lab.state()["h1"]["boots"] == 2


def test_power_loss_on_tmpfs_is_refused_with_the_reason(fleet: Lab) -> None:
    with pytest.raises(UsageError, match="ext4:SIZE"):
        fleet.fault("h1", "power-loss")
    assert fleet.run("h1", SAY_OK).stdout == "ok\n"


def test_a_failing_command_says_where_and_what(fleet: Lab) -> None:
    with pytest.raises(CudaupError) as caught:
        fleet.run("h2", ["cat", "/nowhere"])
    assert "h2: `cat /nowhere` failed" in str(caught.value)
    assert "No such file" in str(caught.value)


def test_a_lab_that_cannot_boot_is_taken_down_with_its_log(lab_factory: LabFactory) -> None:
    with pytest.raises(CudaupError, match="No space left on device") as caught:
        lab_factory(disk="tmpfs:1m")  # too small for the old environment
    assert caught.value.where is not None
    assert not Path(caught.value.where).parent.exists()
