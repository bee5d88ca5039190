"""Columns and raw batches, and the calls of the low-level consumer, whoever made the broker."""

import asyncio
import time
from typing import Any

import pytest

from odradek import Consumer, Producer, SimpleConsumer, aio
from odradek.client.consumer import OffsetAndMetadata
from odradek.errors import ApiError, ErrorCode, OffsetOutOfRangeError
from odradek.model import TopicPartition
from tests.conformance.interop.consumer_checks import WAIT_S, read, values_of
from tests.conformance.interop.suite import Check
from tests.support.group_readers import DEADLINE_S, create_topic, new_name, produce

__all__ = ["RAW_CHECKS"]


def arrow_rows(consumer: Consumer, count: int, *columns: str, **options: Any) -> list[Any]:
    """So many rows of these columns from `poll_arrow`."""
    rows: list[Any] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} rows of {count}"
        for part in consumer.poll_arrow(1, **options):
            rows += zip(*(part[name].to_pylist() for name in columns), strict=True)
    return rows


def check_columns_are_what_records_are(bootstrap: str) -> None:
    """09:CL-28."""
    pytest.importorskip("pyarrow")
    topic = create_topic(bootstrap, 1)
    produce(bootstrap, topic, values_of(500), partitions=1)
    tp = (topic, 0)
    with Consumer(bootstrap_servers=bootstrap, max_poll_records=7) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()
        rows = [(topic, record.offset, record.value) for record in consumer.poll(WAIT_S)]
        assert rows
        rows += arrow_rows(consumer, 500 - len(rows), "topic", "offset", "value")
        assert rows == [(topic, *one) for one in enumerate(values_of(500))]
        assert consumer.position(tp) == 500


def check_columns_of_every_codec(bootstrap: str) -> None:
    """09:CL-28: headers, null keys and values, small bites."""
    pytest.importorskip("pyarrow")
    topic = create_topic(bootstrap, 1)
    wanted: list[Any] = []
    now_ms = int(time.time() * 1000)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            for number in range(20):
                key = b"k%d" % number if number % 2 else None
                value = None if number == 3 else codec.encode() * number
                headers = [("h", b"1"), ("n", None)] if number % 5 == 0 else None
                producer.send(topic, value, key, headers, 0, now_ms)
                told = (
                    headers
                    if headers is None
                    else [{"key": name, "value": some} for name, some in headers]
                )
                wanted.append((len(wanted), key, value, told))
    settings: dict[str, Any] = {"auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.assign([(topic, 0)])
        columns = ("offset", "key", "value", "headers")
        assert arrow_rows(consumer, 100, *columns, headers=True, max_bytes=500) == wanted


def check_raw_batches_from_any_offset_to_any_other(bootstrap: str) -> None:
    """09:CL-29."""
    topic = create_topic(bootstrap, 1)
    with Producer(bootstrap_servers=bootstrap, batch_size=400, compression_type="lz4") as producer:
        for value in values_of(300):
            producer.send(topic, value, partition=0)
    with SimpleConsumer(bootstrap_servers=bootstrap) as simple:
        raws = list(simple.fetch_batches(topic, 0, 100, 250, 1_000, timeout=WAIT_S))
        assert raws[0].first <= 100
        assert raws[-1].next_offset >= 250
        assert all(raw.high_watermark == 300 for raw in raws)
        joined = b"".join(bytes(raw.columns(start=100).value.data) for raw in raws)
        assert joined.startswith(b"".join(values_of(250)[100:]))
        (last,) = {raw.next_offset for raw in simple.fetch_batches(topic, 0, 299, timeout=WAIT_S)}
        assert last == 300
        assert list(simple.fetch_batches(topic, 0, 300, timeout=WAIT_S)) == []
        with pytest.raises(OffsetOutOfRangeError):
            list(simple.fetch_batches(topic, 0, 301, timeout=WAIT_S))

    async def read_awaited() -> int:
        async with aio.SimpleConsumer(bootstrap_servers=bootstrap) as simple:
            raws = [raw async for raw in simple.fetch_batches(topic, 0, 0, timeout=WAIT_S)]
            return raws[-1].next_offset

    assert asyncio.run(read_awaited()) == 300


def check_one_broker_asked_directly(bootstrap: str) -> None:
    """09:CL-29: section 10's calls."""
    topic, group = create_topic(bootstrap, 2), new_name("g")
    produce(bootstrap, topic, values_of(20), partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with SimpleConsumer(bootstrap_servers=bootstrap) as simple:
        cluster = simple.metadata([topic], WAIT_S)
        leader = cluster.leader(first)
        assert leader is not None
        assert f"{leader.host}:{leader.port}" == bootstrap
        found = simple.fetch({first: 4, second: 10}, max_wait_ms=0, timeout=WAIT_S)
        assert [one.error for one in found.values()] == [None, None]
        assert [one.high_watermark for one in found.values()] == [10, 10]
        assert found[first].records
        assert not found[second].records
        beyond = simple.fetch({first: 11}, timeout=WAIT_S)[first]
        assert beyond.error is not None
        assert beyond.error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert simple.earliest_or_latest_offset(first, -2, WAIT_S) == 0
        assert simple.earliest_or_latest_offset(first, -1, WAIT_S) == 10
        with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            simple.earliest_or_latest_offset((topic, 9), -1, WAIT_S)
        assert simple.coordinator(group, WAIT_S) == leader.id
        simple.commit_offsets(group, {first: 3, second: OffsetAndMetadata(5, "note")}, WAIT_S)
        assert simple.fetch_offsets(group, timeout=WAIT_S) == {
            first: OffsetAndMetadata(3),
            second: OffsetAndMetadata(5, "note"),
        }
    with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.assign([first])
        assert [record.offset for record in read(consumer, 7)] == list(range(3, 10))


RAW_CHECKS: tuple[Check, ...] = (
    check_columns_are_what_records_are,
    check_columns_of_every_codec,
    check_raw_batches_from_any_offset_to_any_other,
    check_one_broker_asked_directly,
)
