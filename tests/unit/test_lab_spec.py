from __future__ import annotations

from pathlib import Path

import pytest

from cudaup.domain.errors import UsageError
from cudaup.lab.faults import Fault, FaultKind
from cudaup.lab.spec import LAB_SPEC, Disk, Init, LabSpec, check_name, fleet_of


def spec(*, bastion: bool = False) -> LabSpec:
    return LabSpec(
        name="lab",
        directory=Path("/d"),
        root=Path("/r"),
        cgroup=Path("/c"),
        hosts=fleet_of(2, "h200x2", bastion=bastion),
        init=Init.SSHD,
        disk=Disk.parse("ext4:1g"),
        user="ann",
    )


def test_a_spec_survives_its_way_to_the_warden() -> None:
    sent = spec(bastion=True)
    assert LAB_SPEC.validate_json(LAB_SPEC.dump_json(sent)) == sent


def test_addresses_never_collide_and_end_with_no_reserved_byte() -> None:
    hosts = fleet_of(600, "none", bastion=False)
    addresses = [host.address for host in hosts]
    assert addresses[0] == "10.77.0.2"
    assert len(set(addresses)) == 600
    assert not {address.rpartition(".")[2] for address in addresses} & {"0", "255"}


def test_behind_a_bastion_no_host_is_in_front() -> None:
    hosts = {host.name: host for host in fleet_of(2, "h200x2", bastion=True)}
    assert [name for name, host in hosts.items() if host.is_inner] == ["h1", "h2"]
    assert [link.bridge for link in hosts["bastion"].links] == ["front", "inner"]
    assert hosts["bastion"].gpus == "none"


@pytest.mark.parametrize("count", [0, 1001])
def test_a_fleet_of_nobody_or_too_many_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="1 to 1000"):
        fleet_of(count, "none", bastion=False)


@pytest.mark.parametrize(("text", "size"), [("tmpfs:64m", 64 << 20), ("ext4:3g", 3 << 30), ("tmpfs:9k", 9 << 10)])
def test_disk_sizes(text: str, size: int) -> None:
    assert Disk.parse(text).size_bytes == size


@pytest.mark.parametrize("text", ["tmpfs", "xfs:2g", "tmpfs:2", "tmpfs:0g", "ext4:-1g", "ext4:2g "])
def test_a_bad_disk_is_refused_with_what_was_said(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Disk.parse(text)
    assert caught.value.found == text


@pytest.mark.parametrize("name", ["", "1a", "a/b", "../a", "A", "a b", "a" * 32, "root"])
def test_names_that_are_no_names(name: str) -> None:
    with pytest.raises(UsageError):
        check_name("user", name, known=("root",))


def test_an_unknown_host_is_answered_with_the_known() -> None:
    with pytest.raises(UsageError, match="no host `h9`") as caught:
        spec().host("h9")
    assert caught.value.wanted == "h1, h2"


def test_faults_take_their_amount_and_nothing_else() -> None:
    assert Fault.parse("latency", [50]) == Fault(kind=FaultKind.LATENCY, amount=50)
    assert Fault.parse("power-loss") == Fault(kind=FaultKind.POWER_LOSS)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [("latency", []), ("latency", ["-1"]), ("loss", ["101"]), ("rate", ["1"]), ("cut", ["1"]), ("latency", ["1", "2"])],
)
def test_bad_faults_are_refused(kind: str, arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="bad fault"):
        Fault.parse(kind, arguments)


def test_an_unknown_fault_is_answered_with_the_known() -> None:
    with pytest.raises(UsageError, match="power-loss"):
        Fault.parse("meteor")
