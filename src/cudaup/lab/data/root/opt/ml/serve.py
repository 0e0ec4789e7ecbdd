# ruff: noqa: INP001 - a program of the lab's hosts, not a module of cudaup
"""Answers over HTTP with what it really runs on: interpreter, packages as imported, their files."""

import importlib
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 8000
# msgpack brings a compiled extension, so this process holds a file of its environment mapped, as a real server would.
MODULES = {name: importlib.import_module(name) for name in ("msgpack", "packaging")}


def answer() -> dict[str, Any]:
    return {
        "ok": True,
        "pid": os.getpid(),
        "prefix": sys.prefix,
        "executable": sys.executable,
        "versions": {name: module.__version__ for name, module in MODULES.items()},
        "files": {name: module.__file__ for name, module in MODULES.items()},
        "cuda_home": os.environ.get("CUDA_HOME"),
    }


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(answer()).encode() if self.path in {"/", "/health"} else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Requests are not logged: health is polled."""


if __name__ == "__main__":
    ThreadingHTTPServer(("0.0.0.0", PORT), Handler).serve_forever()  # noqa: S104 - the host's network ends in the lab
