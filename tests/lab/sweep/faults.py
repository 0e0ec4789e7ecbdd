"""What can happen to a host or its operator, in the words of a sweep."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """Those that are not the lab's own kill one side."""

    KILL_CONTROLLER = "kill-controller"
    KILL_PROGRAM = "kill-program"
    CUT = "cut"
    CUT_IN = "cut-in"
    CUT_OUT = "cut-out"
    REBOOT = "reboot"
    POWER_LOSS = "power-loss"
    DISK_FULL = "disk-full"
    INODES_FULL = "inodes-full"
    READONLY = "readonly"
    KILL_SSHD = "kill-sshd"

    @property
    def undo(self) -> str | None:
        return _UNDO.get(self)

    @property
    def is_of_network(self) -> bool:
        return self in {Fault.CUT, Fault.CUT_IN, Fault.CUT_OUT}

    @property
    def is_a_boot(self) -> bool:
        return self in {Fault.REBOOT, Fault.POWER_LOSS}


_UNDO = {
    Fault.CUT: "restore",
    Fault.CUT_IN: "restore",
    Fault.CUT_OUT: "restore",
    Fault.DISK_FULL: "disk-ok",
    Fault.INODES_FULL: "inodes-ok",
    Fault.READONLY: "restore",
}
EVERY = tuple(fault for fault in Fault if fault is not Fault.KILL_SSHD)
WITHOUT_OPERATOR = tuple(fault for fault in EVERY if fault is not Fault.KILL_CONTROLLER and not fault.is_of_network)
