"""Reads a pipeline from a YAML or Python file, and finds all of its problems at once."""

import json
import os
from collections.abc import Mapping

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.file.assemble import assemble
from odradek.spark.pipeline.file.draft import read_draft
from odradek.spark.pipeline.file.environment import Environment
from odradek.spark.pipeline.file.includes import read_includes
from odradek.spark.pipeline.file.nodes import Node
from odradek.spark.pipeline.file.problems import Problem, Problems
from odradek.spark.pipeline.file.python_file import parse_python
from odradek.spark.pipeline.file.section import Context
from odradek.spark.pipeline.file.settings import apply_settings
from odradek.spark.pipeline.file.yaml_tree import parse_yaml, read_text
from odradek.spark.pipeline.graph.model import Pipeline, Place

__all__ = ["Loaded", "load"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of reading a file: the pipeline, unless it has errors, and all problems."""

    pipeline: Pipeline | None
    problems: tuple[Problem, ...]


def load(
    path: str,
    *,
    settings: Mapping[str, str] | None = None,
    master: str | None = None,
    environment: Mapping[str, str],
) -> Loaded:
    """Reads and checks a pipeline, without Spark.

    Args:
        path: A YAML file, or a `.py` with one module-level pipeline; shown unchanged in problems.
        settings: Dotted key -> value in YAML, which overrides the file's (`--set`).
        master: Overrides `spark.master` (`--master`), so that checks are for the one that runs.
        environment: Values of `${NAME}`.
    """
    problems = Problems()
    variables = Environment(environment, problems)
    folder = os.path.dirname(os.path.abspath(path))
    context = Context(problems, variables, folder)
    pipeline: Pipeline | None = None
    root = _parse(path, context)
    if root is not None:
        root = apply_settings(root, settings or {}, problems)
        if master is not None:
            # Every string of JSON is one of YAML.
            chosen = {"spark.master": json.dumps(master)}
            root = apply_settings(root, chosen, problems, option="--master")
        root = variables.replace(root)
        included = read_includes(context, root, path)
        draft = read_draft(context, root, included)
        pipeline = assemble(context, draft, os.path.abspath(path))
    found = problems.in_order(first_file=path, secrets=variables.secrets)
    return Loaded(None if problems.has_errors else pipeline, found)


def _parse(path: str, context: Context) -> Node | None:
    try:
        text = read_text(path, path, context.problems)
    except OSError as error:
        message = f"cannot read the file: {error.strerror or error}"
        context.error(Place(path, 1, 1), "P01", message)
        return None
    if text is None:
        return None
    if path.endswith(".py"):
        return parse_python(text, path, context)
    return parse_yaml(text, path, context.problems)
