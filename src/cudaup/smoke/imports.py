"""Whether each package of the stack imports, by itself, from this generation and from nowhere else.

Run by the generation's own Python. Each import has a fresh process: one that only works after another is caught.
"""

import os
import sys
from pathlib import Path
from typing import Dict, List, Tuple

from cudaup.smoke.verdict import ERROR, FAIL, PASS, Json, Verdict, answer, context, last_lines, tool

# A namespace package has no file, only the places that make it up.
_PROBE = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
print("\\n" + (getattr(module, "__file__", None) or list(module.__path__)[0]))
"""


def judge(names: List[str], venv: Path, empty: Path) -> Verdict:
    origins: Dict[str, str] = {}
    troubles: List[Tuple[str, str]] = []
    for name in names:
        verdict, text = _import(name, venv, empty)
        if verdict == PASS:
            origins[name] = text
        else:
            troubles.append((verdict, f"{name}: {text}"))
    evidence: Json = {"imported": origins, "python": sys.version.split()[0]}
    if troubles:
        worst = ERROR if any(verdict == ERROR for verdict, _ in troubles) else FAIL
        return Verdict(worst, "; ".join(text for _, text in troubles), evidence)
    return Verdict(PASS, f"{len(origins)} imported, each in a process of its own", evidence)


def _import(name: str, venv: Path, empty: Path) -> Tuple[str, str]:
    """A verdict, and where the module came from or what went wrong. `empty` is where nothing can be imported from."""
    ran = tool([sys.executable, "-c", _PROBE, name], cwd=str(empty))
    if ran.returncode < 0:
        return ERROR, f"killed by signal {-ran.returncode}"
    if ran.returncode:
        return FAIL, last_lines(ran, 1)
    origin = ran.stdout.splitlines()[-1]
    if venv not in Path(os.path.realpath(origin)).parents:
        return FAIL, f"came from `{origin}`, not from `{venv}`"
    return PASS, origin


def main() -> None:
    asked = context()
    empty = Path(asked["work"], "empty")
    empty.mkdir()
    answer(judge(asked["imports"], Path(asked["venv"]), empty))


if __name__ == "__main__":
    main()
