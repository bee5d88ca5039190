"""Facts of 08 part B that one broker shows to whoever talks to it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.commands import Commands, run_command
from tests.support.odradek_broker import OdradekBroker, running_odradek

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekBroker]:
    with running_odradek(tmp_path_factory.mktemp("facts")) as running:
        yield running


@pytest.fixture
def odradek(broker: OdradekBroker) -> Commands:
    return Commands(broker.bootstrap)


def metrics_address(broker: OdradekBroker) -> str:
    return f"127.0.0.1:{broker.metrics_port}"


def test_the_largest_message_and_one_byte_more(odradek: Commands) -> None:
    """08:F-7: the topic's limit counts the whole batch; what is stored can be fetched."""
    odradek.ok("topics", "create", "sized", "--config", "max.message.bytes=2000")
    # Around a value of 1,930 bytes: a header of 61, and 9 for lengths, deltas, key and headers.
    fits, too_large = b"x" * 1930, b"x" * 1931
    odradek.ok("produce", "sized", stdin=fits + b"\n")
    refused = odradek("produce", "sized", stdin=too_large + b"\n")

    assert refused.code == 1
    assert "MESSAGE_TOO_LARGE" in refused.err
    read = odradek.ok("consume", "sized", "--from-beginning", "--max-messages", 1)
    assert read.lines == [fits.decode()]
    more = odradek.ok("consume", "sized", "--offset", 1, "--partition", 0, "--timeout", 0.5)
    assert more.lines == []


def test_deleted_records_are_out_of_range(odradek: Commands) -> None:
    """08:F-16, the part without a cleaner: deletion raises the log start offset."""
    odradek.ok("produce", "shrinking", stdin=b"".join(b"%d\n" % n for n in range(10)))
    odradek.ok("delete-records", "shrinking", "--before", 7)

    everything = odradek.ok("consume", "shrinking", "--from-beginning", "--max-messages", 3)
    assert everything.lines == ["7", "8", "9"]
    reader = Consumer(
        {
            "bootstrap.servers": odradek.bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    try:
        reader.assign([TopicPartition("shrinking", 0, 3)])
        message = reader.poll(60)
    finally:
        reader.close()
    assert message is not None
    error = message.error()
    assert error is not None
    assert "Offset out of range" in error.str()


def test_metrics_can_be_watched(broker: OdradekBroker, odradek: Commands) -> None:
    """08:F-8: an endpoint for monitors, and a command that prints it live."""
    odradek.ok("produce", "counted", stdin=b"one\ntwo\n")
    address = metrics_address(broker)
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    once = run_command("metrics", address, name)
    assert (once.code, once.err) == (0, "")
    assert [row[1:3] for row in once.rows if 'topic="counted"' in row[1]] == [
        ['topic="counted"', "2"]
    ]

    live = run_command("metrics", address, name, "--interval", 0.01, "--count", 2)
    rows = [row for row in live.rows if 'topic="counted"' in row[1]]
    assert [row[2:] for row in rows] == [["2", ""], ["2", "0"]]

    documents = run_command("metrics", address, name, "--json").json
    assert {one["name"] for one in documents} == {name}


def test_metrics_of_nobody_and_of_no_such_name(broker: OdradekBroker) -> None:
    """08:F-8: usage without arguments; an error says what to do."""
    usage = run_command("metrics")
    assert usage.code == 2
    assert "usage: odradek metrics" in usage.err

    for address in ("127.0.0.1:1", broker.bootstrap, "nowhere"):
        outcome = run_command("metrics", address)
        assert (outcome.code, outcome.out) == (1, "")
        assert re.match(rf"odradek metrics: cannot read metrics from {address}: .+\n", outcome.err)
    outcome = run_command("metrics", metrics_address(broker), "no_such_metric*")
    assert outcome.code == 1
    assert "no_such_metric" in outcome.err


def test_there_is_one_controller(broker: OdradekBroker) -> None:
    """08:F-22: a cluster of one has exactly one."""
    outcome = run_command(
        "metrics", metrics_address(broker), "kafka_controller_kafkacontroller_activecontrollercount"
    )
    assert [row[2] for row in outcome.rows] == ["1"]


def test_the_product_says_what_it_is() -> None:
    """08:F-1."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for name in ("commit log", "streaming", "messaging"):
        assert name in readme
