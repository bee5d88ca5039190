"""Facts of 08 part B that one broker shows to whoever talks to it."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

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


def test_turns_of_the_loop_are_measured(broker: OdradekBroker) -> None:
    """02 section 12."""
    counted = run_command("metrics", metrics_address(broker), "odradek_loop_turn_seconds_count")
    [row] = counted.rows
    assert int(row[2]) > 0


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


def produce_with(broker: OdradekBroker, topic: str, **settings: str | int) -> int:
    """Sends a hundred messages that look alike; the number of requests it took."""
    given = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **given})
    producer.list_topics(topic)  # Messages for partitions yet unknown come to a flush one by one.
    delivered: list[object] = []
    with broker.watched() as requests:
        for _ in range(100):
            producer.produce(topic, b"x" * 500, on_delivery=lambda e, _m: delivered.append(e))
        assert producer.flush(90) == 0
    assert delivered == [None] * 100
    return sum(count for (name, _), count in requests.counts.items() if name == "Produce")


def stored_bytes(broker: OdradekBroker, topic: str) -> int:
    return sum(path.stat().st_size for path in (broker.log_dir / f"{topic}-0").glob("*.log"))


def test_what_a_producer_can_do_for_throughput(broker: OdradekBroker, odradek: Commands) -> None:
    """08:F-21, the producer's levers: larger batches, waiting for them, compression."""
    for topic in ("single", "waiting", "packed"):
        odradek.ok("topics", "create", topic, "--partitions", 1)
    single = produce_with(broker, "single", batch_num_messages=1, linger_ms=0)
    waiting = produce_with(broker, "waiting", batch_num_messages=1000, linger_ms=60_000)
    produce_with(broker, "packed", linger_ms=60_000, compression_type="zstd")

    assert single >= 100 > 2 * waiting
    sizes = {topic: stored_bytes(broker, topic) for topic in ("single", "waiting", "packed")}
    assert sizes["single"] > sizes["waiting"] > 50_000 > 10 * sizes["packed"]


def fetches_for(broker: OdradekBroker, topic: str, min_bytes: int, *, in_step: bool) -> int:
    """Sends 40 messages to one who waits for them; the number of fetches it took.

    Args:
        in_step: Whether a message is sent only when the one before it has arrived.
    """
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.min.bytes": min_bytes,
            "fetch.wait.max.ms": 5_000,
        }
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    deadline = time.monotonic() + 90
    received = 0
    try:
        with broker.watched() as requests:
            reader.assign([TopicPartition(topic, 0, 0)])
            for sent in range(1, 41):
                producer.produce(topic, b"x" * 500)
                assert producer.flush(90) == 0
                while received < (sent if in_step else 0) or (sent == 40 and received < 40):
                    assert time.monotonic() < deadline, f"{received} messages came"
                    message = reader.poll(1)
                    received += message is not None and message.error() is None
        return sum(count for (name, _), count in requests.counts.items() if name == "Fetch")
    finally:
        reader.close()


def test_what_a_consumer_can_do_for_throughput(broker: OdradekBroker, odradek: Commands) -> None:
    """08:F-21, the consumer's lever: with `fetch.min.bytes` few answers bring much each."""
    for topic in ("eager", "patient"):
        odradek.ok("topics", "create", topic, "--partitions", 1)
    eager = fetches_for(broker, "eager", 1, in_step=True)
    patient = fetches_for(broker, "patient", 40 * 500, in_step=False)

    assert eager >= 40 > 2 * patient
