"""What client and broker have in common is below both of them, and written once."""

import ast
from pathlib import Path

import pytest

import odradek

SOURCE = Path(odradek.__file__).parent


def imports_of(package: str) -> set[str]:
    """Modules of this project that a package imports."""
    found = set()
    for path in (SOURCE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("odradek.")}


def packages(modules: set[str]) -> set[str]:
    return {module.split(".")[1] for module in modules}


@pytest.mark.parametrize("shared", ["records", "network", "protocol"])
def test_client_and_broker_stand_on_the_same_base(shared: str) -> None:
    """08:P-8: records, batches and connections are neither the client's nor the broker's."""
    assert shared in packages(imports_of("client"))
    assert shared in packages(imports_of("broker"))
    assert not packages(imports_of(shared)) & {"client", "broker"}


def test_one_module_for_record_batches() -> None:
    """08:P-8: what a producer writes and what a broker checks is read by the same code."""
    assert "odradek.records.batch" in imports_of("client")
    assert "odradek.records.batch" in imports_of("storage")
    assert not packages(imports_of("client")) & {"broker", "storage", "replication"}
