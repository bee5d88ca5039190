"""Odradek and Kafka never work on one data directory at the same time."""

import shutil
from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.storage.directories.log_directory import LogDirectory
from tests.conformance.kafka.broker_scenario import Scenario
from tests.support.apache_kafka import BrokerStartError, KafkaInstall, running_broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_kafkas_directory_is_refused(scenario: Scenario) -> None:
    """01:DIR-3: while Kafka runs, our lock is refused; directory and remedy are named."""
    message = scenario.lock_refusal
    assert str(scenario.data_dir / "logs") in message
    assert "in use by another process" in message
    assert "stop the other broker" in message


def test_kafka_is_refused_our_directory(
    kafka: KafkaInstall, scenario: Scenario, tmp_path: Path
) -> None:
    """01:DIR-3, the other way round: while we hold the lock, Kafka does not start."""
    shutil.copytree(scenario.clean, tmp_path / "broker" / "logs")
    log_dir = LogDirectory(str(tmp_path / "broker" / "logs"), disk=Disk())
    log_dir.lock()
    try:
        with pytest.raises(BrokerStartError), running_broker(kafka, tmp_path / "broker"):
            pass
    finally:
        log_dir.unlock()
    broker_log = (tmp_path / "broker" / "broker.log").read_text(errors="replace")
    assert f"Failed to acquire lock on file .lock in {log_dir.path}" in broker_log
