"""Pipelines in Python: `from odradek.spark import json, pipeline, sink, source, transform`.

    p = pipeline("orders", bootstrap="localhost:9092")
    p.source("raw", topic="orders", value=json("id bigint, user string"))

    @p.transform(inputs=["raw"])
    def clean(raw):
        return raw.where("user is not null")

    p.sink("out", from_="clean", topic="clean-orders")

Names of arguments are the keys of the YAML file, with `from_` for `from`. This module only records
the calls and their places; the recorded keys are then parsed and checked like those of a file.
`source`, `transform` and `sink` called without a pipeline belong to the pipeline whose file
includes the caller's.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import odradek.spark.pipeline  # noqa: F401 - made callable below

__all__ = [
    "Declared",
    "PipelineDeclaration",
    "avro",
    "collecting",
    "json",
    "pipeline",
    "raw",
    "sink",
    "source",
    "string",
    "transform",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
# Keys that define a transform without a function; with one of them, no function is decorated.
_STEPS = ("sql", "sql_file", "python", "dedup")


@dataclass(frozen=True, slots=True)
class Declared:
    """A source, transform, sink or test as it was written; `kind` is the file's key for it."""

    kind: str
    name: str
    keys: Mapping[str, Any]
    file: str
    line: int


@dataclass(slots=True, eq=False)
class PipelineDeclaration:
    """A pipeline as it was written."""

    name: str
    keys: Mapping[str, Any]
    file: str
    line: int
    parts: list[Declared] = field(default_factory=list)

    def source(self, name: str, **keys: Any) -> None:
        """Adds a source; arguments are the keys of `sources.<name>`."""
        self.parts.append(_declared("sources", name, keys))

    def sink(self, name: str, **keys: Any) -> None:
        """Adds a sink; arguments are the keys of `sinks.<name>`, `from` being `from_`."""
        self.parts.append(_declared("sinks", name, keys))

    def test(self, name: str, **keys: Any) -> None:
        """Adds a test; arguments are the keys of `tests[]`."""
        self.parts.append(_declared("tests", name, keys))

    def transform(self, name: Any = None, **keys: Any) -> Any:
        """Adds a transform: decorates a function of DataFrames, or takes `sql`, `dedup`, ..."""
        return _transform(self.parts.append, name, keys)


# One list per file being read; a declaration without a pipeline is added to the last one.
_COLLECTIONS: list[list[Declared]] = []


@contextlib.contextmanager
def collecting() -> Iterator[list[Declared]]:
    """Collects the declarations that are made without a pipeline in the block."""
    found: list[Declared] = []
    _COLLECTIONS.append(found)
    try:
        yield found
    finally:
        _COLLECTIONS.remove(found)


def source(name: str, **keys: Any) -> None:
    """Adds a source to the pipeline whose file includes this one."""
    _collect(_declared("sources", name, keys))


def sink(name: str, **keys: Any) -> None:
    """Adds a sink to the pipeline whose file includes this one."""
    _collect(_declared("sinks", name, keys))


def transform(name: Any = None, **keys: Any) -> Any:
    """Adds a transform to the pipeline whose file includes this one, as a decorator or not."""
    return _transform(_collect, name, keys)


def json(schema: str | None = None, **keys: Any) -> dict[str, Any]:
    """The codec `json`: `schema` in DDL, or `json_schema`; in a sink `columns`."""
    return _codec("json", schema, keys)


def avro(schema: str | None = None, **keys: Any) -> dict[str, Any]:
    """The codec `avro`: `schema` is the path of an .avsc; else the registry's `subject`."""
    return _codec("avro", schema, keys)


def string(**keys: Any) -> dict[str, Any]:
    """The codec `string`."""
    return _codec("string", None, keys)


def raw(**keys: Any) -> dict[str, Any]:
    """The codec `raw`."""
    return _codec("raw", None, keys)


def _codec(form: str, schema: str | None, keys: dict[str, Any]) -> dict[str, Any]:
    found = {"format": form, **keys}
    if schema is not None:
        found["schema"] = schema
    return found


def _declare_pipeline(name: str, **keys: Any) -> PipelineDeclaration:
    """A pipeline; arguments are the top-level keys of the file."""
    file, line = _caller()
    return PipelineDeclaration(name, keys, file, line)


def _transform(add: Callable[[Declared], None], name: Any, keys: dict[str, Any]) -> Any:
    file, line = _caller()
    if any(step in keys for step in _STEPS):
        add(Declared("transforms", str(name), keys, file, line))
        return None

    def decorate(function: _Function) -> _Function:
        own_name = name if isinstance(name, str) else function.__name__
        add(Declared("transforms", own_name, {"python": function, **keys}, file, line))
        return function

    return decorate(cast("Callable[..., Any]", name)) if callable(name) else decorate


def _declared(kind: str, name: str, keys: dict[str, Any]) -> Declared:
    file, line = _caller()
    return Declared(kind, name, keys, file, line)


def _collect(declared: Declared) -> None:
    if _COLLECTIONS:
        _COLLECTIONS[-1].append(declared)


def _caller() -> tuple[str, int]:
    """The file and the line of the call into this module."""
    import inspect  # Here, because executors import this package and never need it.

    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("<python>", 1)


class _CallablePackage(ModuleType):
    """`odradek.spark.pipeline` is a package and, by the same name, declares a pipeline."""

    def __call__(self, name: str, **keys: Any) -> PipelineDeclaration:
        return _declare_pipeline(name, **keys)


if TYPE_CHECKING:
    pipeline = _declare_pipeline
else:
    # An import of any module of the package binds the package to its name in `odradek.spark`
    # again, whatever else is bound there: so the package itself has to be callable.
    pipeline = sys.modules["odradek.spark.pipeline"]
    pipeline.__class__ = _CallablePackage
