"""The modules that mypyc compiles keep to the rules of docs/adr/0009-two-compilers.md."""

import ast
import tomllib
from pathlib import Path

import pytest

from odradek.builds import COMPILED, compiled_modules, name_build

ROOT = Path(__file__).parents[2]
LISTED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["odradek"][
    "compiled"
]


def _source(name: str) -> Path:
    return ROOT.joinpath("src", *name.split(".")).with_suffix(".py")


def test_the_list_names_modules_once_and_in_order() -> None:
    assert sorted(set(LISTED)) == LISTED
    assert [name for name in LISTED if not _source(name).exists()] == []


def test_a_compiled_build_has_compiled_what_is_listed() -> None:
    expected = LISTED if name_build() == COMPILED else []
    assert sorted(compiled_modules()) == expected


@pytest.mark.parametrize("name", LISTED)
def test_classes_finished_at_first_use_are_left_to_the_interpreter(name: str) -> None:
    tree = ast.parse(_source(name).read_text())
    if not any(
        isinstance(node, ast.ImportFrom)
        and node.module == "odradek.lazy_dataclass"
        and any(alias.name == "dataclass" for alias in node.names)
        for node in tree.body
    ):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            marks = [ast.unparse(decorator) for decorator in node.decorator_list]
            if any(mark.startswith("dataclass(") for mark in marks):
                assert "mypyc_attr(native_class=False)" in marks, f"{name}.{node.name}"


@pytest.mark.parametrize("name", LISTED)
def test_keywords_with_a_default_come_last(name: str) -> None:
    """The compiler crashes at one in front of a keyword without a default."""
    for node in ast.walk(ast.parse(_source(name).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            has_default = [default is not None for default in node.args.kw_defaults]
            assert has_default == sorted(has_default), f"{name}.{node.name}"
