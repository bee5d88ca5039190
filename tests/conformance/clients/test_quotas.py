"""Quotas from end to end: set through the API, kept in the store, felt by foreign clients.

librdkafka tells of every answer that asked it to keep still (`throttle_cb`), so that no test has to
measure how long something took.
"""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.cimpl import KafkaError

from odradek import Admin
from odradek.client.admin import QuotaEntity
from tests.support.odradek_broker import OdradekBroker

pytestmark = pytest.mark.slow

_TIMEOUT_S = 90
_FREE_CLIENT = "free client"
# Eleven seconds' worth are measured: one message fits, a few do not, and the wait is short.
_BYTES_PER_S = 1_000.0
_PAYLOAD = bytes(2_500)
# Any request at all takes more of the broker's time.
_HARDLY_ANY_TIME = 1e-6


class _Quotas:
    """Sets the quotas of client ids, and waits until they count."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def set(self, client_id: str, key: str, bound: float | None) -> None:
        entity = QuotaEntity.of({"client-id": client_id})
        assert self._admin.alter_client_quotas({entity: {key: bound}}) == {entity: None}
        wanted = {} if bound is None else {entity: {key: bound}}
        deadline = time.monotonic() + _TIMEOUT_S
        while (found := self._admin.describe_client_quotas({"client-id": client_id})) != wanted:
            assert time.monotonic() < deadline, f"{found} instead of {wanted}"
            time.sleep(0.02)


@pytest.fixture
def quotas(odradek: OdradekBroker) -> Iterator[_Quotas]:
    with Admin({"bootstrap.servers": odradek.bootstrap}) as admin:
        yield _Quotas(admin)


class _Throttles(list[float]):
    """How long a client was told to keep still, in seconds, each time it was told."""

    def note(self, event: ThrottleEvent) -> None:
        # The first answer after a throttle is reported, too, with 0.
        if event.throttle_time > 0:
            self.append(event.throttle_time)


class _Writer:
    """A producer that notes what it was told about its quota."""

    def __init__(self, broker: OdradekBroker, client_id: str) -> None:
        self.throttled = _Throttles()
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": client_id,
                "throttle_cb": self.throttled.note,
            }
        )

    def write(self, topic: str, count: int = 1) -> None:
        """Writes messages, each in a request of its own."""
        for _ in range(count):
            self._producer.produce(topic, value=_PAYLOAD, partition=0, on_delivery=_check)
            assert self._producer.flush(_TIMEOUT_S) == 0
        self._producer.poll(0)

    def write_until_throttled(self, topic: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not self.throttled:
            assert time.monotonic() < deadline, "nobody asked it to keep still"
            self.write(topic)


def _check(error: KafkaError | None, _: object) -> None:
    assert error is None, error


@pytest.mark.parametrize(
    ("key", "bound"),
    [("producer_byte_rate", _BYTES_PER_S), ("request_percentage", _HARDLY_ANY_TIME)],
)
def test_a_producer_keeps_still(
    odradek: OdradekBroker, quotas: _Quotas, new_topic: Callable[[], str], key: str, bound: float
) -> None:
    """13:Q2: by client id; another one is free, and so is this one without its quota."""
    topic, client_id = new_topic(), f"slow producer of {key}"
    quotas.set(client_id, key, bound)
    slow, free = _Writer(odradek, client_id), _Writer(odradek, _FREE_CLIENT)

    slow.write_until_throttled(topic)
    free.write(topic, 20)

    assert free.throttled == []

    quotas.set(client_id, key, None)
    freed = _Writer(odradek, client_id)
    freed.write(topic, 20)
    assert freed.throttled == []


@pytest.mark.parametrize(
    ("key", "bound"),
    [("consumer_byte_rate", _BYTES_PER_S), ("request_percentage", _HARDLY_ANY_TIME)],
)
def test_a_consumer_keeps_still(
    odradek: OdradekBroker, quotas: _Quotas, new_topic: Callable[[], str], key: str, bound: float
) -> None:
    """A fetch over its quota is answered empty; what it was for comes later, none of it twice."""
    topic, count, client_id = new_topic(), 20, f"slow consumer of {key}"
    _Writer(odradek, _FREE_CLIENT).write(topic, count)
    quotas.set(client_id, key, bound)

    free_offsets, free_throttles = _read(odradek, topic, _FREE_CLIENT, count)
    slow_offsets, slow_throttles = _read(
        odradek, topic, client_id, count, on_throttle=lambda: quotas.set(client_id, key, None)
    )
    freed_offsets, freed_throttles = _read(odradek, topic, client_id, count)

    assert free_offsets == slow_offsets == freed_offsets == list(range(count))
    assert len(slow_throttles) > 0
    assert free_throttles == freed_throttles == []


def _read(
    broker: OdradekBroker,
    topic: str,
    client_id: str,
    count: int,
    on_throttle: Callable[[], None] | None = None,
) -> tuple[list[int | None], _Throttles]:
    """The offsets of so many messages, and what the consumer was told about its quota.

    Args:
        on_throttle: Called once, when it was told for the first time.
    """
    throttled = _Throttles()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "group.id": "unused",
            "enable.auto.commit": False,
            "throttle_cb": throttled.note,
            # One message at a time, so that a quota is exceeded by little.
            "max.partition.fetch.bytes": len(_PAYLOAD),
        }
    )
    offsets: list[int | None] = []
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(offsets) < count:
            assert time.monotonic() < deadline, f"only {len(offsets)} of {count} came"
            message = consumer.poll(0.1)
            if throttled and on_throttle is not None:
                on_throttle()
                on_throttle = None
            if message is not None:
                assert message.error() is None
                offsets.append(message.offset())
    finally:
        consumer.close()
    return offsets, throttled
