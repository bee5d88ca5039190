"""What behaves differently once it is compiled is not written; docs/adr/0009-two-compilers.md.

These are looks at the sources, so that the fast run finds what else only the compiled one would.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["odradek"][
    "compiled"
]
# Attributes that classes made by the compiler do not have, or that say nothing of their instances.
INTERPRETED = {"__annotations__", "__dict__", "__slots__", "__weakref__"}
# Bases whose classes the compiler leaves to the interpreter.
LEFT_OUT = {"Enum", "IntEnum", "NamedTuple", "Protocol"}
# What a file has to have to be read any closer.
SUSPICIOUS = re.compile(
    r"setattr\(|patch|^ *class \w+\([A-Z]|^ +(?!self\b)\w+\.\w+ = ", re.MULTILINE
)


def _parse(name: str) -> ast.Module:
    return ast.parse(ROOT.joinpath("src", *name.split(".")).with_suffix(".py").read_text())


TREES = {name: _parse(name) for name in LISTED}


def _constants(tree: ast.Module) -> set[str]:
    """Names of a module that stand for values without an identity: tuples, numbers, text."""
    found = set()
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                continue
        if isinstance(value, ast.Tuple | ast.UnaryOp | ast.BinOp) or (
            isinstance(value, ast.Constant) and value.value not in (None, True, False, ...)
        ):
            found.add(name)
    return found


CONSTANTS = {name: _constants(tree) for name, tree in TREES.items()}


def _imports(tree: ast.Module) -> dict[str, str]:
    """What the names of a module stand for, where they were imported from this package."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("odradek")
        for alias in node.names
    }


def find_identity_traps(tree: ast.Module, own_constants: set[str]) -> Iterator[int]:
    """Lines that ask whether a value is the same object as a tuple, a number or a text."""
    imports = _imports(tree)

    def has_no_identity(node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            module, _, name = imports.get(node.id, "").rpartition(".")
            return node.id in own_constants or name in CONSTANTS.get(module, ())
        if isinstance(node, ast.Constant):
            return node.value not in (None, True, False, ...)
        return isinstance(node, ast.Tuple | ast.UnaryOp | ast.BinOp | ast.JoinedStr)

    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Compare)
            and any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops)
            and any(has_no_identity(operand) for operand in (node.left, *node.comparators))
        ):
            yield node.lineno


@pytest.mark.parametrize("name", LISTED)
def test_values_without_identity_are_compared_by_value(name: str) -> None:
    """A compiled tuple or number is made anew each time somebody looks at it."""
    assert [*find_identity_traps(TREES[name], CONSTANTS[name])] == []


def test_the_look_finds_a_tuple_that_serves_as_a_mark() -> None:
    source = (
        "MARK: Final = (-1, 0)\ndef f(x):\n    return x is MARK or x is not (1, 2) or x is None"
    )
    tree = ast.parse(source)
    assert [*find_identity_traps(tree, _constants(tree))] == [3, 3]


@pytest.mark.parametrize("name", LISTED)
def test_no_class_is_asked_what_only_the_interpreter_gives_it(name: str) -> None:
    asked = [
        f"line {node.lineno}: {node.attr}"
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Attribute) and node.attr in INTERPRETED
    ]
    assert asked == []


def _closed_classes() -> set[tuple[str, str]]:
    """Compiled classes that only compiled classes may extend, with where they can be imported."""
    return {
        (package, node.name)
        for name, tree in TREES.items()
        for package in (name, name.rpartition(".")[0])
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and not LEFT_OUT & {ast.unparse(base).split("[")[0] for base in node.bases}
        and not any("mypyc_attr(" in ast.unparse(mark) for mark in node.decorator_list)
    }


def _interpreted_files() -> list[Path]:
    listed = {ROOT.joinpath("src", *name.split(".")).with_suffix(".py") for name in LISTED}
    paths = [path for top in ("src", "tests", "benchmarks") for path in (ROOT / top).rglob("*.py")]
    # Simulations plant bugs; they are run with interpreted modules alone.
    return sorted(set(paths) - listed - {*(ROOT / "tests/simulation").rglob("*.py")})


def _replaced(tree: ast.Module, imports: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Lines that put something in the place of a name of this package, and that name."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [t.value for t in node.targets if isinstance(t, ast.Attribute)]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("setattr", "object")
        ):
            targets = node.args[:1]
        for target in targets:
            if isinstance(target, ast.Name) and target.id in imports:
                yield target.lineno, imports[target.id]
            elif isinstance(target, ast.Constant) and isinstance(target.value, str):
                yield target.lineno, target.value


def _is_compiled(name: str) -> bool:
    return any(name == listed or name.startswith(listed + ".") for listed in LISTED)


def test_nothing_compiled_is_extended_or_replaced_by_what_is_interpreted() -> None:
    """A compiled caller looks up neither functions nor constants; what a test wants is an argument.

    A class that may be extended says so: `mypyc_attr(allow_interpreted_subclasses=True)`.
    """
    closed = _closed_classes()
    wrong = []
    for path in _interpreted_files():
        source = path.read_text()
        if not SUSPICIOUS.search(source):
            continue
        tree = ast.parse(source)
        imports = _imports(tree)
        where = path.relative_to(ROOT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    module, _, name = imports.get(ast.unparse(base), "").rpartition(".")
                    if (module, name) in closed:
                        wrong.append(f"{where}:{node.lineno} extends {name}")
        wrong += [
            f"{where}:{line} replaces {name}"
            for line, name in _replaced(tree, imports)
            if _is_compiled(name)
        ]
    assert wrong == []
