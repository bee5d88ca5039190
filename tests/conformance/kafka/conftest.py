"""The scenario with a real broker, run once for each version and shared by all tests."""

import pytest

from tests.conformance.kafka.broker_scenario import Scenario, run_scenario
from tests.conformance.kafka.once_per_run import once_per_run
from tests.support.apache_kafka import KafkaInstall


@pytest.fixture(scope="session")
def scenario(kafka: KafkaInstall, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """What happened between Odradek and this Kafka."""
    return once_per_run(
        tmp_path_factory,
        f"scenario-{kafka.version}",
        lambda directory: run_scenario(kafka, directory),
    )
