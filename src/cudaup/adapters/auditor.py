"""Targets of an audit as they are named on a command line: a wheel, its URL, an environment, a file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO

from cudaup.adapters.remote_wheel import is_url, open_remote, without_secrets
from cudaup.audit.device import Device, UnknownDevice, cuda_of_driver, parse_cuda, parse_sm
from cudaup.audit.target import Target, audit_environment, audit_file, of_wheel
from cudaup.audit.wheel import WheelError, audit_wheel
from cudaup.domain.audit import Asked, GpuAsked, TargetAudit, is_named, target_of
from cudaup.domain.errors import UsageError


class BinaryAuditor:
    """Satisfies `Auditor`. Nothing is installed, unpacked or run."""

    def gpu(self, asked: Asked) -> GpuAsked:
        device = _device(asked)
        isa = device.isa
        return GpuAsked(
            sm=device.sm,
            cuda=_dotted(device.cuda) if device.cuda else None,
            driver=asked.driver,
            ptx_isa=_dotted(isa) if isa else None,
        )

    def audit(self, target: str, asked: Asked) -> TargetAudit:
        device = _device(asked)
        shown = without_secrets(target)
        try:
            found = _read(target, device, asked)
        except (WheelError, OSError) as error:
            raise UsageError("it cannot be audited", where=shown, found=_told(error)) from error
        return target_of(shown, self.gpu(asked), found.as_json())


def _read(target: str, device: Device, asked: Asked) -> Target:
    if is_url(target):
        with open_remote(target) as stream:
            return _wheel(stream, device, asked)
    path = Path(target)
    if path.is_dir():
        return audit_environment(target, device, scan_all=asked.scan_all)
    if path.suffix == ".whl" or zipfile.is_zipfile(path):
        with path.open("rb") as stream:
            return _wheel(stream, device, asked)
    path.stat()
    return audit_file(target, device)


def _wheel(stream: IO[bytes], device: Device, asked: Asked) -> Target:
    def wants(path: str) -> bool:
        return not asked.only or any(is_named(path, pattern) for pattern in asked.only)

    return of_wheel(audit_wheel(stream, device, is_quick=asked.is_quick, wants=wants), device)


def _device(asked: Asked) -> Device:
    try:
        cuda = cuda_of_driver(asked.driver) if asked.driver else parse_cuda(asked.cuda) if asked.cuda else None
        return Device(parse_sm(asked.sm or ""), cuda)
    except UnknownDevice as error:
        raise UsageError(str(error)) from error


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _told(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
