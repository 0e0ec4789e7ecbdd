"""Whether code made by the generation's nvcc runs on each GPU here, as its own SASS, and writes the right values."""

import json
from pathlib import Path
from typing import List

from cudaup.smoke import toolchain
from cudaup.smoke.verdict import (
    ERROR,
    FAIL,
    NOOP,
    PASS,
    SUBSTITUTED,
    WAIVED,
    Json,
    Verdict,
    answer,
    context,
    last_lines,
    tool,
)

_ORDER = (ERROR, FAIL, NOOP, SUBSTITUTED, PASS)  # worst first


def judge(asked: Json) -> Verdict:
    gpu = asked["gpu"]
    if gpu["simulated"]:
        return Verdict(WAIVED, "GPUs are simulated", {})
    if not gpu["gpus"]:
        return Verdict(WAIVED, "no GPU here" + (f" ({'; '.join(gpu['problems'])})" if gpu["problems"] else ""), {})
    tools = toolchain.find(asked)
    if isinstance(tools, Verdict):
        return tools
    program = Path(asked["work"], "vector_add")
    archs = sorted({each["compute_cap"].replace(".", "") for each in gpu["gpus"]})
    built = tool(tools.command(archs, "-o", str(program)))
    if built.returncode:
        return Verdict(FAIL, f"nvcc ended with {built.returncode}: {last_lines(built)}", {"archs": archs})
    ran = tool([str(program)])
    if ran.returncode:
        return Verdict(ERROR, f"the program ended with {ran.returncode}: {last_lines(ran)}", {"archs": archs})
    return judge_devices([json.loads(line) for line in ran.stdout.splitlines()], len(gpu["gpus"]))


def judge_devices(devices: List[Json], expected: int) -> Verdict:
    """The worst of all devices, which have to be as many as the driver lists."""
    evidence: Json = {"devices": devices}
    if len(devices) != expected:
        return Verdict(ERROR, f"the driver lists {expected} GPUs, CUDA ran on {len(devices)}", evidence)
    worst = min((_judge_device(device) for device in devices), key=lambda each: _ORDER.index(each.verdict))
    return worst._replace(evidence=evidence)


def _judge_device(device: Json) -> Verdict:
    name = f"GPU {device['device']} ({device['name']})"
    if device["error"]:
        return Verdict(FAIL, f"{name}: {device['error']}", {})
    if device["untouched"] == device["elements"]:
        return Verdict(NOOP, f"{name}: success was returned and nothing was written", {})
    if device["wrong"] or not device["sum_is_exact"]:
        return Verdict(FAIL, f"{name}: {device['wrong']} of {device['elements']} values are wrong", {})
    if {device["binary_version"], device["ptx_version"]} != {device["sm"]}:
        ran = f"sm_{device['binary_version']} code made from compute_{device['ptx_version']}"
        return Verdict(SUBSTITUTED, f"{name}: ran {ran}, not what nvcc made for sm_{device['sm']}", {})
    return Verdict(PASS, f"exact values from sm_{device['sm']} code", {})


def main() -> None:
    answer(judge(context()))


if __name__ == "__main__":
    main()
