"""Fixtures for tests against the real thing."""

import pytest

from tests.support.apache_kafka import KAFKA_VERSIONS, KafkaInstall, find_kafka, why_missing

# The checks of a suite that several tests share: they say what they expected, though their modules
# are not tests by name. Here, since tests in other folders import them, too.
pytest.register_assert_rewrite(
    "tests.conformance.interop.admin_checks",
    "tests.conformance.interop.consumer_checks",
    "tests.conformance.interop.producer_transaction_checks",
    "tests.conformance.interop.raw_checks",
    "tests.conformance.interop.transaction_checks",
    "tests.conformance.interop.transaction_tool_checks",
)


@pytest.fixture(scope="session", params=KAFKA_VERSIONS, ids=lambda version: f"kafka-{version}")
def kafka(request: pytest.FixtureRequest) -> KafkaInstall:
    """Each Apache Kafka in turn; skips with the reason where it was not fetched."""
    install = find_kafka(request.param)
    if install is None:
        pytest.skip(why_missing(request.param))
    return install
