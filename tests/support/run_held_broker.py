"""`odradek` whose broker waits in its start: called as ``run_held_broker serve …``.

It prints a line before it reads the first checkpoint of its logs, and goes on when there is a line
for it on standard input.
"""

import sys

from odradek.cli.main import main
from odradek.files import Disk

__all__ = ["HELD"]

HELD = "the start is held\n"

_open = Disk.open


def _held_open(self: Disk, path: str, flags: int, mode: int = 0o644) -> int:
    if path.endswith("recovery-point-offset-checkpoint"):
        Disk.open = _open  # type: ignore[method-assign]  # once is enough
        print(HELD, end="", flush=True)
        sys.stdin.readline()
    return _open(self, path, flags, mode)


if __name__ == "__main__":
    Disk.open = _held_open  # type: ignore[method-assign]  # serve takes no other disk
    sys.exit(main())
