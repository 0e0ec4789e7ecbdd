"""Mistakes on the command line: one clear error, exit code 1, nothing started."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaup.ui.cli import main


def ended(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "-i", "a,"], "which stack?"),
        (["apply"], "wanted: a PLAN file, or -i INVENTORY -s STACK"),
        (["apply", "plan.json", "-i", "a,"], "found:  -i beside it"),
        (["apply", "no-such-plan.json"], "no-such-plan.json: the plan cannot be read"),
        (["plan", "-i", "a,", "-s", "no-such.yml"], "no-such.yml"),
        (["lock", "no-such.yml"], "for which hosts?"),
        (["lock", "no-such.yml", "--platform", "cp311-manylinux_2_99_x86_64"], "found:  cp311-manylinux_2_99_x86_64"),
        (
            ["lock", "no-such.yml", "--platform", "cp311-manylinux_2_36_x86_64"],
            "no-such.yml: cannot read the stack file",
        ),
        (["plan"], "Missing option '-i'"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_a_mistake_is_told_and_is_exit_code_1(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(arguments) == 1
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
    assert "Traceback" not in err


def test_an_edited_plan_is_refused_by_its_checksum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"schema_version": 1, "checksum": "0", "kind": "upgrade"}')
    assert ended(["apply", str(plan)]) == 1
    assert "the plan was changed after it was made" in capsys.readouterr().err
