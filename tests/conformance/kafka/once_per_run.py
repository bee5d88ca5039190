"""Costly set-up shared by all tests of a run, whichever worker process they land in."""

import fcntl
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

__all__ = ["once_per_run"]

_T = TypeVar("_T")


def once_per_run(
    tmp_path_factory: pytest.TempPathFactory, name: str, build: Callable[[Path], _T]
) -> _T:
    """Calls `build` with a directory of its own, the first time it is asked for in this run.

    Workers of pytest-xdist wait for the first one and get its result, which must pickle.
    """
    root = tmp_path_factory.getbasetemp()
    if root.name.startswith("popen-"):  # A worker's own directory in the one of the run.
        root = root.parent
    result_path = root / f"{name}.pickle"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if result_path.exists():
            result: _T = pickle.loads(result_path.read_bytes())
            return result
        directory = root / name
        shutil.rmtree(directory, ignore_errors=True)  # Another worker's attempt that failed.
        directory.mkdir()
        result = build(directory)
        result_path.write_bytes(pickle.dumps(result))
        return result
