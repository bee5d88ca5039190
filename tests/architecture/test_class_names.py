"""A class can be named without its module: few names stand for two classes."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "odradek"
MESSAGES = SOURCE / "protocol" / "messages"
# The number of such names stays below this one, whatever their reasons.
END_OF_SHARED_NAMES = 30
ASYNC_AND_BLOCKING = "one client, awaited in one module and blocking in the other"
BOTH_SIDES = (
    "Kafka's name, which a client gives and a broker keeps; neither package imports the other"
)
ACCEPTED: Final = {
    "Admin": ASYNC_AND_BLOCKING,
    "ConfigResource": BOTH_SIDES,
    "ConfigSynonym": BOTH_SIDES,
    "Consumer": ASYNC_AND_BLOCKING,
    "NewPartitions": BOTH_SIDES,
    "NewTopic": BOTH_SIDES,
    "Node": BOTH_SIDES,
    "OffsetAndMetadata": BOTH_SIDES,
    "Producer": ASYNC_AND_BLOCKING,
    "QuotaEntity": BOTH_SIDES,
    "SimpleConsumer": ASYNC_AND_BLOCKING,
    "Timer": "Kafka's name twice: an instrument of its metrics, and what its purgatories wait by",
}


@cache
def modules_by_class() -> dict[str, list[str]]:
    """The modules that define a public class of each name; messages have the names of the wire."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        if path.is_relative_to(MESSAGES):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SOURCE)))
    return dict(found)


def test_two_classes_share_a_name_only_for_a_reason() -> None:
    shared = {name: modules for name, modules in modules_by_class().items() if len(modules) > 1}

    assert len(shared) < END_OF_SHARED_NAMES
    assert {name: modules for name, modules in shared.items() if name not in ACCEPTED} == {}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_reason_belongs_to_a_name_that_two_modules_define(name: str) -> None:
    assert len(modules_by_class()[name]) == 2
