"""A generation's `env` file: what services get through systemd's EnvironmentFile=, and smoke cases through us."""

import re
from typing import Dict, Mapping

_ESCAPED = re.compile(r'(["\\`$])')  # what systemd.exec(5) unescapes within double quotes
_LINE = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:\\.|[^"\\])*)"\Z')


def render(env: Mapping[str, str]) -> str:
    """One sorted `KEY="value"` a line. Values have no line breaks (the spec is checked for that)."""
    lines = ['{}="{}"'.format(key, _ESCAPED.sub(r"\\\1", env[key])) for key in sorted(env)]
    return "".join(line + "\n" for line in lines)


def parse(text: str) -> Dict[str, str]:
    """What `render` wrote."""
    matches = (_LINE.match(line) for line in text.splitlines())
    return {found.group(1): re.sub(r"\\(.)", r"\1", found.group(2)) for found in matches if found}
