"""A pipeline, or a part of one, in Python: runs the module and builds the tree it declares.

The module is not kept among the imported ones, so that its functions are pickled to executors by
value, like those of a script.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from odradek.spark.declare import Declared, PipelineDeclaration, collecting
from odradek.spark.pipeline.file.nodes import Fields, Items, MapEntry, Node, Origins, Scalar
from odradek.spark.pipeline.file.section import Context
from odradek.spark.pipeline.graph.model import Place

__all__ = ["parse_python", "parse_python_include"]

_NAMED = ("sources", "transforms", "sinks")


def parse_python(text: str, shown: str, context: Context) -> Node | None:
    """The tree of the one pipeline that a module has."""
    ran = _run(text, shown, context)
    if ran is None:
        return None
    module, free = ran
    found = _pipelines(module)
    if len(found) != 1:
        code, came = ("P11", "several") if found else ("P05", "none")
        place = Place(shown, found[1].line, 1) if found else Place(shown, 1, 1)
        message = f"a Python file needs exactly one module-level pipeline(...), found {came}"
        context.error(place, code, message)
        return None
    pipeline = found[0]
    place = Place(pipeline.file, pipeline.line, 1)
    parts = [*pipeline.parts, *free]
    keys = {"name": pipeline.name, **pipeline.keys}
    fields = {key: MapEntry(key, place, _node(value, place)) for key, value in keys.items()}
    for kind in _NAMED:
        named = _fields_of(parts, kind, module, fields.get(kind), context)
        if named:
            fields[kind] = MapEntry(kind, place, Fields(named, place))
    tests = [
        _node({"name": part.name, **part.keys}, Place(part.file, part.line, 1))
        for part in parts
        if part.kind == "tests"
    ]
    if tests:
        fields["tests"] = MapEntry("tests", place, Items(tuple(tests), place))
    return Fields(fields, place)


def parse_python_include(text: str, shown: str, context: Context) -> dict[str, list[MapEntry]]:
    """The declarations of a module without a pipeline, as fields of the file's maps."""
    ran = _run(text, shown, context)
    if ran is None:
        return {}
    module, free = ran
    for pipeline in _pipelines(module):
        message = (
            "an included file belongs to the pipeline that includes it: "
            "use source, transform and sink of odradek.spark instead of pipeline(...)"
        )
        context.error(Place(shown, pipeline.line, 1), "P11", message)
    replace = context.environment.replace
    return {
        kind: [
            MapEntry(one.key, one.key_place, replace(one.node))
            for one in _fields_of(free, kind, module, None, context).values()
        ]
        for kind in _NAMED
    }


def _run(text: str, shown: str, context: Context) -> tuple[ModuleType, list[Declared]] | None:
    path = os.path.join(context.folder, os.path.basename(shown))
    name = os.path.splitext(os.path.basename(shown))[0]
    module = ModuleType(name)
    module.__file__ = path
    before = sys.modules.get(name)
    sys.modules[name] = module  # Dataclasses look there for their own module.
    sys.path.insert(0, context.folder)
    try:
        # Standard output is for the command's own answer.
        with collecting() as free, contextlib.redirect_stdout(sys.stderr):
            exec(compile(text, shown, "exec"), module.__dict__)  # noqa: S102 - the user's own file
    except SyntaxError as error:
        place = Place(error.filename or shown, error.lineno or 1, error.offset or 1)
        context.error(place, "P01", f"not readable as Python: {error.msg}")
        return None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of the user's file
        lines = [
            one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == shown
        ]
        place = Place(shown, (lines[-1] if lines else 1) or 1, 1)
        message = f"the file fails with {type(error).__name__}: {error}"
        context.error(place, "P01", " ".join(message.split()))
        return None
    finally:
        sys.path.remove(context.folder)
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
    return module, free


def _pipelines(module: ModuleType) -> list[PipelineDeclaration]:
    values = vars(module).values()
    found = {id(one): one for one in values if isinstance(one, PipelineDeclaration)}
    return sorted(found.values(), key=lambda one: one.line)


def _fields_of(
    parts: Iterable[Declared],
    kind: str,
    module: ModuleType,
    own: MapEntry | None,
    context: Context,
) -> dict[str, MapEntry]:
    found: dict[str, MapEntry] = {}
    if own is not None and isinstance(own.node, Fields):
        found.update(own.node.fields)
    for part in parts:
        if part.kind != kind:
            continue
        place = Place(part.file, part.line, 1)
        if part.name in found:
            what = kind.removesuffix("s")
            context.error(place, "P06", f"the name '{part.name}' of a {what} is taken")
            continue
        keys = {key.removesuffix("_"): value for key, value in part.keys.items()}
        watermark = keys.get("watermark")
        if isinstance(watermark, tuple) and len(watermark) == 2:
            keys["watermark"] = {"column": watermark[0], "delay": watermark[1]}
        found[part.name] = MapEntry(part.name, place, _node(keys, place, module.__name__))
    return found


def _node(value: Any, place: Place, module: str = "") -> Node:
    match value:
        case dict():
            fields = {
                str(key): MapEntry(str(key), place, _node(one, place, module))
                for key, one in value.items()
            }
            return Fields(fields, place)
        case list() | tuple():
            return Items(tuple(_node(one, place, module) for one in value), place)
        case bool():
            text = "true" if value else "false"
        case None:
            text = ""
        case _ if callable(value):
            text = f"{module}:{getattr(value, '__name__', type(value).__name__)}"
        case _:
            text = str(value)
    origins = Origins(place.file, ((0, place.line, place.column),))
    return Scalar(value, text, place, origins, is_plain=False)
