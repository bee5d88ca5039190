"""Tables of Arrow to batches: rows to partitions, types, one outcome for all (09:CL-17)."""

import asyncio
from array import array
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from odradek.aio import Producer
from odradek.client.errors import BufferExhaustedError, ClosedError
from odradek.client.partitioner import partition_of_key
from odradek.client.producer import (
    OffsetRange,
    ProducerRecord,
    RecordMetadata,
    RoundRobinPartitioner,
    RowsMetadata,
)
from odradek.errors import ApiError, ErrorCode, OdradekError, RecordTooLargeError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.produce import ProduceRequest
from odradek.records.record import Record, read_records
from odradek.records.rows import BinaryInput, NumberInput, Rows
from tests.support.network import eventually
from tests.support.produced import Log, producer_of, refuse, script, sent_batches
from tests.support.scripted_broker import ScriptedBroker, missing_topic, scripted, told_topic
from tests.unit.client.producer.test_numbers import forget_topics
from tests.unit.client.producer.test_producer_delivery import know_topic, silent


def sent_records(broker: ScriptedBroker, partition: int = 0) -> list[Record]:
    return [
        record
        for batch in sent_batches(broker)
        if batch.partition == partition
        for record in read_records(batch.encoded)
    ]


async def sent_alone(table: Any, **columns: Any) -> list[Record]:
    """What arrives of a table that is sent to one partition."""
    async with scripted() as broker:
        script(broker, Log().append)
        async with producer_of(broker) as producer:
            await (await producer.send_arrow("t", table, **columns))
        return sent_records(broker)


async def test_rows_go_where_their_keys_say_in_order() -> None:
    """09:CL-17, 09:CL-11: grouped by partition, order kept within one."""
    keys = [b"key %d" % (number * 7 % 50) for number in range(5_000)]
    values = [b"%d" % number for number in range(5_000)]
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, partitions=3)
        async with producer_of(broker, batch_size=16_384) as producer:
            delivery = await producer.send_arrow("t", pa.table({"key": keys, "value": values}))
            found = await delivery
            assert delivery.done()
            assert delivery.result() == found
            assert delivery.exception() is None
            assert "5000 rows: arrived" in repr(delivery)
    expected: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
    for key, value in zip(keys, values, strict=True):
        expected[partition_of_key(key, 3)].append(value)

    assert log.values == expected
    assert found == RowsMetadata(
        5_000, tuple(OffsetRange("t", number, 0, len(expected[number])) for number in range(3))
    )
    assert all(len(batch.encoded) <= 16_384 for batch in sent_batches(broker))


async def test_rows_without_a_key_fill_a_batch_here_and_the_next_one_there() -> None:
    """09:CL-12, 09:CL-17."""
    values = [b"%05d" % number * 20 for number in range(3_000)]
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, partitions=4)
        async with producer_of(broker, batch_size=16_384) as producer:
            found = await (await producer.send_arrow("t", pa.table({"value": values})))
    batches = sent_batches(broker)

    assert sorted(value for some in log.values.values() for value in some if value) == values
    assert all(some == sorted(some, key=bytes) for some in log.values.values())  # type: ignore[arg-type]
    assert len({batch.partition for batch in batches}) > 1
    # All are full, but for the last one of each partition.
    assert sum(len(batch.encoded) > 15_000 for batch in batches) >= len(batches) - 4
    assert sum(one.record_count for one in found.ranges) == 3_000


async def test_rows_that_come_together_leave_in_large_batches() -> None:
    """09:CL-17: unless somebody chose the size, as with records that wait."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, partitions=2)
        async with producer_of(broker) as producer:
            table = pa.table({"value": [b"x" * 1_000] * 1_000, "partition": [0, 1] * 500})
            await (await producer.send_arrow("t", table))
    sizes = [len(batch.encoded) for batch in sent_batches(broker)]
    assert len(sizes) == 4
    assert max(sizes) <= 256 * 1024


async def test_a_partition_column_decides_where_it_says_something() -> None:
    """09:CL-17."""
    table = pa.table(
        {
            "value": [b"a", b"b", b"c", b"d"],
            "key": pa.array([b"k", None, b"k", b"k"], pa.binary()),
            "partition": pa.array([2, 1, None, 2], pa.int64()),
        }
    )
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, partitions=3)
        async with producer_of(broker) as producer:
            await (await producer.send_arrow("t", table))
            expected: dict[int, list[bytes]] = {2: [b"a"], 1: [b"b"]}
            expected.setdefault(partition_of_key(b"k", 3), []).append(b"c")
            expected[2].append(b"d")
            assert log.values == expected
            with pytest.raises(ApiError, match="row 1 is for partition 3, but") as error:
                await producer.send_arrow("t", pa.table({"value": [b""] * 2, "partition": [0, 3]}))
            assert error.value.code is ErrorCode.INVALID_PARTITIONS
            count = len(broker.received(ApiKey.PRODUCE))
            await producer.flush()
            assert len(broker.received(ApiKey.PRODUCE)) == count  # Nothing of it was sent.


HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.binary(), [b"a", None, b""]),
        (pa.string(), ["a", None, ""]),
        (pa.large_binary(), [b"a", None, b""]),
        (pa.large_string(), ["a", None, ""]),
        (pa.binary_view(), [b"a", None, b""]),
        (pa.string_view(), ["a", None, ""]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", None, ""]),
    ],
    ids=str,
)
async def test_values_and_keys_may_be_bytes_or_text(kind: Any, values: list[Any]) -> None:
    """09:CL-17."""
    column = pa.array(values, kind)
    records = await sent_alone(pa.table({"key": column, "value": column}))
    assert [(record.key, record.value) for record in records] == [
        (b"a", b"a"),
        (None, None),
        (b"", b""),
    ]


async def test_other_columns_of_bytes() -> None:
    fixed = pa.array([b"ab", None], pa.binary(2))
    records = await sent_alone(pa.table({"key": pa.nulls(2), "value": fixed}))
    assert [(record.key, record.value) for record in records] == [(None, b"ab"), (None, None)]
    records = await sent_alone(pa.table({"value": pa.nulls(1), "key": [b"gone"]}))
    assert [(record.key, record.value) for record in records] == [(b"gone", None)]


@pytest.mark.parametrize("step", [1, 3])
async def test_slices_chunks_headers_and_times(step: int) -> None:
    """09:CL-17: a slice of a table is as good as a whole one."""
    count = 40
    pairs = [None if n % 4 == 0 else [("a", b"%d" % n), ("b", None)][: n % 3] for n in range(count)]
    batches = [
        pa.record_batch(
            {
                "value": pa.array([b"v%d" % n for n in numbers], pa.binary()),
                "headers": pa.array([_as_structs(pairs[n]) for n in numbers], HEADER_TYPE),
                "timestamp": pa.array([1_000 * n or None for n in numbers], pa.timestamp("us")),
            }
        )
        for numbers in (range(17), range(17, count))
    ]
    table = pa.Table.from_batches(batches).slice(step, count - 2 * step)
    records = await sent_alone(table)

    numbers = range(step, count - step)
    assert [record.value for record in records] == [b"v%d" % n for n in numbers]
    assert [record.headers for record in records] == [tuple(pairs[n] or ()) for n in numbers]
    assert [record.timestamp for record in records] == list(numbers)


def _as_structs(pairs: Any) -> Any:
    return None if pairs is None else [{"key": key, "value": value} for key, value in pairs]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_794_000_000_123, None], pa.int64()),
        pa.array([datetime(2026, 11, 6, 21, 20, 0, 123_999, UTC), None], pa.timestamp("ns", "UTC")),
        pa.array([datetime(2026, 11, 6, 21, 20, 0, 123_000), None], pa.timestamp("ms")),  # noqa: DTZ001
    ],
    ids=lambda column: str(column.type),
)
async def test_a_row_without_a_time_gets_this_one(column: Any) -> None:
    """09:CL-17."""
    records = await sent_alone(pa.table({"value": [b"", b""], "timestamp": column}))
    assert records[0].timestamp == 1_794_000_000_123
    assert abs(records[1].timestamp - datetime.now(UTC).timestamp() * 1000) < 600_000


async def test_headers_may_be_a_map_or_large_or_nothing() -> None:
    mapped = pa.array([[("a", b"1")], None, []], pa.map_(pa.string(), pa.binary()))
    large = pa.array(
        [[{"key": "a", "value": b"1"}], None, []],
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.string())])),
    )
    for column in (mapped, large, mapped.slice(0, 3)):
        records = await sent_alone(pa.table({"value": [b""] * 3, "headers": column}))
        assert [record.headers for record in records] == [(("a", b"1"),), (), ()]
    records = await sent_alone(pa.table({"value": [b""], "headers": pa.nulls(1)}))
    assert records[0].headers == ()


async def test_columns_have_the_names_one_gives_them() -> None:
    """09:CL-17: other columns are not looked at."""
    table = pa.table(
        {"id": ["k"], "payload": ["v"], "key": ["not this"], "n": [1], "partition": [9]}
    )
    records = await sent_alone(table, key="id", value="payload", partition=None)
    assert [(record.key, record.value) for record in records] == [(b"k", b"v")]


async def test_a_topic_column_wins_if_it_is_asked_for() -> None:
    """12:SP-38: the topic column wins over the topic given."""
    table = pa.table(
        {"value": [b"a", b"b", b"c", b"d"], "topic": pa.array(["u", None, "t", "u"], pa.string())}
    )
    log: dict[str, list[bytes | None]] = {}

    def take(request: ProduceRequest) -> Any:
        for topic in request.topic_data:
            for one in topic.partition_data:
                values = [record.value for record in read_records(bytes(one.records or b""))]
                log.setdefault(bytes(topic.topic_id).decode().strip("\0 ."), []).extend(values)
        return Log().append(request)

    async with scripted() as broker:
        script(broker, take)
        broker.topics["u"] = told_topic("u")
        async with producer_of(broker) as producer:
            found = await (await producer.send_arrow("t", table, topic_column="topic"))
            assert {(one.topic, one.record_count) for one in found.ranges} == {("t", 2), ("u", 2)}
            assert sorted(map(tuple, log.values())) == [(b"a", b"d"), (b"b", b"c")]
            only = await (await producer.send_arrow("t", table))
            assert {one.topic for one in only.ranges} == {"t"}
            one_topic = table.slice(3, 1)
            alone = await (await producer.send_arrow(None, one_topic, topic_column="topic"))
            assert {one.topic for one in alone.ranges} == {"u"}
            with pytest.raises(ValueError, match="1 nulls, and no topic"):
                await producer.send_arrow(None, table, topic_column="topic")
            with pytest.raises(ValueError, match="no topic"):
                await producer.send_arrow(None, table)


@pytest.mark.parametrize(
    ("table", "columns", "error", "message"),
    [
        ([b"v"], {}, TypeError, "expected a pyarrow.RecordBatch or Table, not a list"),
        (pa.table({"key": [b"k"]}), {}, ValueError, "no column 'value' .* there are 'key'"),
        (pa.table({"value": [b"v"]}), {"key": "id"}, ValueError, "no column 'id' for the key"),
        (pa.table({"value": [1]}), {}, TypeError, "'value' is int64, expected binary or string"),
        (pa.table({"value": [b""], "key": [1.5]}), {}, TypeError, "'key' is double"),
        (pa.table({"value": [b""], "headers": ["h"]}), {}, TypeError, "'headers' is string"),
        (pa.table({"value": [b""], "headers": [[b"h"]]}), {}, TypeError, "'headers' is list<"),
        (pa.table({"value": [b""], "partition": ["0"]}), {}, TypeError, "'partition' is string"),
        (pa.table({"value": [b""], "partition": [2**31]}), {}, TypeError, "'partition' cannot be"),
        (pa.table({"value": [b""], "timestamp": ["1"]}), {}, TypeError, "'timestamp' is string"),
        (pa.table({"value": [b""], "timestamp": [-1]}), {}, ValueError, "'timestamp' has -1"),
        (pa.table({"value": [b""], "to": [1]}), {"topic_column": "to"}, TypeError, "'to' is int64"),
        (
            pa.Table.from_arrays([pa.array([b""]), pa.array([b""])], names=["value", "value"]),
            {},
            ValueError,
            "'value' is there 2 times",
        ),
        (
            pa.table({"value": [b""], "headers": [[{"key": None, "value": b""}]]}),
            {},
            TypeError,
            r"headers\.key",
        ),
        (
            pa.table({"value": [b""], "headers": pa.array([[None]], HEADER_TYPE)}),
            {},
            ValueError,
            "row 0: a header has no key",
        ),
        (pa.table({"value": [b"x" * 5_000]}), {}, RecordTooLargeError, r"row 0 .*max\.request"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_anything_is(
    table: Any, columns: dict[str, Any], error: type[Exception], message: str
) -> None:
    """09:CL-17, 12:SP-38."""
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker, max_request_size=4_000) as producer:
            if error is TypeError and "headers.key" in message.replace("\\", ""):
                table = table.set_column(1, "headers", pa.array([[{"key": 7, "value": b""}]]))
            with pytest.raises(error, match=message):
                await producer.send_arrow("t", table, **columns)
            await producer.flush()
        assert broker.received(ApiKey.PRODUCE) == []


async def test_a_table_without_rows_is_done_at_once() -> None:
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker) as producer:
            empty = pa.table({"value": pa.array([], pa.binary())})
            delivery = await producer.send_arrow("t", empty)
            assert await delivery == RowsMetadata(0, ())
            assert await (await producer.send_arrow("t", empty.schema.empty_table()))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_are_compressed(codec: str) -> None:
    values = [b"%d" % (number % 10) * 50 for number in range(2_000)]
    async with scripted() as broker:
        script(broker, Log().append)
        async with producer_of(broker, compression_type=codec) as producer:
            await (await producer.send_arrow("t", pa.table({"value": values})))
            assert producer.metrics()["compression-rate-avg"] < 0.5
        assert [record.value for record in sent_records(broker)] == values


async def test_rows_are_retried_and_numbered_like_records() -> None:
    """09:CL-14: in order, each once, behind what was sent before."""
    log = Log()
    async with scripted() as broker:
        script(
            broker,
            refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            log.append,
            refuse(ErrorCode.UNKNOWN_PRODUCER_ID),
            log.append,
        )
        async with producer_of(broker, batch_size=1_000) as producer:
            first = await producer.send("t", b"first")
            rows = [b"%d" % number * 30 for number in range(100)]
            delivery = await producer.send_arrow("t", pa.table({"value": rows}))
            last = await producer.send("t", b"last")
            found = await delivery
            assert ((await first).offset, (await last).offset) == (0, 101)

    assert log.values == {0: [b"first", *rows, b"last"]}
    assert found.ranges == (OffsetRange("t", 0, 1, 100),)


async def test_rows_in_a_batch_that_is_too_large_are_split() -> None:
    """09:CL-15."""
    log = Log()
    refuse_it: Any = refuse(ErrorCode.MESSAGE_TOO_LARGE)

    def at_most_three(request: ProduceRequest) -> Any:
        count = sent_batches(broker)[-1].header.record_count
        return log.append(request) if count <= 3 else refuse_it(request)

    async with scripted() as broker:
        script(broker, at_most_three)
        async with producer_of(broker, compression_type="lz4") as producer:
            rows = [b"%d" % number for number in range(11)]
            found = await (await producer.send_arrow("t", pa.table({"value": rows})))

    assert log.values == {0: rows}
    assert found == RowsMetadata(11, (OffsetRange("t", 0, 0, 11),))


async def test_a_failure_of_some_is_a_failure_of_the_lot() -> None:
    """12:SP-38: a record the broker refuses fails the task."""
    failed: list[int] = []
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.INVALID_RECORD), Log().append)
        async with producer_of(
            broker, batch_size=0, on_error=lambda some: failed.append(some.record_count)
        ) as producer:
            delivery = await producer.send_arrow("t", pa.table({"value": [b"a", b"b"]}))
            with pytest.raises(ApiError) as error:
                await delivery
            assert error.value.code is ErrorCode.INVALID_RECORD
            assert delivery.exception() is error.value
            assert "failed" in repr(delivery)
    assert failed == [1]


async def test_rows_wait_for_room_in_the_buffer() -> None:
    """09:CL-8: bounded memory, however large the table."""
    rows = [b"%04d" % number * 25 for number in range(1_000)]
    log = Log()
    async with scripted() as broker:
        script(broker, log.append)
        async with producer_of(broker, buffer_memory=5_000, batch_size=2_000) as producer:
            delivery = await producer.send_arrow("t", pa.table({"value": rows}))
            await delivery
            assert producer.metrics()["buffer-available-bytes"] == 5_000
    assert log.values == {0: rows}

    async with scripted() as broker:
        script(broker, silent)
        settings = {"buffer_memory": 5_000, "batch_size": 2_000, "max_block_ms": 30}
        async with producer_of(broker, on_error=lambda _: None, **settings) as producer:
            await know_topic(producer)
            with pytest.raises(BufferExhaustedError):
                await producer.send_arrow("t", pa.table({"value": rows}))
            await producer.close(timeout=0)


async def test_a_delivery_of_rows_can_be_watched() -> None:
    seen: list[int] = []
    async with scripted() as broker:
        script(broker, silent)
        async with producer_of(broker, on_error=lambda _: None) as producer:
            delivery = await producer.send_arrow("t", pa.table({"value": [b"a"]}))
            delivery.add_done_callback(lambda one: seen.append(one.record_count))
            assert not delivery.done()
            assert "on their way" in repr(delivery)
            with pytest.raises(RuntimeError, match="await the delivery"):
                delivery.result()
            waiting = asyncio.ensure_future(_waits(delivery))
            await asyncio.sleep(0)
            await producer.close(timeout=0)
            assert isinstance(await waiting, ClosedError)
            with pytest.raises(ClosedError):
                await producer.send_arrow("t", pa.table({"value": [b"a"]}))
    assert seen == [1]


async def _waits(delivery: Any) -> OdradekError | None:
    try:
        await delivery
    except OdradekError as error:
        return error
    return None


async def test_interceptors_see_each_row() -> None:
    """09:CL-16."""
    acknowledged: list[tuple[int, int]] = []

    class Marks:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=record.value + b"!", partition=record.partition or 0)

        def on_acknowledgement(self, metadata: RecordMetadata, error: OdradekError | None) -> None:
            assert error is None
            acknowledged.append((metadata.partition, metadata.offset))

    table = pa.table(
        {
            "value": [b"a", b"b", b"c"],
            "key": [b"k", b"k", b"k"],
            "partition": pa.array([1, None, 1], pa.int32()),
        }
    )
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, partitions=2)
        async with producer_of(broker, interceptors=[Marks()]) as producer:
            found = await (await producer.send_arrow("t", table))
    assert log.values == {0: [b"b!"], 1: [b"a!", b"c!"]}
    assert found.ranges == (OffsetRange("t", 0, 0, 1), OffsetRange("t", 1, 0, 2))
    assert sorted(acknowledged) == [(0, 0), (1, 0), (1, 1)]


async def test_a_partitioner_of_ones_own_is_asked_for_each_row() -> None:
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, partitions=3)
        async with producer_of(broker, partitioner=RoundRobinPartitioner()) as producer:
            table = pa.table({"value": [b"%d" % number for number in range(2_500)]})
            found = await (await producer.send_arrow("t", table))
    assert {partition: len(values) for partition, values in log.values.items()} == {
        0: 834,
        1: 833,
        2: 833,
    }
    assert found.record_count == 2_500


async def test_a_producer_that_was_not_started_says_so() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(RuntimeError, match="not started"):
        await producer.send_arrow("t", pa.table({"value": [b"a"]}))
    await producer.close()


async def test_a_topic_that_is_forgotten_while_another_is_asked_about_is_learned_again() -> None:
    """09:CL-4, 09:CL-17: nobody had used it for long, which does not close the producer."""
    table = pa.table({"value": [b"a", b"b"], "topic": ["t", "u"]})
    async with scripted() as broker:
        script(broker)
        broker.topics["u"] = missing_topic("u")
        async with producer_of(broker) as producer:
            await (await producer.send("t", b""))
            await eventually(lambda: not producer.accumulator.incomplete)
            asked_count = len(broker.received(ApiKey.METADATA))
            sending = asyncio.create_task(producer.send_arrow(None, table, topic_column="topic"))
            await eventually(lambda: len(broker.received(ApiKey.METADATA)) > asked_count)
            forget_topics(producer)
            broker.topics["u"] = told_topic("u")
            found = await (await sending)

    assert [(one.topic, one.record_count) for one in found.ranges] == [("t", 1), ("u", 1)]
    assert [batch.values for batch in sent_batches(broker)] == [[b""], [b"a"], [b"b"]]


async def test_rows_without_arrow() -> None:
    """`send_rows`: the same for columns that the caller has put together."""
    values = b"abcdef"
    offsets = array("i", [0, 1, 3, 3, 6])
    key = BinaryInput(0, bytes([0b1001]), memoryview(array("i", [0, 1, 1, 1, 2])).cast("B"), b"xy")
    rows = Rows(
        4, key=key, value=BinaryInput(0, None, memoryview(offsets).cast("B"), values), timestamp=7
    )
    async with scripted() as broker:
        script(broker, Log().append, partitions=2)
        async with producer_of(broker) as producer:
            partitions = NumberInput(0, None, memoryview(array("i", [1, 0, 1, 1])).cast("B"))
            found = await (await producer.send_rows("t", rows, partitions))
            assert found.record_count == 4
        ones = [(one.timestamp, one.key, one.value) for one in sent_records(broker, 1)]
        assert ones == [(7, b"x", b"a"), (7, None, b""), (7, b"y", b"def")]
        assert [one.value for one in sent_records(broker, 0)] == [b"bc"]
