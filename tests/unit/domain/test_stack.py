from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.domain.builders import make_stack, make_wheel, stack_json

from cudaup.domain.stack import Stack, generation_spec, health_json, hooks_json, smoke_suite


def errors_of(**changes: Any) -> dict[str, str]:
    """Messages by dotted key."""
    with pytest.raises(ValidationError) as caught:
        make_stack(**changes)
    return {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}


def wheels_json(*wheels: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [make_wheel(*wheel).model_dump() for wheel in wheels]


TOGETHER = "wheels that one Linux machine with Python >=3.11,<3.12 can use together"
HOOK = {"command": ["ml", "now"], "timeout_s": 9}
NVCC = ("nvidia-cuda-nvcc", "13.0.88", "py3-none-manylinux2014_x86_64")


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        (
            {"env": {"A": "{home}/x"}},
            "env.A",
            "wanted no placeholder but {generation}, found {home}",
        ),
        ({"env": {"A": "x}"}}, "env.A", "wanted no placeholder but {generation}, found }"),
        (
            {"env": {"HF_TOKEN": "hf_abc"}},
            "env.HF_TOKEN",
            "wanted no secret, as plans and hosts keep it in clear, found a value (hidden)",
        ),
        (
            {"env": {"1A": "x"}},
            "env.1A",
            "wanted a variable's name: letters, digits and _, no digit first, found 1A",
        ),
        (
            {"environment": {"path": "root/ml-env"}},
            "environment.path",
            "wanted an absolute path, without ., .. or / at its end, found root/ml-env",
        ),
        (
            {"environment": {"path": "/root/../etc"}},
            "environment.path",
            "wanted an absolute path, without ., .. or / at its end, found /root/../etc",
        ),
        (
            {"environment": {"path": "/"}},
            "environment.path",
            "wanted an absolute path, without ., .. or / at its end, found /",
        ),
        ({"timers": {"ttl_s": 1800}}, "timers.ttl_s", "wanted less than ceiling_s (1800), found 1800"),
        (
            {"smoke": {"accept": {"flashinfer": ["pass"]}}},
            "smoke.accept.flashinfer",
            "wanted one of smoke.cases (nvcc, imports, launch), found flashinfer",
        ),
        (
            {"smoke": {"limits": {"flashinfer": 3}}},
            "smoke.limits.flashinfer",
            "wanted one of smoke.cases (nvcc, imports, launch), found flashinfer",
        ),
        ({"smoke": {"cases": ["nvcc", "nvcc"], "accept": {}}}, "smoke.cases.1", "wanted each case once, found nvcc"),
        ({"smoke": {"sm": "90"}}, "smoke.sm", "wanted code for gpus.arch 12.0 (120), found 90"),
        ({"gpus": None}, "smoke.sm", "wanted an SM number, as there is no gpus.arch, found none"),
        (
            {"driver": None},
            "gpus",
            "wanted a driver range too (key driver) where GPUs are wanted, found none",
        ),
        (
            {"health": {"command": ["true"], "timeout_s": 3}},
            "health.command",
            "wanted http or command, not both, found both",
        ),
        (
            {"wheels": wheels_json(NVCC, ("numpy", "2.3.1", "py3-none-any"), ("NumPy", "2.4.0", "py3-none-any"))},
            "wheels.2.name",
            "wanted numpy once (it is 2.3.1 above), found NumPy 2.4.0",
        ),
        (
            {"wheels": wheels_json(("numpy", "2.3.1", "py3-none-any"))},
            "wheels",
            "wanted nvidia-cuda-nvcc 13.0.* for toolkit 13.0, found none",
        ),
        (
            {"wheels": wheels_json(("nvidia-cuda-nvcc", "13.5.37", "py3-none-any"))},
            "wheels",
            "wanted nvidia-cuda-nvcc 13.0.* for toolkit 13.0, found 13.5.37",
        ),
        (
            {"wheels": wheels_json(NVCC, ("numpy", "2.3.1", "cp312-cp312-manylinux_2_28_x86_64"))},
            "wheels",
            f"wanted {TOGETHER}, found numpy-2.3.1-cp312-cp312-manylinux_2_28_x86_64.whl",
        ),
        ({"wheels": []}, "wheels", "wanted at least one wheel, or packages to lock, found none"),
        (
            {"smoke": {"cases": [], "accept": {}, "limits": {}}},
            "smoke.cases",
            "wanted at least one case, found none",
        ),
        (
            {"health": {"http": None, "command": [], "timeout_s": 3}},
            "health.command",
            "wanted a program and its arguments, found an empty list",
        ),
        (
            {"health": {"http": None, "command": ["true"]}},
            "health.timeout_s",
            "wanted a limit in seconds for command, found none",
        ),
        (
            {"health": {"timeout_s": 3}},
            "health.timeout_s",
            "wanted timeout_s beside command (http has its own), found 3",
        ),
        (
            {"health": {"http": {"url": "https://127.0.0.1/health", "timeout_s": 3}}},
            "health.http.url",
            "wanted a plain http address, found https://127.0.0.1/health",
        ),
        (
            {"health": {"http": {"url": "http://127.0.0.1:99999/", "timeout_s": 3}}},
            "health.http.url",
            "wanted a port up to 65535, found http://127.0.0.1:99999/",
        ),
        ({"env": {"A": "one\ntwo"}}, "env.A", "wanted one line, found several"),
        (
            {"smoke": {"accept": {"launch": []}}},
            "smoke.accept.launch",
            "wanted pass or waived (nothing else proves the stack), found none",
        ),
        (
            {"toolkit": None, "smoke": {"cases": ["nvcc"], "accept": {}, "limits": {}}},
            "smoke.cases",
            "wanted a toolkit for nvcc (key toolkit), or waived accepted, found none",
        ),
        ({"hooks": {"drain": HOOK}}, "hooks.undrain", "wanted drain and undrain together, found one of them"),
        ({"hooks": {"start": HOOK}}, "hooks.start", "wanted stop and start together, found one of them"),
        (
            {"hooks": {"bench": {**HOOK, "on": "controller"}}},
            "hooks.bench.on",
            "wanted host, as hooks on the controller are not there yet, found controller",
        ),
        (
            {"hooks": {"bench": {**HOOK, "timeout_s": 1800}}},
            "hooks.bench.timeout_s",
            "wanted less than timers.ceiling_s (1800), found 1800",
        ),
        ({"hooks": {"reload": HOOK}}, "hooks.reload", "Extra inputs are not permitted"),
        ({"nvcc": 1}, "nvcc", "Extra inputs are not permitted"),
    ],
)
def test_each_wrong_thing_has_its_error(changes: dict[str, Any], key: str, message: str) -> None:
    assert errors_of(**changes) == {key: message}


@pytest.mark.parametrize("verdict", ["fail", "noop", "substituted", "error", "passed"])
def test_nothing_but_pass_and_waived_can_be_accepted(verdict: str) -> None:
    found = errors_of(smoke={"accept": {"nvcc": ["pass", verdict]}})
    assert found == {
        "smoke.accept.nvcc.1": f"wanted pass or waived (nothing else proves the stack), found {verdict}",
    }


def test_a_wheel_whose_file_is_another_version_is_refused() -> None:
    wrong = {**make_wheel("numpy", "2.3.1").model_dump(), "version": "2.3.2"}
    found = errors_of(wheels=[wrong, *wheels_json(NVCC)])
    assert found == {"wheels.0": "wanted the file name of numpy 2.3.2, found numpy-2.3.1-py3-none-any.whl"}


def test_errors_of_all_sections_come_at_once() -> None:
    found = errors_of(
        name="Bad Name", driver="590", env={"A": "{x}"}, smoke={"accept": {"x": ["pass"]}}, timers={"ttl_s": 9999}
    )
    assert set(found) == {"name", "driver", "env.A", "smoke.accept.x", "timers.ttl_s"}


def test_digest_is_what_the_host_computes_from_the_spec() -> None:
    stack = make_stack()
    spec = generation_spec(stack)
    made_from = {key: spec[key] for key in ("python", "wheels", "toolkit", "env")}
    canonical = json.dumps(made_from, sort_keys=True, separators=(",", ":"))
    assert stack.digest() == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"description": "words"},
        {"imports": []},
        {"driver": ">=580"},
        {"smoke": {"limits": {}}},
        {"wheels": stack_json()["wheels"][::-1]},
    ],
)
def test_digest_ignores_what_a_generation_is_not_made_from(changes: dict[str, Any]) -> None:
    assert make_stack(**changes).digest() == make_stack().digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"python": ">=3.11"},
        {"env": {"CUDA_HOME": "/usr/local/cuda"}},
        {"toolkit": None, "smoke": {"cases": ["imports"], "accept": {}, "limits": {}}},
        {"wheels": wheels_json(NVCC)},
    ],
)
def test_digest_moves_with_what_a_generation_is_made_from(changes: dict[str, Any]) -> None:
    assert make_stack(**changes).digest() != make_stack().digest()


def test_generation_spec_is_the_one_of_the_host_program() -> None:
    spec = generation_spec(make_stack())
    assert [wheel["filename"][:5] for wheel in spec.pop("wheels")] == ["numpy", "nvidi"]
    assert spec.pop("uv").keys() == {"filename", "sha256", "size"}
    assert spec == {
        "name": "cu130-demo",
        "python": {"version": ">=3.11,<3.12", "executable": None},
        "toolkit": {"version": "13.0", "from": "wheels"},
        "env": {"CUDA_HOME": "{generation}/cuda"},
        "imports": ["numpy"],
    }


def test_smoke_suite_and_health_are_the_ones_of_the_host_program() -> None:
    assert smoke_suite(make_stack()) == {
        "cases": ["nvcc", "imports", "launch"],
        "accept": {"launch": ["pass", "waived"]},
        "limits": {"nvcc": 120.0},
        "sm": "120",
        "imports": ["numpy"],
    }
    assert health_json(make_stack()) == {"http": {"url": "http://127.0.0.1:8000/health", "timeout_s": 30.0}}
    command = {"http": None, "command": ["/bin/true"], "timeout_s": 3}
    assert health_json(make_stack(health=command)) == {"command": ["/bin/true"], "timeout_s": 3.0}
    assert health_json(make_stack(health={"http": None})) == {}


def test_hooks_reach_the_host_program_in_their_order_and_make_no_other_generation() -> None:
    stack = make_stack(hooks={key: {**HOOK, "on": "host"} for key in ("undrain", "bench", "start", "stop", "drain")})
    assert list(hooks_json(stack).items()) == [
        (name, {"command": ["ml", "now"], "timeout_s": 9.0}) for name in ("drain", "stop", "start", "bench", "undrain")
    ]
    assert (hooks_json(make_stack()), stack.digest()) == ({}, make_stack().digest())


def test_sm_of_the_suite_is_the_one_given_or_the_gpus() -> None:
    assert make_stack(smoke={"sm": "120f"}).sm == "120f"
    assert make_stack(gpus={"arch": "9.0"}).sm == "90"
    assert make_stack(gpus=None, smoke={"cases": ["imports"], "accept": {}, "limits": {}}).sm is None


def test_a_stack_goes_through_json_unchanged() -> None:
    stack = make_stack()
    assert Stack.model_validate_json(stack.model_dump_json(by_alias=True)) == stack


def test_a_gate_needs_a_gpu_to_look_for() -> None:
    raw = {**stack_json(gpus=None, driver=None), "smoke": {"cases": ["imports"]}, "audit": {"require": ["common_ops"]}}
    with pytest.raises(ValidationError, match=r"audit\.require[\s\S]*wanted a GPU to look for") as caught:
        Stack.model_validate(raw)
    assert caught.value.error_count() == 1
    assert Stack.model_validate({**raw, "smoke": {"cases": ["imports"], "sm": "120"}}).sm == "120"
