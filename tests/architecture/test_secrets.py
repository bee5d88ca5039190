"""No value class shows a password: a log line or a traceback shows the `repr` of what it names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "odradek"
_SECRET = re.compile(r"password|secret|salt\b")
_PLAIN = re.compile(r"\b(str|bytes)\b")
_SHOWS_FIELDS = {"NamedTuple", "Message"}


def shown_secrets(source: str) -> Iterator[str]:
    """Fields with a secret that the generated `repr` of their class shows."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or not _has_generated_repr(node):
            continue
        for field in node.body:
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and _SECRET.search(field.target.id)
                and _PLAIN.search(ast.unparse(field.annotation))
                and not _is_hidden(field.value)
            ):
                yield f"{node.name}.{field.target.id}"


def _has_generated_repr(node: ast.ClassDef) -> bool:
    has_own = any(isinstance(one, ast.FunctionDef) and one.name == "__repr__" for one in node.body)
    bases = {ast.unparse(base) for base in node.bases}
    is_dataclass = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    return not has_own and bool(is_dataclass or bases & _SHOWS_FIELDS)


def _is_hidden(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and any(
        (one.arg, ast.unparse(one.value)) in {("repr", "False"), ("is_secret", "True")}
        for one in value.keywords
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A(NamedTuple):\n    password: bytes", ["A.password"]),
        ("@dataclass\nclass A:\n    session_secret: str | None = None", ["A.session_secret"]),
        ("@dataclass\nclass A:\n    secret: str = field(repr=False)", []),
        ("class A(Message):\n    password: bytes = wire(BYTES, is_secret=True)", []),
        ("class A(NamedTuple):\n    password: bytes\n    def __repr__(self): ...", []),
        ("@dataclass\nclass A:\n    password: Password", []),
    ],
)
def test_what_is_shown_is_found(source: str, found: list[str]) -> None:
    assert list(shown_secrets(source)) == found


def test_no_value_class_shows_a_secret() -> None:
    shown = {
        f"{path.relative_to(SOURCES)}: {name}"
        for path in sorted(SOURCES.rglob("*.py"))
        for name in shown_secrets(path.read_text())
    }
    assert shown == set()
