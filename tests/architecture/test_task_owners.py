"""Every task has an owner that ends it: an `asyncio.TaskGroup`, or a class of `odradek.tasks`."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "odradek"
# The modules that start tasks by themselves, and why.
ACCEPTED = {
    "tasks.py": "the owners",
    "testing/broker.py": "one task is the broker's life, from `async with` to its end",
    "testing/virtual_loop.py": "an event loop",
}
STARTERS = {"create_task", "ensure_future"}
GROUPS = {"group", "tasks", "self._group", "self._tasks"}


def starts_without_a_group() -> Iterator[str]:
    """Modules that start a task on a loop, or by asyncio itself."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        groups = GROUPS if "asyncio.TaskGroup" in text else set()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            owner, _, name = ast.unparse(node.func).rpartition(".")
            if name in STARTERS and owner not in groups:
                yield str(path.relative_to(SOURCE))


def test_a_task_is_started_by_its_owner() -> None:
    assert set(starts_without_a_group()) == set(ACCEPTED)
