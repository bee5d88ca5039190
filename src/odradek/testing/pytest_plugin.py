"""Fixtures for tests of other projects; pytest loads this module wherever Odradek is installed.

`odradek_broker`           a fresh broker for one test
`odradek_session_broker`   one broker for all tests of a run: faster, topics are shared
`odradek_topic`            a fresh topic on the session broker, deleted after the test
`odradek_tls_broker`       a fresh broker whose clients speak TLS and show a certificate
`odradek_cluster`          three fresh brokers for one test
`odradek_broker_settings`  override it to set the settings of all of them

All brokers have `bootstrap_servers`. Their modules are imported when a test requests one.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker import EmbeddedBroker
    from odradek.testing.cluster import EmbeddedCluster

__all__ = [
    "odradek_broker",
    "odradek_broker_settings",
    "odradek_cluster",
    "odradek_session_broker",
    "odradek_tls_broker",
    "odradek_topic",
]


@pytest.fixture(scope="session")
def odradek_broker_settings() -> Mapping[str, object]:
    """Settings of the brokers, by Kafka's names; none unless a project overrides this."""
    return {}


@pytest.fixture
def odradek_broker(odradek_broker_settings: Mapping[str, object]) -> "Iterator[EmbeddedBroker]":
    """A fresh broker, stopped and deleted with its data after the test."""
    from odradek.testing.broker import EmbeddedBroker

    _check(odradek_broker_settings)
    with EmbeddedBroker(odradek_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def odradek_session_broker(
    odradek_broker_settings: Mapping[str, object],
) -> "Iterator[EmbeddedBroker]":
    """A broker that all tests of the run share."""
    from odradek.testing.broker import EmbeddedBroker

    _check(odradek_broker_settings)
    with EmbeddedBroker(odradek_broker_settings) as broker:
        yield broker


@pytest.fixture
def odradek_topic(odradek_session_broker: "EmbeddedBroker") -> Iterator[str]:
    """The name of a topic of one partition, deleted after the test."""
    name = odradek_session_broker.create_topic()
    yield name
    odradek_session_broker.delete_topic(name)


@pytest.fixture
def odradek_tls_broker(odradek_broker_settings: Mapping[str, object]) -> "Iterator[EmbeddedBroker]":
    """A fresh broker that takes TLS only, from clients that show the certificate it made."""
    from odradek.testing.broker import EmbeddedBroker

    _check(odradek_broker_settings)
    with EmbeddedBroker(odradek_broker_settings, tls="mutual") as broker:
        yield broker


@pytest.fixture
def odradek_cluster(odradek_broker_settings: Mapping[str, object]) -> "Iterator[EmbeddedCluster]":
    """Three fresh brokers, whose topics have three replicas unless a test or a setting says so."""
    from odradek.testing.cluster import EmbeddedCluster

    _check(odradek_broker_settings)
    settings = {"default.replication.factor": "3", **odradek_broker_settings}
    with EmbeddedCluster(3, settings) as cluster:
        yield cluster


def _check(settings: Mapping[str, object]) -> None:
    """Fails the test that would run with a mistyped setting."""
    from odradek.errors import ConfigError
    from odradek.testing.settings import check_known

    try:
        check_known(settings)
    except ConfigError as error:
        pytest.fail(f"odradek_broker_settings: {error.key}: {error.why}", pytrace=False)
