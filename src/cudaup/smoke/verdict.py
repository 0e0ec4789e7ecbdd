"""How a smoke case is asked and answers: a JSON file in, one JSON line on standard output, last.

Only `pass` is a pass. `waived` is for what cannot apply here and names what was probed; `noop` for code that returned
success and did nothing; `substituted` for right values from other code than asked for; `error` for missing evidence.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, NamedTuple, Sequence

PASS, FAIL, NOOP, SUBSTITUTED, WAIVED, ERROR = "pass", "fail", "noop", "substituted", "waived", "error"
VERDICTS = (PASS, FAIL, NOOP, SUBSTITUTED, WAIVED, ERROR)

Json = Dict[str, Any]


class Verdict(NamedTuple):
    verdict: str
    reason: str
    evidence: Json


def context() -> Json:
    """What the runner tells: the generation's paths, the suite's settings, the GPUs that were found."""
    found: Json = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return found


def answer(verdict: Verdict) -> None:
    print(json.dumps(verdict._asdict()), flush=True)


def tool(argv: Sequence[str], **settings: Any) -> "subprocess.CompletedProcess[str]":
    """No limit of its own: the runner ends the whole case, tools included."""
    return subprocess.run(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        check=False,
        **settings,
    )


def last_lines(ran: "subprocess.CompletedProcess[str]", count: int = 3) -> str:
    return " | ".join((ran.stderr.strip() or ran.stdout.strip()).splitlines()[-count:])
