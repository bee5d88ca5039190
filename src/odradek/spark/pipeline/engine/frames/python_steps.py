"""Finds and calls the Python functions that a pipeline names, declares or decorates.

A worker of Spark has neither the pipeline's folder nor the modules in it. So functions of these
modules are pickled by value, with their code, not by name. That applies to modules imported while
the file was read, to those that a function imports when it is called here, and to all forms of a
pipeline. A module that a function imports while it runs in a worker has to be installed there.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from odradek.spark.pipeline.engine.problems import PipelineError

__all__ = ["find_function", "importing_from"]


def find_function(reference: str, folder: str) -> Callable[..., Any]:
    """The function `module:function`.

    Args:
        reference: The name of a module, a colon and a name in it.
        folder: The folder of the pipeline's file; modules there come first.

    Raises:
        PipelineError: It does not exist.
    """
    module_name, _, name = reference.partition(":")
    folder = os.path.abspath(folder)
    with importing_from(folder):
        _forget_others(module_name, folder)
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            raise PipelineError(
                f"the module of {reference!r} cannot be imported from {folder}:"
                f" {type(error).__name__}: {error}"
            ) from error
    found = getattr(module, name, None)
    if not callable(found):
        raise PipelineError(
            f"expected a function for {reference!r}, {module.__file__} has"
            f" {'nothing of that name' if found is None else type(found).__name__}"
        )
    call: Callable[..., Any] = found
    return call


@contextmanager
def importing_from(folder: str) -> Iterator[None]:
    """Lets imports search a pipeline's folder first, and pickles its modules by value."""
    folder = os.path.abspath(folder)
    for name, module in list(sys.modules.items()):
        if _is_from(name, folder):
            _pickle_by_value(module)
    finder = _ByValueFinder(folder)
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, finder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(folder)


class _ByValueFinder(MetaPathFinder):
    """Finds modules as usual; those of a folder are pickled by value from their import on."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        if not _is_place_of(fullname, spec.origin, self._folder):
            return None
        spec.loader = _ByValueLoader(spec.loader.name, spec.loader.path)
        return spec


class _ByValueLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        # A module that is pickled by value is pickled with its loader: workers get the plain one.
        plain = SourceFileLoader(self.name, self.path)
        module.__loader__ = plain
        if module.__spec__ is not None:
            module.__spec__.loader = plain
        _pickle_by_value(module)
        plain.exec_module(module)


def _pickle_by_value(module: ModuleType) -> None:
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # Not typed there.


def _forget_others(module_name: str, folder: str) -> None:
    """Forgets a module of the same name that was imported from another pipeline's folder."""
    file = os.path.join(folder, *module_name.split(".")) + ".py"
    if module_name in sys.modules and os.path.isfile(file) and not _is_from(module_name, folder):
        del sys.modules[module_name]


def _is_from(module_name: str, folder: str) -> bool:
    file: str | None = getattr(sys.modules.get(module_name), "__file__", None)
    return module_name != "__main__" and _is_place_of(module_name, file, folder)


def _is_place_of(module_name: str, file: str | None, folder: str) -> bool:
    """Whether an import that begins in the folder finds the module in this file.

    A virtual environment, or a package under `src`, may also be below the folder: these are not
    included.
    """
    place = os.path.join(folder, *module_name.split("."))
    return file is not None and os.path.abspath(file) in (
        f"{place}.py",
        os.path.join(place, "__init__.py"),
    )
