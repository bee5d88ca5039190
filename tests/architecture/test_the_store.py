"""Which packages see the coordination store: the engine of the metadata ports over it, no other."""

import tomllib
from pathlib import Path

import grimp

import odradek

ROOT = Path(__file__).parents[2]
SOURCES = Path(odradek.__file__).parent
STORE = "odradek.coordination"
# The ports over it are its only users, and open it; the testing kit has one that fails on command.
USERS = {"odradek.metadata_store", "odradek.testing"}
# These cannot import it, by the layers.
BELOW = {
    "security",
    "storage",
    "network",
    "metadata",
    "records",
    "protocol",
    "purgatory",
    "config",
    "metrics",
}


def test_the_contract_names_every_package_that_could_reach_the_store() -> None:
    """08:K-1, 08:K-3: a package that is new is asked for, too."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in contracts["contracts"] if c.get("forbidden_modules") == [STORE]]
    packages = {f"odradek.{path.parent.name}" for path in SOURCES.glob("*/__init__.py")}
    able = packages - {STORE} - USERS - {f"odradek.{name}" for name in BELOW}
    assert able <= set(contract["source_modules"])
    assert "ignore_imports" not in contract


def test_nothing_else_imports_the_store() -> None:
    """08:K-1: clients know brokers alone. 08:K-3: a broker changes an ISR through its port."""
    graph = grimp.build_graph("odradek", cache_dir=None)
    store = {STORE, *graph.find_descendants(STORE)}
    importers = {
        importer
        for module in store
        for importer in graph.find_modules_that_directly_import(module)
        if importer not in store
    }
    assert {f"odradek.{name.split('.')[1]}" for name in importers} == USERS


def test_a_broker_names_its_engines_where_it_opens_them() -> None:
    """14:15.1: all other parts of a broker have the ports, which any engine implements."""
    graph = grimp.build_graph("odradek", cache_dir=None)
    engine = {"odradek.metadata_store", *graph.find_descendants("odradek.metadata_store")}
    importers = {
        importer
        for module in engine
        for importer in graph.find_modules_that_directly_import(module)
        if importer not in engine
    }
    assert importers == {
        "odradek.broker.surroundings",  # The embedded store.
        "odradek.broker.parts.metadata",  # ZooKeeper, if it is set,
        "odradek.broker.config.zookeeper",  # and the form of its setting.
        "odradek.testing.cluster",  # Brokers that share an embedded store.
    }
