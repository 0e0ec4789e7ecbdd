"""A host that somebody's hand has damaged: told, not taken for untouched or half made, not in its own way back."""

import shutil

import pytest
from tests.unit.host_state.machine import TIMES, Machine

from cudaup.host import activate, confirm, generations, lease, recover, rollback, status
from cudaup.host.protocol import Json, Refused

NEW = "0002-abcdef"


@pytest.fixture
def upgraded(machine: Machine, adopted: str) -> str:
    """On the new generation, confirmed; returns the old one's id."""
    machine.stage(NEW)
    epoch = machine.take_lease()
    activate.activate(machine.call(epoch, generation=NEW, **TIMES))
    confirm.confirm(machine.call(epoch))
    assert damage(machine) == []
    return adopted


def damage(machine: Machine) -> list[str]:
    found: list[str] = status.of(machine.ctx)["damage"]
    return found


def assert_goes_back(machine: Machine, old: str) -> None:
    answer: Json = rollback.rollback(machine.call(machine.take_lease(), to=old))
    assert (answer["state"], machine.served_from()) == ("rolled-back-proven", f".ml-env.{old}")
    assert generations.current_id(machine.ctx.layout) == old
    assert damage(machine) == []


@pytest.mark.parametrize("content", [None, "", '{"id": "0002'])
def test_a_generation_in_use_is_not_half_made_whatever_becomes_of_its_record(
    machine: Machine, upgraded: str, content: str | None
) -> None:
    layout = machine.ctx.layout
    record = layout.generation(NEW) / "generation.json"
    record.unlink()
    if content is not None:
        record.write_text(content)
    pid = machine.systemd.show("ml.service").pid
    assert recover.recover(machine.call(boot=False)) == {"state": "clean", "actions": []}
    assert (machine.systemd.show("ml.service").pid, layout.generation(NEW).is_dir()) == (pid, True)
    assert damage(machine) == [f"`{layout.current}` names {NEW}, which is not whole"]
    assert_goes_back(machine, upgraded)


@pytest.mark.parametrize("breakage", ["missing", "dangling"])
def test_a_current_that_leads_nowhere_is_told_and_made_again(machine: Machine, upgraded: str, breakage: str) -> None:
    current = machine.ctx.layout.current
    current.unlink()
    if breakage == "dangling":
        current.symlink_to("generations/0099-ffffff")
    named = "0099-ffffff, which is not whole" if breakage == "dangling" else "no generation"
    assert damage(machine) == [f"`{current}` names {named}"]
    assert_goes_back(machine, upgraded)


def test_a_path_that_was_replaced_is_told(machine: Machine, upgraded: str) -> None:
    machine.path.unlink()
    shutil.copytree(machine.folder / f".ml-env.{upgraded}", machine.path, symlinks=True)
    assert [text.split(",")[0] for text in damage(machine)] == [
        f"`{machine.path}` does not lead to `{machine.ctx.layout.current}/venv`"
    ]
    pid = machine.systemd.show("ml.service").pid
    with pytest.raises(Refused, match="does not lead"):
        rollback.rollback(machine.call(machine.take_lease(), to=upgraded))
    assert machine.systemd.show("ml.service").pid == pid


def test_a_drop_in_that_is_gone_is_told_and_a_rollback_writes_it_again(machine: Machine, upgraded: str) -> None:
    shutil.rmtree(machine.systemd.unit_dir / "ml.service.d")
    assert damage(machine) == ["the drop-in of ml.service is gone"]
    assert_goes_back(machine, upgraded)


@pytest.mark.parametrize("content", ["", "[]", '{"state": "held"', '{"no": "lease"}'])
def test_a_damaged_lease_is_a_quarantine_that_a_person_can_end(machine: Machine, upgraded: str, content: str) -> None:
    epoch = lease.read(machine.ctx.layout).epoch
    machine.ctx.layout.lease.write_text(content)
    seen = status.of(machine.ctx)["lease"]
    assert (seen["state"], seen["epoch"], "is damaged" in seen["reason"]) == ("quarantined", epoch, True)
    with pytest.raises(Refused, match="quarantine"):
        machine.take_lease("r-2")
    assert lease.clear(machine.ctx)["lease"]["epoch"] == epoch + 1
    assert_goes_back(machine, upgraded)


def test_a_damaged_adoption_is_named(machine: Machine, upgraded: str) -> None:
    assert upgraded
    machine.ctx.layout.adopted.write_text("{")
    with pytest.raises(Refused, match=r"adopted\.json` is not what was written") as refusal:
        status.of(machine.ctx)
    assert refusal.value.code == "damaged"
