"""What a real client writes to and reads from a partition, as records in Odradek's terms."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.records.record import Headers, Record

__all__ = ["Payload", "ReliableProducer", "TransactionalProducer", "consume", "create_topics"]

_TIMEOUT_S = 60


class Payload(NamedTuple):
    """A record before it has an offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ReliableProducer:
    """A producer that knows what it wrote.

    Args:
        bootstrap: The broker.
        topic: Written to is its partition 0.
        written: Gets each record that the broker acknowledged.
        config: Further settings of the client.
    """

    def __init__(
        self, bootstrap: str, topic: str, written: list[Record], **config: str | int | bool
    ) -> None:
        self._topic = topic
        self._written = written
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 3,  # Not that a coordinator is still loading; errors are raised.
            # Batches are cut by count alone, so that their number does not depend on the clock.
            "linger.ms": 500,
            "batch.num.messages": 50,
            "batch.size": 1_000_000,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self._client = Producer(settings)

    def write(self, payloads: Iterable[Payload]) -> None:
        """Writes and waits until all are acknowledged."""
        for payload in payloads:
            self._client.produce(
                self._topic,
                value=payload.value,
                key=payload.key,
                headers=list(payload.headers) or None,
                timestamp=payload.timestamp,
                partition=0,
                on_delivery=partial(self._delivered, payload),
            )
            self._client.poll(0)
        left = self._client.flush(_TIMEOUT_S)
        assert left == 0, f"{left} records were not delivered"

    def _delivered(self, payload: Payload, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        self._written.append(Record(offset, *payload))


class TransactionalProducer(ReliableProducer):
    """A producer whose records are visible once their transaction is committed."""

    def __init__(
        self, bootstrap: str, topic: str, written: list[Record], *, transactional_id: str
    ) -> None:
        super().__init__(bootstrap, topic, written, transactional_id=transactional_id)
        self._client.init_transactions(_TIMEOUT_S)

    def begin(self) -> None:
        self._client.begin_transaction()

    def commit(self) -> None:
        self._client.commit_transaction(_TIMEOUT_S)

    def abort(self) -> None:
        self._client.abort_transaction(_TIMEOUT_S)


def consume(bootstrap: str, topic: str, *, isolation_level: str) -> list[Record]:
    """All records that a consumer sees in partition 0, from its first to its present end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",  # The client wants one; partitions are assigned by hand.
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        records: list[Record] = []
        while True:
            message = consumer.poll(_TIMEOUT_S)
            assert message is not None, f"nothing came within {_TIMEOUT_S} s, not even the end"
            if (error := message.error()) is None:
                records.append(_record_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return records
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def _record_of(message: Message) -> Record:
    offset = message.offset()
    assert offset is not None
    key, value, headers = message.key(), message.value(), message.headers()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return Record(offset, message.timestamp()[1], key, value, _headers_of(headers))


def _headers_of(headers: Any) -> Headers:
    return tuple((name, value) for name, value in headers or ())


def create_topics(bootstrap: str, topics: Sequence[str], config: dict[str, str]) -> None:
    """Creates topics of one partition each and waits for them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [
        NewTopic(topic, num_partitions=1, replication_factor=1, config=config) for topic in topics
    ]
    for future in admin.create_topics(new).values():
        future.result(_TIMEOUT_S)
