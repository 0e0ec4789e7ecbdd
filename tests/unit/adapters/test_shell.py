"""One line for every login shell."""

from __future__ import annotations

import subprocess

import pytest

from cudaup.adapters.shell import Tail, command_line
from cudaup.host.boot import BOOT

_WORDS = ["plain", "it's", "back\\slash", "two\nlines", "bang!", "$HOME", "`id`", ""]


@pytest.mark.parametrize("words", [_WORDS, [BOOT], ["plain words"]])
def test_sh_gets_the_words_and_no_other_shell_has_anything_to_misread(words: list[str]) -> None:
    line = command_line(["printf", "<%s>", *words])
    # csh reads `!` and line ends even between single quotes, fish reads backslashes there.
    assert not set("\\\n!") & set(line)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"<{word}>" for word in words)


def test_a_tail_keeps_the_end() -> None:
    tail = Tail(8)
    tail.add(b"0123456789")
    tail.add(b"ab")
    assert tail.text() == "456789ab"
