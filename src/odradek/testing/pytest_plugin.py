"""Fixtures for tests of other projects; pytest loads this module wherever Odradek is installed.

`odradek_broker`           a fresh broker for one test
`odradek_session_broker`   one broker for all tests of a run: faster, topics are shared
`odradek_broker_settings`  override it to set the settings of both

Both brokers have `bootstrap_servers`. The broker's modules are imported when a test requests one.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker import EmbeddedBroker

__all__ = ["odradek_broker", "odradek_broker_settings", "odradek_session_broker"]


@pytest.fixture(scope="session")
def odradek_broker_settings() -> Mapping[str, object]:
    """Settings of the brokers, by Kafka's names; none unless a project overrides this."""
    return {}


@pytest.fixture
def odradek_broker(odradek_broker_settings: Mapping[str, object]) -> "Iterator[EmbeddedBroker]":
    """A fresh broker, stopped and deleted with its data after the test."""
    from odradek.testing.broker import EmbeddedBroker

    with EmbeddedBroker(odradek_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def odradek_session_broker(
    odradek_broker_settings: Mapping[str, object],
) -> "Iterator[EmbeddedBroker]":
    """A broker that all tests of the run share."""
    from odradek.testing.broker import EmbeddedBroker

    with EmbeddedBroker(odradek_broker_settings) as broker:
        yield broker
