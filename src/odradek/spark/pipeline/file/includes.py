"""Reads `include`: `.sql` and `.py` files whose steps are added to the pipeline's."""

import os

from odradek.spark.pipeline.file.nodes import Fields, Items, MapEntry, Node, Scalar
from odradek.spark.pipeline.file.python_file import parse_python_include
from odradek.spark.pipeline.file.section import Context
from odradek.spark.pipeline.file.sql_file import parse_sql_file
from odradek.spark.pipeline.file.yaml_tree import read_text

__all__ = ["read_includes"]


def read_includes(context: Context, root: Node, path: str) -> dict[str, list[MapEntry]]:
    """`sources`, `transforms` and `sinks` of the included files, in their order."""
    found: dict[str, list[MapEntry]] = {"sources": [], "transforms": [], "sinks": []}
    field = root.fields.get("include") if isinstance(root, Fields) else None
    if field is None:
        return found
    if not isinstance(field.node, Items):
        message = "'include' of the pipeline has to be a list of paths"
        context.error(field.node.place, "P03", message)
        return found
    for item in field.node.items:
        if not isinstance(item, Scalar) or not item.text.endswith((".sql", ".py")):
            came = f"'{item.text}'" if isinstance(item, Scalar) else "something else"
            message = f"'include' of the pipeline has to name .sql and .py files, found {came}"
            context.error(item.place, "P03", message)
            continue
        shown = os.path.join(os.path.dirname(path), item.text)
        try:
            text = read_text(context.resolve(item.text), shown, context.problems)
        except OSError as error:
            message = f"cannot read '{item.text}' of 'include': {error.strerror or error}"
            context.error(item.place, "P19", message)
            continue
        if text is None:
            continue
        if item.text.endswith(".sql"):
            found["transforms"].extend(parse_sql_file(text, shown, context))
        else:
            for kind, fields in parse_python_include(text, shown, context).items():
                found[kind].extend(fields)
    return found
