"""The host's clocks: wall time for people, CLOCK_MONOTONIC and the boot id for every deadline."""

import os
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Clock:
    """What time it is. Tests hand in their own."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boot_id(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def booted(self) -> float:
        """The monotonic second in which this boot began: when PID 1 started, which is also right in a container."""
        # Field 22 of stat(5), counted behind the command name, which may hold spaces and parentheses.
        fields = Path("/proc/1/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[19]) / _TICKS_PER_S

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = Clock()
