"""Package indexes on loopback, as PyTorch's and SGLang's are laid out: a page a project, files beside it, no sizes."""

from __future__ import annotations

import base64
import hashlib
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Indexes:
    """Each index is a folder of the server's; `files` are the lines of each page, in the order of the uploads."""

    folder: Path
    url: str
    lines: dict[Path, list[str]] = field(default_factory=dict)

    def address(self, index: str) -> str:
        return f"{self.url}/{index}"

    def put(
        self,
        index: str,
        name: str,
        version: str,
        *,
        tag: str = "py3-none-any",
        requires: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
    ) -> Path:
        """A wheel that uv and pip install; `files` besides an empty package."""
        project = self.folder / index / name
        project.mkdir(parents=True, exist_ok=True)
        module = name.replace("-", "_")
        path = project / f"{module}-{version}-{tag}.whl"
        contents = {f"{module}/__init__.py": b"", **(files or {})}
        _write(path, module, version, tag, requires, contents)
        self.list(path, hashlib.sha256(path.read_bytes()).hexdigest())
        return path

    def list(self, path: Path, sha256: str) -> None:
        """A line on the project's page; a project that has none yet gets its page."""
        page = self.lines.setdefault(path.parent, [])
        page.append(f'<a href="{path.name.replace("+", "%2B")}#sha256={sha256}">{path.name}</a><br>')
        (path.parent / "index.html").write_text("<!DOCTYPE html><html><body>" + "\n".join(page) + "</body></html>")


def _write(
    path: Path, module: str, version: str, tag: str, requires: Sequence[str], contents: Mapping[str, bytes]
) -> None:
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    members = {
        **contents,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    rows = "".join(f"{name},sha256={_record(content)},{len(content)}\n" for name, content in members.items())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, f"{info}/RECORD": f"{rows}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def _record(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Nothing on standard error."""


@contextmanager
def serving_indexes(folder: Path) -> Iterator[Indexes]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Indexes(folder, f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
