"""The host program's command line: what each verb takes, and the one place where its outcome becomes an answer."""

import argparse
import errno
import io
import json
import math
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, List, NamedTuple, NoReturn, Optional

from cudaup.host.layout import DEFAULT_ROOT, Layout
from cudaup.host.protocol import (
    EXIT_BROKEN,
    EXIT_FAILED,
    EXIT_REFUSED,
    EXIT_RESULT,
    Channel,
    Context,
    CutShort,
    Failed,
    Json,
    Refused,
)

_BAD_DISK = (
    "unsupported",
    "`dmesg` says why the disk cannot be written; once it can (remount, reboot), the same again",
)
_FULL_DISK = ("no-space", "free some, for instance with `cudaup-host gc`; then the same again")
_DISK_TROUBLE = {
    errno.ENOSPC: _FULL_DISK,
    errno.EDQUOT: _FULL_DISK,
    errno.EROFS: _BAD_DISK,
    errno.EIO: _BAD_DISK,
}


class Verb(NamedTuple):
    """`function` is `module.function` under cudaup.host; an option that ends in `!` must be given."""

    function: str
    options: List[str]


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def _object(text: str) -> Json:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)  # noqa: TRY004 - argparse tells a ValueError as a bad value
    return value


def _name(text: str) -> str:
    """Not empty, as an unset variable of a shell is."""
    if not text.strip():
        raise ValueError(text)
    return text


_JSON: Dict[str, Any] = {"type": _object, "metavar": "JSON"}
OPTIONS: Dict[str, Dict[str, Any]] = {
    "--root": {"metavar": "DIR", "type": lambda text: Path(text).absolute()},
    "--dry-run": {"action": "store_true", "help": "say what would be done"},
    "--epoch": {"type": int, "help": "of the lease; without it the lease is taken while the verb works"},
    "--env": {"type": Path},
    "--holder": {},
    "--run": {},
    "--reason": {},
    "--ttl": {"type": _seconds, "metavar": "SECONDS"},
    "--ceiling": {"type": _seconds, "metavar": "SECONDS"},
    "--take-over": {"action": "store_true", "help": "of an expired lease, also in the middle of its switch"},
    "--sha256": {},
    "--name": {},
    "--size": {"type": int},
    "--spec-bytes": {"type": int},
    "--suite": {**_JSON, "default": {}},
    "--health": {**_JSON, "default": {}},
    "--hooks": {**_JSON, "default": {}},
    "--full": {"action": "store_true", "help": "read every file again"},
    "--boot": {"action": "store_true", "help": "called while the host boots, before its services"},
    "--to": {"metavar": "GEN", "type": _name},
    "--sm": {"metavar": "SM", "help": "GPU architecture such as 120"},
    "--cuda": {"metavar": "VERSION", "help": "what the driver supports: newer PTX does not count"},
    "path": {"metavar": "PATH"},
    "generation": {"metavar": "GEN"},
    "[generation]": {"metavar": "GEN", "nargs": "?"},
}
VERBS: Dict[str, Verb] = {
    "facts": Verb("facts.collect", ["--env"]),
    "status": Verb("status.of", []),
    "lease show": Verb("lease.show", []),
    "lease take": Verb("lease.take", ["--holder!", "--run!", "--reason!", "--ttl!", "--take-over"]),
    "lease renew": Verb("lease.renew", ["--epoch!"]),
    "lease release": Verb("lease.release", ["--epoch!"]),
    "lease clear": Verb("lease.clear", []),
    "blob missing": Verb("blobs.missing", []),
    "blob put": Verb("blobs.put", ["--epoch", "--sha256!", "--name!", "--size!"]),
    "host install": Verb("install.install", ["--epoch"]),
    "adopt": Verb("adopt.adopt", ["path", "--epoch"]),
    "stage": Verb("stage.stage", ["--epoch", "--spec-bytes!"]),
    "audit": Verb("audit.audit", ["[generation]", "--sm!", "--cuda"]),
    "verify": Verb("manifest.verify", ["[generation]", "--full"]),
    "smoke": Verb("proof.smoke_by_name", ["[generation]", "--suite"]),
    "activate": Verb(
        "activate.activate", ["generation", "--epoch", "--ttl!", "--ceiling!", "--suite!", "--health", "--hooks"]
    ),
    "confirm": Verb("confirm.confirm", ["--epoch"]),
    "rollback": Verb("rollback.rollback", ["--epoch", "--to"]),
    "deadman": Verb("deadman.run", []),
    "recover": Verb("recover.recover", ["--boot"]),
    "forget": Verb("forget.forget", ["--epoch"]),
    "gc": Verb("gc.gc", ["--epoch"]),
}


class _Parser(argparse.ArgumentParser):
    """Answers in the program's own way instead of exiting."""

    def error(self, message: str) -> NoReturn:
        raise Refused("usage", f"{self.prog}: {message}", self.format_usage().strip())


def main(argv: Optional[List[str]] = None) -> int:
    """By hand, or from a unit."""
    stdin: BinaryIO = sys.stdin.buffer if sys.stdin is not None else io.BytesIO()
    return _answer(Channel(), sys.argv[1:] if argv is None else argv, str(DEFAULT_ROOT), stdin)


def serve(token: str, request: bytes, stdin: BinaryIO) -> int:
    """Streamed by the controller: `request` is JSON, `stdin` is what the verb reads."""
    wanted = json.loads(request.decode())
    return _answer(Channel(token), wanted["argv"], wanted.get("root") or str(DEFAULT_ROOT), stdin)


def _answer(channel: Channel, argv: List[str], root: str, stdin: BinaryIO) -> int:
    os.umask(0o022)  # whatever the caller's: nobody else may write to what we make, and services may read it
    try:
        options = vars(_parser(root).parse_args(argv))
        verb, root = options.pop("verb_function"), options.pop("root")
        ctx = Context(
            root=Path(root),
            channel=channel,
            stdin=stdin,
            epoch=options.pop("epoch", None),
            dry_run=options.pop("dry_run"),
            options=options,
        )
        channel.send({"kind": "result", "data": verb(ctx)})
    except Refused as refusal:
        channel.send({"kind": "refused", "code": refusal.code, "text": refusal.text, "fix": refusal.fix})
        return EXIT_REFUSED
    except Failed as failure:
        channel.send({"kind": "failed", "code": failure.code, "text": failure.text, "data": failure.data})
        return EXIT_FAILED
    except OSError as error:
        return _no_bug(channel, error, argv, Layout(Path(root)))
    except Exception:  # noqa: BLE001 - the top level: a bug becomes an answer too
        channel.send({"kind": "broken", "text": traceback.format_exc()})
        return EXIT_BROKEN
    return EXIT_RESULT


def _no_bug(channel: Channel, error: OSError, argv: List[str], layout: Layout) -> int:
    """A full or read-only disk, or no right to write: the host's state, told in one line."""
    answer: Json
    trouble = f"{error.strerror}: `{error.filename}`" if error.filename else str(error.strerror)
    if error.errno in {errno.EACCES, errno.EPERM} and os.geteuid() != 0:
        text = f"this needs root, and runs as user id {os.geteuid()}: {error}"
        answer = {
            "kind": "refused",
            "code": "unsupported",
            "text": text,
            "fix": "log in as root, or become root (sudo)",
        }
    elif error.errno not in _DISK_TROUBLE:
        channel.send({"kind": "broken", "text": traceback.format_exc()})
        return EXIT_BROKEN
    elif layout.transit.exists():
        text = f"`{argv[0]}` cannot go on: {trouble}; the host is in transit, and its timer goes on trying"
        answer = {"kind": "failed", "code": "disk", "text": text, "data": {"state": "in-transit"}}
    elif isinstance(error, CutShort):
        text = f"`{argv[0]}` was cut short: {trouble}"
        answer = {"kind": "failed", "code": "disk", "text": text, "data": {"state": "cut-short"}}
    else:
        code, fix = _DISK_TROUBLE[error.errno]
        text = f"`{argv[0]}` was not begun: {trouble}; nothing was stopped or changed{_where(layout)}"
        answer = {"kind": "refused", "code": code, "text": text, "fix": fix}
    channel.send(answer)
    return EXIT_FAILED if answer["kind"] == "failed" else EXIT_REFUSED


def _where(layout: Layout) -> str:
    current = import_module("cudaup.host.generations").current_id(layout)
    return f", the host stays on {current}" if current else ""


def _parser(root: str) -> _Parser:
    description = f"cudaup on one host. Verbs: {', '.join(VERBS)}."
    parser = _Parser(prog="cudaup-host", description=description)
    levels = {"": parser.add_subparsers(metavar="VERB", required=True)}
    for words, verb in VERBS.items():
        group, _, name = words.rpartition(" ")
        if group not in levels:
            levels[group] = levels[""].add_parser(group).add_subparsers(metavar="VERB", required=True)
        added: argparse.ArgumentParser = levels[group].add_parser(name)
        for option in ["--root", "--dry-run", *verb.options]:
            added.add_argument(option.strip("[]!"), **_settings(option, root))
        added.set_defaults(verb_function=_importer(verb.function))
    return parser


def _settings(option: str, root: str) -> Dict[str, Any]:
    settings = dict(OPTIONS[option.rstrip("!")])
    if option == "--root":
        settings["default"] = root
    if option.endswith("!"):
        settings["required"] = True
    return settings


def _importer(name: str) -> Callable[[Context], Json]:
    """`module.function`, imported when it is called: one verb does not pay for all."""
    module, function = name.split(".")

    def call(ctx: Context) -> Json:
        answer: Json = getattr(import_module(f"cudaup.host.{module}"), function)(ctx)
        return answer

    return call


if __name__ == "__main__":
    sys.exit(main())
