"""Our clients against Odradek and against Apache Kafka: the same checks, the same outcome."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import EmbeddedBroker
from tests.conformance.interop.admin_checks import ADMIN_CHECKS
from tests.conformance.interop.consumer_checks import CONSUMER_CHECKS
from tests.conformance.interop.raw_checks import RAW_CHECKS
from tests.conformance.interop.suite import Check, name_of, run_all
from tests.conformance.interop.transaction_checks import TRANSACTION_CHECKS
from tests.conformance.interop.transaction_tool_checks import TRANSACTION_TOOL_CHECKS
from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka, running_broker, why_missing

pytestmark = pytest.mark.slow

CHECKS = (*CONSUMER_CHECKS, *RAW_CHECKS, *ADMIN_CHECKS, *TRANSACTION_CHECKS)


@pytest.fixture(scope="module")
def odradek() -> Iterator[str]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_on_odradek(check: Check, odradek: str) -> None:
    check(odradek)


@pytest.mark.parametrize("check", TRANSACTION_TOOL_CHECKS, ids=name_of)
def test_tools_of_transactions_on_odradek(check: Check) -> None:
    """10:9.8: a transaction can only hang where partitions are not verified."""
    settings = {"transaction.partition.verification.enable": "false"}
    with EmbeddedBroker(settings) as broker:
        check(broker.bootstrap_servers)


@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_on_apache_kafka(version: str, tmp_path: Path) -> None:
    """09:CL-3: Kafka 4.x and 3.9 with the same code."""
    install = find_kafka(version)
    if install is None:
        pytest.skip(why_missing(version))
    with running_broker(install, tmp_path / "kafka") as broker:
        run_all((*CHECKS, *TRANSACTION_TOOL_CHECKS), broker.bootstrap)
