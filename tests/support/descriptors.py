"""Which files a test has open, whatever else its process opens and closes meanwhile.

The number of all descriptors tells nothing: what other tests have left to the garbage collector may
be closed at any moment.
"""

import contextlib
import os
from pathlib import Path

__all__ = ["copies_of", "open_below"]

_DESCRIPTORS = Path("/proc/self/fd")


def open_below(directory: Path) -> list[str]:
    """Paths in a directory, its own included, that are open here; once for each descriptor."""
    found = []
    for entry in _DESCRIPTORS.iterdir():
        with contextlib.suppress(FileNotFoundError):  # Closed since, by whoever owned it.
            target = str(entry.readlink())
            if f"{target}/".startswith(f"{directory}/"):
                found.append(target)
    return sorted(found)


def copies_of(fd: int) -> int:
    """How many descriptors of the same file this process has, itself included."""
    wanted, count = os.fstat(fd), 0
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # Closed since, by whoever owned it.
            count += os.path.samestat(os.fstat(int(name)), wanted)
    return count
