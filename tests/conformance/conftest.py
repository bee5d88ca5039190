"""Fixtures for tests against the real thing."""

import pytest

from tests.support.apache_kafka import KAFKA_VERSIONS, KafkaInstall, find_kafka, why_missing


@pytest.fixture(scope="session", params=KAFKA_VERSIONS, ids=lambda version: f"kafka-{version}")
def kafka(request: pytest.FixtureRequest) -> KafkaInstall:
    """Each Apache Kafka in turn; skips with the reason where it was not fetched."""
    install = find_kafka(request.param)
    if install is None:
        pytest.skip(why_missing(request.param))
    return install
