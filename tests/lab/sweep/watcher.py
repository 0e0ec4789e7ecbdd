"""The driver's end of the reader that runs inside a host: what it saw, and orders to it."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from cudaup.domain.errors import CudaupError
from cudaup.lab.fleet import Lab

_SOURCE = Path(__file__).with_name("reader.py").read_text()
_ANSWER_S = 30.0
_POLL_S = 0.01


class Watcher:
    """One host's reader. A reboot ends it; the next order, or `revive`, starts another."""

    def __init__(self, lab: Lab, host: str, known: dict[str, dict[str, str]]) -> None:
        self._lab, self._host, self._known = lab, host, known
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: dict[int, dict[str, Any]] = {}
        self.seen: list[dict[str, Any]] = []
        self.reached: dict[str, Any] | None = None
        self.looks = 0

    @property
    def bad(self) -> list[str]:
        return [each["bad"] for each in self.seen if "bad" in each]

    def forget_the_past(self) -> None:
        self.seen.clear()
        self.reached = None

    def revive(self) -> None:
        """Raise CudaupError when the host stays off."""
        end = time.monotonic() + _ANSWER_S
        while not self._is_alive():
            try:
                self._start()
            except CudaupError:  # it is off, or just about to be another pid
                if time.monotonic() > end:
                    raise
            time.sleep(_POLL_S)

    def close(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # an order that nobody will read
            self._process.stdin.close()

    def arm(self, stop: str = "", *, next_boot: bool = False) -> None:
        """Count the journal's writes from now on, and wait at the point `stop`."""
        self.reached = None
        self.ask("arm", stop=stop, next_boot=next_boot)

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Give an order and get the host's state. Raise CudaupError when the host does not answer."""
        end = time.monotonic() + _ANSWER_S
        while time.monotonic() < end:
            self.revive()
            number = next(self._numbers)
            answer = self._asked(number, {"id": number, "do": do, **more})
            if answer is not None:
                self.looks += answer["looks"]
                return answer
        raise CudaupError("the reader does not answer", host=self._host, found=do)

    def _asked(self, number: int, order: dict[str, Any]) -> dict[str, Any] | None:
        """None when the reader ended meanwhile."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return None
        while number not in self._answers:
            if process.poll() is not None:
                return None
            time.sleep(_POLL_S)
        return self._answers.pop(number)

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        self.close()
        command = ["/usr/bin/python3", "-c", _SOURCE, json.dumps(self._known)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            self._lab.host_argv(self._host, command), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                said = json.loads(line)
            except ValueError:  # cut off with its host
                continue
            if "answer" in said:
                self._answers[said["answer"]] = said["data"]
            else:
                self.seen.append(said)
                self.reached = said.get("reached", self.reached)
        process.stdout.close()
