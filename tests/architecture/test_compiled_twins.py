"""Each compiled loop of `records` is three files: x.py chooses, x_pure.py is the twin of _x.pyx."""

import ast
from pathlib import Path

import pytest

RECORDS = Path(__file__).parents[2] / "src" / "odradek" / "records"
COMPILED = sorted(path.stem.removeprefix("_") for path in RECORDS.glob("_*.pyx"))


def imported_from(path: Path) -> set[str]:
    return {
        node.module.rpartition(".")[2]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_module_has_a_chooser_and_a_twin(name: str) -> None:
    assert {f"_{name}", f"{name}_pure"} <= imported_from(RECORDS / f"{name}.py")
    assert f"_{name}.pyx" in (ast.get_docstring(ast.parse(twin_of(name))) or "")
    assert (RECORDS / f"_{name}.pyi").exists()


def twin_of(name: str) -> str:
    return (RECORDS / f"{name}_pure.py").read_text()


def test_every_twin_has_something_compiled() -> None:
    assert sorted(path.stem.removesuffix("_pure") for path in RECORDS.glob("*_pure.py")) == COMPILED


@pytest.mark.parametrize("name", COMPILED)
def test_what_is_compiled_is_chosen_in_one_place(name: str) -> None:
    users = [
        path.name
        for path in sorted(RECORDS.glob("*.py"))
        if f"_{name}" in imported_from(path) and path.stem != f"{name}_pure"
    ]
    assert users == [f"{name}.py"]
