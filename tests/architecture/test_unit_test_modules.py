"""Unit tests are where one reads how a component behaves."""

import ast
from pathlib import Path

import pytest

import odradek

SOURCE = Path(odradek.__file__).parent
UNIT_TESTS = Path(__file__).parents[1] / "unit"
COMPONENTS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_component_has_unit_tests_that_say_what_they_show(component: str) -> None:
    """08:P-6."""
    modules = sorted((UNIT_TESTS / component).rglob("test_*.py"))
    assert modules
    for module in modules:
        tree = ast.parse(module.read_text())
        assert ast.get_docstring(tree), f"{module} does not say what it is about"
        assert any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name.lower().startswith("test")
            for node in tree.body
        ), f"{module} has no test"
