"""Seeds, each in a process of its own: what a killed broker held is never cleaned up."""

import contextlib
import gc
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable

from tests.simulation.simulation import Outcome, run

__all__ = ["run_forked", "show"]

_MEMORY = "/dev/shm"


def run_forked(seed: int, plant: Callable[[], None] | None = None) -> Outcome:
    """Runs a seed in a child; `plant` is called there first."""
    parent = _MEMORY if os.path.isdir(_MEMORY) else None
    root = tempfile.mkdtemp(prefix="odradek-sim-", dir=parent)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        gc.disable()
        try:
            # Nothing of it reaches a terminal: brokers that are killed complain a lot.
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            if plant is not None:
                plant()
            outcome = run(seed, root)
        except BaseException:
            why = traceback.format_exc()
            outcome = Outcome(seed, f"the simulation itself failed: {why}", [], "", 0, 0, 0)
        with os.fdopen(writer, "w") as pipe:
            json.dump(outcome, pipe)
        os._exit(0)
    os.close(writer)
    try:
        with os.fdopen(reader) as pipe:
            text = pipe.read()
    finally:
        os.waitpid(child, 0)
        shutil.rmtree(root, ignore_errors=True)
    if not text:
        return Outcome(seed, "the simulation's process died", [], "", 0, 0, 0)
    return Outcome(*json.loads(text))


def show(outcome: Outcome, lines: int = 40) -> str:
    """The end of a trace, and how to see it again."""
    skipped = max(len(outcome.trace) - lines, 0)
    head = [f"seed {outcome.seed}: {outcome.violation or 'clean'}"]
    if skipped:
        head.append(f"  … {skipped} lines before")
    again = f"again: {sys.executable} -m tests.simulation --seed {outcome.seed}"
    return "\n".join((*head, *(f"  {line}" for line in outcome.trace[-lines:]), again))
