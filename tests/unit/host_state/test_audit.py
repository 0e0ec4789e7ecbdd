"""The verb `audit`, on an adopted environment with a real binary in it."""

from __future__ import annotations

import shutil

import pytest
from tests.unit.audit.cases import CASES
from tests.unit.host_state.machine import Machine

from cudaup.host import audit, generations
from cudaup.host.protocol import Refused


def test_the_current_generation_is_audited_where_it_lies(machine: Machine, adopted: str) -> None:
    site = next(generations.tree(machine.ctx.layout, adopted).glob("lib/python3*/site-packages"))
    shutil.copy(CASES / "older.so", site / "ops.so")
    for cuda, verdict in (("13.0", "jit"), ("12.8", "dead")):
        answer = audit.audit(machine.call(generation=None, sm="120", cuda=cuda))
        assert answer["generation"] == adopted
        assert [(f["path"].rpartition("/")[2], f["verdict"]) for f in answer["audit"]["files"]] == [("ops.so", verdict)]


def test_an_architecture_that_is_none_is_refused(machine: Machine, adopted: str) -> None:
    with pytest.raises(Refused, match="no GPU architecture"):
        audit.audit(machine.call(generation=adopted, sm="blackwell", cuda=None))
