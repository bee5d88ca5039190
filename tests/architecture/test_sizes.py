"""Packages, modules and functions can be taken in at a glance."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "odradek"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
MODULES = sorted(SOURCE.rglob("*.py"))
# One module for each API: their number is that of the protocol.
ONE_FOR_EACH_API = {SOURCE / "broker" / "handlers", SOURCE / "protocol" / "messages"}
MOST_MODULES = 25
MOST_LINES = 600
# The broker only starts and stops its parts, and the front of the replicas only leads to theirs.
MOST_LINES_OF_A_FRONT = {"broker/broker.py": 200, "replication/replica_manager.py": 300}
MOST_LINES_OF_A_FUNCTION = 70
# The comment above a longer function, which goes on with the reason.
REASON = "# Long because "
LONG_FUNCTIONS = {
    "broker/broker.py:_start",
    "controller/driver.py:__init__",
    "records/walk_pure.py:_walk_singly",
    "storage/log/append_analysis.py:analyze_records",
    "storage/recovery/segment_recovery.py:recover_segment",
}


@pytest.mark.parametrize(
    "package",
    [package for package in PACKAGES if package not in ONE_FOR_EACH_API],
    ids=lambda path: str(path.relative_to(SOURCE.parent)),
)
def test_a_package_has_few_modules(package: Path) -> None:
    modules = [path.name for path in package.glob("*.py") if path.name != "__init__.py"]

    assert len(modules) <= MOST_MODULES


def test_a_module_is_short() -> None:
    lengths = {str(path): len(path.read_text().splitlines()) for path in MODULES}

    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.parametrize(("front", "most"), MOST_LINES_OF_A_FRONT.items())
def test_a_front_leaves_the_work_to_its_parts(front: str, most: int) -> None:
    assert len((SOURCE / front).read_text().splitlines()) < most


def find_long_functions() -> Iterator[tuple[str, str]]:
    """Each long function by name, with the line above it."""
    for path in MODULES:
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno >= MOST_LINES_OF_A_FUNCTION:
                first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                yield f"{path.relative_to(SOURCE)}:{node.name}", lines[first - 2].strip()


def test_a_long_function_has_its_reason_above_it() -> None:
    found = dict(find_long_functions())

    assert [name for name, above in found.items() if not above.startswith(REASON)] == []
    assert set(found) == LONG_FUNCTIONS
