"""A broker for each worker, and names that nobody used before."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.groups.judge import Judge
from tests.support.group_members import wait_for_coordinator
from tests.support.odradek_broker import running_odradek

_numbers = itertools.count()


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A broker with its default settings, but that a group's first rebalance begins at once."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with running_odradek(tmp_path_factory.mktemp("groups"), settings) as broker:
        wait_for_coordinator(broker.port, *map(str, range(50)))
        yield Judge(broker)


@pytest.fixture(scope="session")
def new_name() -> Callable[[str], str]:
    """Gives names of topics and groups."""
    return lambda what: f"{what}-{next(_numbers)}"
