"""A broker for each worker, so that what a test counts on it was sent by that test."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.support.odradek_broker import OdradekBroker, running_odradek

_numbers = itertools.count()


@pytest.fixture(scope="session")
def odradek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekBroker]:
    """A broker with its default settings."""
    with running_odradek(tmp_path_factory.mktemp("odradek")) as broker:
        yield broker


@pytest.fixture
def new_topic(odradek: OdradekBroker) -> Callable[[], str]:
    """Gives a topic name that nobody used before on this worker's broker."""
    return lambda: f"topic-{next(_numbers)}"
