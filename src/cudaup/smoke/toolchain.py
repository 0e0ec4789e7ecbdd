"""The generation's own nvcc, and the host's C++ compiler that it cannot work without."""

import shutil
from pathlib import Path
from typing import List, NamedTuple, Sequence, Union

from cudaup.smoke.verdict import WAIVED, Json, Verdict

SOURCE = Path(__file__).with_name("vector_add.cu")
_HOST_COMPILERS = ("g++", "clang++")


class Toolchain(NamedTuple):
    nvcc: str
    host_compiler: str

    def command(self, archs: Sequence[str], *options: str) -> List[str]:
        """For exactly `archs`, with no PTX. Never `-arch=native`: without a GPU that is sm_75 and exit code 0."""
        code = [option for arch in archs for option in ("-gencode", f"arch=compute_{arch},code=sm_{arch}")]
        return [self.nvcc, "-std=c++17", "-ccbin", self.host_compiler, *code, *options, str(SOURCE)]


def find(asked: Json) -> Union[Toolchain, Verdict]:
    """The tools, or why the case cannot apply here."""
    if asked["toolkit"] is None:
        return Verdict(WAIVED, "the generation has no CUDA toolkit", {})
    compilers = [path for path in map(shutil.which, _HOST_COMPILERS) if path]
    if not compilers:
        return Verdict(WAIVED, "no host C++ compiler here (looked for g++ and clang++ on PATH)", {})
    return Toolchain(str(Path(asked["toolkit"], "bin", "nvcc")), compilers[0])
