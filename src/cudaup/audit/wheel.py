"""A wheel read where it lies: each binary streamed through inflate, nothing unpacked, memory bounded."""

import struct
import zipfile
import zlib
from typing import IO, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from cudaup.audit import binary, verdict
from cudaup.audit.device import Device
from cudaup.audit.distributions import Distribution, named, recorded
from cudaup.audit.fatbin import Container
from cudaup.audit.file import NAMES, FileAudit, audit_window, described, unreadable
from cudaup.audit.window import Bytes, Passing

_SMALL = 32 << 20  # read whole, and then looked at like a file on disk
_LONGEST_RECORD = 64 << 20
_LONGEST_DIRECTORY = 32 << 20
_MOST_INFLATION, _ALWAYS_FINE = 200, 64 << 20  # real libraries stay under 20, padding included
_ENCRYPTED = 0x1

_END = struct.Struct("<4s4xHHIIH")
_END_MAGIC, _END64_MAGIC = b"PK\x05\x06", b"PK\x06\x06"
_LONGEST_COMMENT = 1 << 16

# What zipfile raises on archives that somebody broke; ValueError is a seek to before the beginning.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, ValueError)
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


Wants = Callable[[str], bool]


class WheelError(ValueError):
    """The archive as a whole cannot be used."""


class Wheel(NamedTuple):
    files: Sequence[FileAudit]
    distributions: Sequence[Distribution]
    paths: Sequence[str]


def _everything(_path: str) -> bool:
    return True


def audit_wheel(stream: IO[bytes], device: Device, *, is_quick: bool = False, wants: Wants = _everything) -> Wheel:
    """`is_quick`: a large file is read only until code for the device was seen, or to its end. `wants`: which files.

    Raises WheelError, and OSError from the stream.
    """
    _check_directory(stream)
    try:
        with zipfile.ZipFile(stream) as archive:
            _check_overlap(archive, stream)
            files = list(_files(archive, device, wants, is_quick=is_quick))
            return Wheel(files, _distributions(archive), archive.namelist())
    except WheelError:
        raise
    except _DAMAGED as error:
        raise WheelError(f"not a wheel: {error}") from error


def _files(archive: zipfile.ZipFile, device: Device, wants: Wants, *, is_quick: bool) -> Iterator[FileAudit]:
    known: Dict[Tuple[int, int], FileAudit] = {}
    for member in archive.infolist():
        if not NAMES.fullmatch(member.filename) or member.is_dir() or not wants(member.filename):
            continue
        why_not = _refusal(member)
        same = known.get((member.CRC, member.file_size))
        if why_not:
            yield unreadable(member.filename, why_not, member.file_size)
        elif same:
            yield same._replace(path=member.filename, same_as=same.path)
        else:
            found = _file(archive, member, device, is_quick=is_quick)
            if found.is_complete:
                known[member.CRC, member.file_size] = found
            yield found


def _refusal(member: zipfile.ZipInfo) -> str:
    if member.filename.startswith("/") or ".." in member.filename.split("/"):
        return "its path leads out of the wheel"
    if member.flag_bits & _ENCRYPTED:
        return "encrypted"
    if member.compress_type not in _METHODS:
        return f"compression method {member.compress_type}, which wheels do not have"
    if member.file_size > max(_ALWAYS_FINE, _MOST_INFLATION * member.compress_size):
        return f"a zip bomb: {member.compress_size} bytes become {member.file_size}"
    return ""


def _file(archive: zipfile.ZipFile, member: zipfile.ZipInfo, device: Device, *, is_quick: bool) -> FileAudit:
    try:
        with archive.open(member) as stream:
            if member.file_size <= _SMALL:
                return audit_window(Bytes(stream.read()), member.filename, device)
            passing = Passing(stream, member.file_size)
            reading = binary.read_passing(passing, lambda part: is_quick and _runs(part, device))
            return described(member.filename, member.file_size, reading, device)
    except _DAMAGED as error:
        return unreadable(member.filename, f"damaged in the wheel: {error}", member.file_size)


def _runs(part: Container, device: Device) -> bool:
    return any(device.runs(image) for image in part.images)


def _distributions(archive: zipfile.ZipFile) -> Sequence[Distribution]:
    found: List[Distribution] = []
    for member in archive.infolist():
        folder, _, name = member.filename.rpartition("/")
        if name == "RECORD" and folder.endswith(".dist-info") and member.file_size < _LONGEST_RECORD:
            text = archive.read(member).decode("utf-8", "replace")
            found.append(Distribution(*named(folder), recorded(text, "")))
    return found


def _check_directory(stream: IO[bytes]) -> None:
    """Zipfile reads the whole directory of members at once, whatever size it says it has."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - _LONGEST_COMMENT - _END.size))
    end = stream.read()
    at = end.rfind(_END_MAGIC)
    if at < 0 or len(end) - at < _END.size:
        raise WheelError("not a wheel: no zip directory at its end")
    directory = _END.unpack_from(end, at)[3]
    if directory == 0xFFFFFFFF:
        at = end.rfind(_END64_MAGIC)
        directory = struct.unpack_from("<Q", end, at + 40)[0] if 0 <= at <= len(end) - 48 else directory
    if directory > _LONGEST_DIRECTORY:
        raise WheelError(f"its zip directory of {directory} bytes is too large")


def _check_overlap(archive: zipfile.ZipFile, stream: IO[bytes]) -> None:
    stored = sum(member.compress_size for member in archive.infolist())
    size = stream.seek(0, 2)
    if stored > size:
        raise WheelError(f"a zip bomb: members of {stored} bytes in {size}")


def worst_of(files: Sequence[FileAudit]) -> str:
    return verdict.worst(file.verdict for file in files)
