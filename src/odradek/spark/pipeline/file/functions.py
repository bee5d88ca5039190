"""Finds `module:function` of a pipeline file without importing the module.

A module of transforms imports Spark, which takes a second and may not be installed. So its file is
searched as an import would, the pipeline's folder first, and parsed.
"""

import ast
import sys
from importlib.machinery import ModuleSpec, PathFinder

from odradek.spark.pipeline.file.problems import suggestion

__all__ = ["missing_function"]


def missing_function(module: str, function: str, folder: str) -> str | None:
    """Why a function does not exist; None if it does, or if that cannot be decided."""
    spec = _find(module, folder)
    if spec is None and (module in sys.modules or module in sys.builtin_module_names):
        return None
    if spec is None:
        return f"there is no module '{module}' in the pipeline's folder or on Python's path"
    if not spec.origin or not spec.origin.endswith(".py"):
        return None  # Compiled, or built in.
    try:
        with open(spec.origin, encoding="utf-8") as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError, ValueError) as error:
        return f"module '{module}' cannot be read: {error}"
    names, is_open = _names(tree)
    if function in names or is_open:
        return None
    hint = suggestion(function, names)
    return f"module '{module}' has no function '{function}'{hint}"


def _find(module: str, folder: str) -> ModuleSpec | None:
    path: list[str] | None = [folder, *sys.path]
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for index in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: index + 1]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec


def _names(tree: ast.Module) -> tuple[set[str], bool]:
    """The names that a module binds, and whether it may bind others (`from x import *`)."""
    names: set[str] = set()
    is_open = False
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
                continue  # Names inside of it are in another namespace.
            case ast.Import() | ast.ImportFrom():
                bound = [alias.asname or alias.name for alias in node.names]
                names.update(bound)
                is_open = is_open or "*" in bound
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
        waiting.extend(ast.iter_child_nodes(node))
    return names, is_open
