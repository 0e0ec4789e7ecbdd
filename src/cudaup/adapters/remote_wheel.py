"""A wheel at a URL as a file: range requests where the server has them, a temporary copy where it has not."""

from __future__ import annotations

import http.client
import io
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, cast
from urllib.parse import urlsplit, urlunsplit

from cudaup.adapters.retrying import HTTP_RANGE, InterruptedRead

_TIMEOUT_S = 60
_TAIL_BYTES = 256 << 10  # one request brings the zip's directory, but for very large wheels
_READ_THROUGH = 256 << 10  # a gap that is cheaper to read than to ask over
_UNSATISFIABLE = frozenset({400, 416, 501})


def is_url(target: str) -> bool:
    return urlsplit(target).scheme in {"http", "https"}


def without_secrets(target: str) -> str:
    """User, password and query may be secrets."""
    if not is_url(target):
        return target
    parts = urlsplit(target)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@contextmanager
def open_remote(url: str) -> Iterator[IO[bytes]]:
    """Raise OSError with what the server said, also later from reads."""
    first = HTTP_RANGE.copy()(_tail, url)
    if first is not None:
        with closing(first):
            yield cast("IO[bytes]", first)
        return
    with _get(url) as answer, tempfile.TemporaryFile(prefix="cudaup-wheel-") as copy:
        shutil.copyfileobj(answer, copy, 1 << 20)
        _check_length(answer, copy.tell())
        copy.seek(0)
        yield copy


def _tail(url: str) -> _Ranges | None:
    """The end of the file, where the zip's directory lies. None where the server does not send parts."""
    try:
        answer = _get(url, f"bytes=-{_TAIL_BYTES}")
    except urllib.error.HTTPError as error:
        with error:
            if error.code in _UNSATISFIABLE:
                return None
            raise
    with answer:
        total = _total(answer)
        if total is None:
            return None
        try:
            return _Ranges(url, total, answer.read(), answer.headers.get("ETag"))
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            raise InterruptedRead(f"at the end of the file: {error}") from error


def _get(url: str, wanted: str | None = None, etag: str | None = None) -> http.client.HTTPResponse:
    headers = {"Accept-Encoding": "identity", **({"Range": wanted} if wanted else {})}
    if etag and not etag.startswith("W/"):
        headers["If-Range"] = etag
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - is_url has seen the scheme
    return cast("http.client.HTTPResponse", urllib.request.urlopen(request, timeout=_TIMEOUT_S))  # noqa: S310


def _total(answer: http.client.HTTPResponse) -> int | None:
    """The file's size, when a part of it was sent as asked."""
    size = (answer.headers.get("Content-Range") or "").rpartition("/")[2]
    return int(size) if answer.status == http.client.PARTIAL_CONTENT and size.isdigit() else None


def _check_length(answer: http.client.HTTPResponse, received: int) -> None:
    said = answer.headers.get("Content-Length")
    if said and said.isdigit() and int(said) != received:
        raise OSError(f"the download ended after {received} of {said} bytes")


class _Ranges:
    """What zipfile needs of a file: one answer is read on as long as it goes forwards, a jump is a new request."""

    def __init__(self, url: str, size: int, tail: bytes, etag: str | None) -> None:
        self._url, self._size, self._tail, self._etag = url, size, tail, etag
        self._at = 0
        self._answer: http.client.HTTPResponse | None = None
        self._answer_at = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """All that was asked for, up to the end."""
        wanted = self._size - self._at if size is None or size < 0 else min(size, self._size - self._at)
        parts = []
        while wanted > 0:
            part = HTTP_RANGE.copy()(self._some, wanted)
            parts.append(part)
            self._at += len(part)
            wanted -= len(part)
        return b"".join(parts)

    def _some(self, wanted: int) -> bytes:
        in_tail = self._at - (self._size - len(self._tail))
        if in_tail >= 0:
            return self._tail[in_tail : in_tail + wanted]
        try:
            answer = self._answer_here()
            part = answer.read(min(wanted, self._size - self._at))
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            self.close()
            raise InterruptedRead(f"at byte {self._at}: {error}") from error
        if not part:
            self.close()
            raise InterruptedRead(f"the server ended at byte {self._at} of {self._size}")
        self._answer_at += len(part)
        return part

    def _answer_here(self) -> http.client.HTTPResponse:
        gap = self._at - self._answer_at
        if self._answer is not None and 0 <= gap <= _READ_THROUGH:
            self._answer_at += len(self._answer.read(gap)) if gap else 0
            if self._answer_at == self._at:
                return self._answer
        self.close()
        answer = _get(self._url, f"bytes={self._at}-", self._etag)
        if _total(answer) != self._size:
            answer.close()
            raise OSError("the file changed while it was read")
        self._answer, self._answer_at = answer, self._at
        return answer

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
