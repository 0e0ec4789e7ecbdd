# ruff: noqa: INP001 - a program of the lab's hosts, not a module of cudaup
"""Stands in for nvidia-smi on a lab host: answers queries from what was recorded, and fails like it on the rest."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

RECORDED = Path(__file__).resolve().parents[2] / "etc/cudaup-simulated/nvidia-smi"
BAD_ARGUMENT = 2  # nvidia-smi(1), return value: a supplied argument or flag is invalid
QUERIES = {"--query-gpu": "query-gpu.csv", "--query-compute-apps": "compute-apps.csv"}


class BadArgumentError(Exception):
    pass


def answer(arguments: list[str]) -> str:
    options = dict(argument.partition("=")[::2] for argument in arguments)
    queries = [option for option in options if option in QUERIES]
    formats = options.get("--format", "").split(",")
    if len(queries) != 1 or set(options) - set(queries) - {"--format"} or "csv" not in formats:
        raise BadArgumentError("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
    rows, units = table(QUERIES[queries[0]])
    return select(rows, units, options[queries[0]].split(","), formats)


def table(file: str) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Rows by field name, and the units of the fields that have one: of the header, or of the first row."""
    header, *lines = csv.reader((RECORDED / file).read_text().splitlines(), skipinitialspace=True)
    names = [name.removeprefix("# ").partition(" [")[0] for name in header]
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    units = {name: "MiB" for name, title in zip(names, header, strict=True) if title.endswith("[MiB]")}
    first = rows[0] if rows else {}
    return rows, {**dict.fromkeys(names, ""), **units, **{n: "MiB" for n, v in first.items() if v.endswith(" MiB")}}


def select(rows: list[dict[str, str]], units: dict[str, str], fields: list[str], formats: list[str]) -> str:
    for field in fields:
        if field not in units:
            raise BadArgumentError(f'Field "{field}" is not a valid field to query.')
    titles = [f"{field} [{units[field]}]" if units[field] else field for field in fields]
    lines = [] if "noheader" in formats else [", ".join(titles)]
    for row in rows:
        values = [row[field].removesuffix(" MiB") if "nounits" in formats else row[field] for field in fields]
        lines.append(", ".join(values))
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    try:
        sys.stdout.write(answer(sys.argv[1:]))
    except BadArgumentError as error:
        sys.stdout.write(f"{error}\n\n")
        sys.exit(BAD_ARGUMENT)
