"""Finds the Python functions that a pipeline names, beside its file or among the installed modules.

A worker of Spark has neither the pipeline's folder nor what was imported from there. So whatever
comes from that folder travels by value: functions are pickled with their code, not by name.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import cloudpickle

from odradek.spark.pipeline.engine.problems import PipelineError

__all__ = ["find_function"]


def find_function(reference: str, folder: str) -> Callable[..., Any]:
    """The function `module:function`.

    Args:
        reference: the name of a module, a colon and a name in it.
        folder: of the pipeline's file; modules there come first.

    Raises:
        PipelineError: there is none.
    """
    module_name, _, name = reference.partition(":")
    folder = os.path.abspath(folder)
    before = set(sys.modules)
    with _first_on_path(folder):
        _forget_others(module_name, folder)
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise PipelineError(
                f"the module of {reference!r} cannot be imported from {folder}:"
                f" {type(error).__name__}: {error}"
            ) from error
    for loaded in {*sys.modules} - before | {module_name}:
        if _is_from(loaded, folder):
            cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call]  # Not typed there.
                sys.modules[loaded]
            )
    found = getattr(module, name, None)
    if not callable(found):
        raise PipelineError(
            f"expected a function for {reference!r}, {module.__file__} has"
            f" {'nothing of that name' if found is None else type(found).__name__}"
        )
    call: Callable[..., Any] = found
    return call


@contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)


def _forget_others(module_name: str, folder: str) -> None:
    """A module of the same name that another pipeline's folder gave must not serve this one."""
    file = os.path.join(folder, *module_name.split(".")) + ".py"
    if module_name in sys.modules and os.path.isfile(file) and not _is_from(module_name, folder):
        del sys.modules[module_name]


def _is_from(module_name: str, folder: str) -> bool:
    """Whether it lies below the folder; an environment that lies there, too, is not meant."""
    file: str | None = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None or "site-packages" in file:
        return False
    return os.path.abspath(file).startswith(folder + os.sep)
