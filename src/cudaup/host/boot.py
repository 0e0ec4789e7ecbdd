"""How the controller starts the host program: one line for `python3 -c`, which reads everything else from stdin."""

from typing import List

_SOURCE = """\
import os, sys, tempfile
token, stdin = sys.argv[1], sys.stdin.buffer
for line in iter(stdin.readline, b""):
    if line.strip() == token.encode():
        break
else:
    sys.exit("cudaup: the input ended before the token")
size, length = map(int, stdin.readline().split())
archive, request = stdin.read(size), stdin.read(length)
if len(archive) + len(request) != size + length:
    sys.exit("cudaup: the input ended early")
try:
    memory = os.fdopen(os.memfd_create("cudaup-host"), "w+b")
except (AttributeError, OSError):  # an old kernel, or one that forbids it: a file without a name
    memory = tempfile.TemporaryFile()
memory.write(archive)
memory.flush()
sys.path.insert(0, "/proc/self/fd/%d" % memory.fileno())
from cudaup.host.__main__ import serve
sys.exit(serve(token, request, stdin))
"""

# One line, as login shells differ in how they treat a line break within quotes.
BOOT = f"exec({_SOURCE!r})"


def argv(python: str, token: str) -> List[str]:
    """Isolated: as root, nothing may be imported from where the login happens to begin, or by its environment."""
    return [python, "-I", "-c", BOOT, token]
