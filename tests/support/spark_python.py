"""How tests bear that Spark's Python processes start slowly on a busy machine.

Each query on a Python source starts a few of them, and Spark gives up on one that takes ten seconds
to answer; no setting changes that. `quick_python` makes them start in half the time: Spark puts its
zipped sources in front of the path, and Python compiles what it imports from a zip anew in every
process; without the zip they import the same modules as installed, compiled already. `patiently`
tries again what failed for that reason alone.
"""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["is_impatient", "patiently", "quick_python"]

T = TypeVar("T")

_ATTEMPTS = 6
_SCRIPT = r"""#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | sed 's#[^:]*/\(pyspark\|py4j-[^:/]*\)\.zip:*##g')
export PYTHONPATH
exec {python} "$@"
"""


def quick_python(folder: Path, word: str | None = None) -> str:
    """Writes an interpreter into a folder and returns its path, for `PYSPARK_PYTHON`.

    Args:
        folder: Where to.
        word: How the shell names the interpreter behind it; the one that runs if None.
    """
    script = folder / "python"
    script.write_text(_SCRIPT.format(python=word or shlex.quote(sys.executable)))
    script.chmod(0o755)
    return str(script)


def is_impatient(error: Exception) -> bool:
    """Whether Spark did not wait for one of its Python processes."""
    return "Python worker failed to connect back" in str(error)


def patiently(do: Callable[[], T]) -> T:
    """Does it, and again while Spark does not wait for its Python processes."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return do()
        except Exception as error:
            if attempt == _ATTEMPTS or not is_impatient(error):
                raise
    raise AssertionError("every attempt returns or raises")
