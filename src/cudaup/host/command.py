"""Runs one outside command to its end or its limit, whichever comes first. It never hangs and never floods memory."""

import os
import selectors
import signal
import subprocess
import time
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence

_TAIL_BYTES = 64 * 1024  # kept of each stream: its end, where errors stand
_POLL_S = 0.2
_KILL_GRACE_S = 1.0
# ssh gives commands a short PATH; modinfo and friends live in sbin.
SEARCH_PATH = os.pathsep.join(
    [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
)

Process = subprocess.Popen  # only ever of bytes: we read the pipes ourselves


class Ran(NamedTuple):
    """How a command ended. `code` is negative for a signal, None when it was killed here: `stopped` says why."""

    code: Optional[int]
    out: str
    err: str
    seconds: float
    stopped: str = ""

    @property
    def is_ok(self) -> bool:
        return self.code == 0

    def last_lines(self, count: int = 5) -> str:
        """What it said last, for people: of standard error, or of standard output when that is empty."""
        return "\n".join((self.err.strip() or self.out.strip()).splitlines()[-count:])

    def why(self) -> str:
        """How it failed, in words."""
        if self.stopped:
            return self.stopped
        if self.code is not None and self.code < 0:
            return f"killed by signal {-self.code}"
        return f"exit code {self.code}"


def kill_group(process: "Process[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run(
    argv: Sequence[str],
    limit_s: float,
    env: Optional[Mapping[str, str]] = None,
    cwd: str = "/",
    should_stop: Callable[[], bool] = lambda: False,
    kill: Callable[["Process[bytes]"], None] = kill_group,
) -> Ran:
    """Raises OSError when the program cannot be started, FileNotFoundError when it is not there."""
    began = time.monotonic()
    output = _Output()
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output.write_ends[0],
            stderr=output.write_ends[1],
            env=dict(env) if env is not None else {**os.environ, "PATH": SEARCH_PATH, "LC_ALL": "C"},
            cwd=cwd,
            start_new_session=True,
        )
        output.close_write_ends()
        try:
            stopped = _follow(process, output, limit_s, should_stop)
        except BaseException:  # Ctrl-C: nobody would ever end it
            kill(process)
            raise
        if stopped:
            kill(process)
        code = _reap(process)
        output.read(0)
        out, err = output.texts()
    finally:
        output.close()
    return Ran(None if stopped else code, out, err, time.monotonic() - began, stopped)


def query(argv: Sequence[str], limit_s: float, problems: List[str]) -> Optional[str]:
    """The standard output of a tool that reports facts; what is wrong with the tool goes to `problems`."""
    try:
        ran = run(argv, limit_s)
    except OSError as error:
        problems.append(f"{argv[0]}: {'not found' if isinstance(error, FileNotFoundError) else error}")
        return None
    if not ran.is_ok:
        said = ran.last_lines(1)
        problems.append(f"{argv[0]}: {ran.why()}{': ' + said if said else ''}")
        return None
    return ran.out


def _follow(process: "Process[bytes]", output: "_Output", limit_s: float, should_stop: Callable[[], bool]) -> str:
    """Read until the command itself ended (its children may hold the pipes longer). Returns why it must be killed."""
    deadline = time.monotonic() + limit_s
    while process.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return f"no end after {limit_s:g} s"
        if should_stop():
            return "stopped on request"
        if output.is_open:
            output.read(min(_POLL_S, left))
        else:
            _wait(process, min(_POLL_S, left))
    return ""


def _wait(process: "Process[bytes]", limit_s: float) -> Optional[int]:
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None


def _reap(process: "Process[bytes]") -> Optional[int]:
    """None when even SIGKILL did not end it: a tool stuck in the driver must not take us with it."""
    return _wait(process, _KILL_GRACE_S)


class _Output:
    """Both pipes of a command, read together so that neither can stall it."""

    def __init__(self) -> None:
        pairs = [os.pipe(), os.pipe()]
        self._read_ends = [pair[0] for pair in pairs]
        self.write_ends = [pair[1] for pair in pairs]
        self._kept = {fd: bytearray() for fd in self._read_ends}
        self._selector = selectors.DefaultSelector()
        for fd in self._read_ends:
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ)

    def close(self) -> None:
        self.close_write_ends()
        self._selector.close()
        for fd in self._read_ends:
            os.close(fd)

    def close_write_ends(self) -> None:
        while self.write_ends:
            os.close(self.write_ends.pop())

    @property
    def is_open(self) -> bool:
        return bool(self._selector.get_map())

    def read(self, wait_s: float) -> None:
        """One chunk of each stream that has something, so that a command which never stops talking meets its limit."""
        for key, _events in self._selector.select(wait_s) if self.is_open else []:
            chunk = os.read(key.fd, _TAIL_BYTES)
            if not chunk:
                self._selector.unregister(key.fd)
            self._kept[key.fd] += chunk
            del self._kept[key.fd][:-_TAIL_BYTES]

    def texts(self) -> List[str]:
        return [self._kept[fd].decode("utf-8", "replace") for fd in self._read_ends]
