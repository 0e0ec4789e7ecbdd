"""Which code a GPU takes: NVIDIA's compatibility rules, and the PTX that a driver can still compile."""

import re
from typing import NamedTuple, Optional, Tuple

from cudaup.audit.fatbin import Image

Version = Tuple[int, int]

# CUDA -> newest PTX ISA. From 13.0 on the ISA follows the toolkit; read with 13.0 and 13.5, the ones between are alike.
_ISA = {
    (12, 0): (8, 0),
    (12, 1): (8, 1),
    (12, 2): (8, 2),
    (12, 3): (8, 3),
    (12, 4): (8, 4),
    (12, 5): (8, 5),
    (12, 6): (8, 5),
    (12, 7): (8, 6),
    (12, 8): (8, 7),
    (12, 9): (8, 8),
}
_ISA_LEAD = 4  # CUDA 13.x has ISA 9.x

# First driver branch of each CUDA release (the driver that NVIDIA packages with it).
_BRANCHES = (
    (525, (12, 0)),
    (530, (12, 1)),
    (535, (12, 2)),
    (545, (12, 3)),
    (550, (12, 4)),
    (555, (12, 5)),
    (560, (12, 6)),
    (565, (12, 7)),
    (570, (12, 8)),
    (575, (12, 9)),
    (580, (13, 0)),
    (590, (13, 1)),
    (595, (13, 2)),
)

# Family code runs on later members of its own family only; what is not listed here is its own family.
_FAMILIES = ((100, 103), (120, 121))

_SM = re.compile(r"(?:sm_?)?(?:(\d+)\.(\d)|(\d{2,3}))", re.IGNORECASE)
_OLDEST_SM = 50  # "12" is a mistake for 120
_CUDA = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*")


class UnknownDevice(ValueError):
    """The text names no GPU architecture, CUDA version or driver that is known here."""


class Device(NamedTuple):
    """`cuda` is what the driver supports; None means that any PTX is taken as known to it."""

    sm: int
    cuda: Optional[Version] = None

    @property
    def name(self) -> str:
        return f"SM{self.sm}"

    @property
    def isa(self) -> Optional[Version]:
        return None if self.cuda is None else isa_of(self.cuda)

    def runs(self, image: Image) -> bool:
        """SASS as it is."""
        return image.kind == "sass" and self._takes(image, is_binary=True)

    def compiles(self, image: Image) -> bool:
        """PTX that the driver makes SASS of when the program starts."""
        is_known = self.isa is None or image.version <= self.isa
        return image.kind == "ptx" and is_known and self._takes(image, is_binary=False)

    def _takes(self, image: Image, *, is_binary: bool) -> bool:
        if image.suffix == "a":
            return image.sm == self.sm
        if image.suffix == "f":
            return image.sm == self.sm or any(image.sm in f and self.sm in f and image.sm < self.sm for f in _FAMILIES)
        return image.sm <= self.sm and (not is_binary or image.sm // 10 == self.sm // 10)


def parse_sm(text: str) -> int:
    """`120`, `sm_120` or `12.0`. Raises UnknownDevice."""
    match = _SM.fullmatch(text.strip())
    major, minor, number = match.groups() if match else ("0", "0", None)
    sm = int(number) if number else int(major) * 10 + int(minor)
    if sm < _OLDEST_SM:
        raise UnknownDevice(f"{text!r} is no GPU architecture such as 120 or 12.0")
    return sm


def parse_cuda(text: str) -> Version:
    """Raises UnknownDevice."""
    match = _CUDA.fullmatch(text.strip())
    if not match or int(match.group(1)) < 12:
        raise UnknownDevice(f"{text!r} is no CUDA version such as 13.1 (12.0 or newer)")
    return int(match.group(1)), int(match.group(2))


def cuda_of_driver(text: str) -> Version:
    """Of a branch that is newer than those known here, what is sure of it: the newest known. Raises UnknownDevice."""
    match = _CUDA.fullmatch(text.strip())
    known = [cuda for branch, cuda in _BRANCHES if match and branch <= int(match.group(1))]
    if not known:
        raise UnknownDevice(f"{text!r} is no driver version such as 590.48.01 (525 or newer)")
    return known[-1]


def isa_of(cuda: Version) -> Version:
    return _ISA.get(cuda) or (cuda[0] - _ISA_LEAD, cuda[1])
