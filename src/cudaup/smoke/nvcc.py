"""Whether the generation's nvcc makes code for exactly the GPU's archs, read back from its output. Needs no GPU."""

from pathlib import Path
from typing import List, NamedTuple, Sequence, Union

from cudaup.audit.fatbin import FatbinError, Image, parse_fatbin
from cudaup.smoke import toolchain
from cudaup.smoke.toolchain import Toolchain
from cudaup.smoke.verdict import FAIL, PASS, WAIVED, Json, Verdict, answer, context, last_lines, tool

_FIRST_ARCH_SPECIFIC, _FIRST_FAMILY_SPECIFIC = 90, 100


class Trouble(NamedTuple):
    arch: str
    text: str


def archs_of(sm: str) -> List[str]:
    """`120` means the plain arch and the suffixes it can have; `120a` means only that one."""
    if not sm.isdigit():
        return [sm]
    specific = [sm + "a"] if int(sm) >= _FIRST_ARCH_SPECIFIC else []
    family = [sm + "f"] if int(sm) >= _FIRST_FAMILY_SPECIFIC else []
    return [sm, *specific, *family]


def judge_images(arch: str, images: Sequence[Image]) -> str:
    """What is wrong with the code found; nothing when it is SASS of `arch` and only that."""
    found = [(image.kind, image.arch) for image in images]
    return "" if found == [("sass", arch)] else f"wanted SASS of sm_{arch}, found {_listed(images)}"


def judge(asked: Json) -> Verdict:
    if asked["sm"] is None:
        return Verdict(WAIVED, "the stack names no GPU architecture", {})
    tools = toolchain.find(asked)
    if isinstance(tools, Verdict):
        return tools
    evidence: Json = {"nvcc": _version(tools), "host_compiler": tools.host_compiler, "code": {}}
    troubles = []
    for arch in archs_of(asked["sm"]):
        images = _compile(tools, arch, Path(asked["work"], f"{arch}.fatbin"))
        trouble = images if isinstance(images, Trouble) else Trouble(arch, judge_images(arch, images))
        if trouble.text:
            troubles.append(trouble)
        else:
            evidence["code"][arch] = sum(image.unpacked for image in images if isinstance(image, Image))
    if troubles:
        return Verdict(FAIL, "; ".join(f"sm_{trouble.arch}: {trouble.text}" for trouble in troubles), evidence)
    return Verdict(PASS, f"SASS for {', '.join(evidence['code'])}, read back from the binary", evidence)


def _compile(tools: Toolchain, arch: str, target: Path) -> Union[Sequence[Image], Trouble]:
    ran = tool(tools.command([arch], "-fatbin", "-o", str(target)))
    if ran.returncode:
        return Trouble(arch, f"nvcc ended with {ran.returncode}: {last_lines(ran)}")
    try:
        return parse_fatbin(target.read_bytes())
    except (FatbinError, OSError) as error:
        return Trouble(arch, f"no fatbin: {error}")


def _version(tools: Toolchain) -> str:
    return tool([tools.nvcc, "--version"]).stdout.rpartition(" V")[2].partition("\n")[0]


def _listed(images: Sequence[Image]) -> str:
    return ", ".join(f"{image.kind} {image.arch}" for image in images) or "nothing"


def main() -> None:
    answer(judge(context()))


if __name__ == "__main__":
    main()
