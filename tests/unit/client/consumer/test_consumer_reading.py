"""Reading partitions from a broker that says what the test wants: positions, trouble, resets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.client.consumer import (
    InvalidGroupError,
    NoOffsetForPartitionError,
    OffsetsOutOfRangeError,
    WakeupError,
)
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import CallTimeoutError, ClosedError
from odradek.errors import ApiError, CorruptRecordError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.records.builder import build_batch
from odradek.records.codec import ConsumerRecord
from tests.support.scripted_broker import HANG_UP, ScriptedBroker, scripted, told_topic
from tests.support.scripted_groups import (
    TP,
    batch,
    committed,
    coordinator_is,
    ends,
    fetched,
    never_answer,
    script_coordinator,
    script_topic,
)

WAIT_S = 60.0


@asynccontextmanager
async def consumer_of(broker: ScriptedBroker, **settings: object) -> AsyncIterator[Consumer]:
    defaults: dict[str, object] = {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 2,
        "enable_auto_commit": False,
    }
    async with Consumer(**defaults | settings) as consumer:  # type: ignore[arg-type]  # settings
        yield consumer


async def poll_values(consumer: Consumer) -> list[bytes | None]:
    return [record.value for record in await consumer.poll(WAIT_S)]


def asked_offsets(broker: ScriptedBroker) -> list[int]:
    requests: list[FetchRequest] = broker.received(ApiKey.FETCH)
    return [
        partition.fetch_offset
        for request in requests
        for topic in request.topics
        for partition in topic.partitions
    ]


async def test_the_position_follows_what_was_handed_out() -> None:
    """09:CL-21: it counts what the application has, not what is buffered."""
    async with scripted() as broker, consumer_of(broker, max_poll_records=1) as consumer:
        script_topic(broker, fetched(batch(0, b"a", b"b")), fetched(batch(2, b"c")), never_answer)
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        positions = []
        values = []
        for _ in range(3):
            values += await poll_values(consumer)
            positions.append(await consumer.position(TP))
        assert values == [b"a", b"b", b"c"]
        assert positions == [1, 2, 3]
        assert await consumer.poll(0) == []
        assert consumer.lag(TP) == 47
    assert asked_offsets(broker)[:2] == [0, 2]


@pytest.mark.parametrize(
    "trouble",
    [HANG_UP, fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    ids=["a lost connection", "a moved leader"],
)
async def test_trouble_is_survived_at_the_same_position(trouble: Any) -> None:
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, trouble, fetched(batch(0, b"a")), never_answer)
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        assert await poll_values(consumer) == [b"a"]
    assert asked_offsets(broker)[:2] == [0, 0]


async def test_a_corrupt_batch_is_told_and_asked_for_again() -> None:
    """09:CL-18: check.crcs."""
    corrupt = bytearray(build_batch([(0, None, b"x", ())]))
    corrupt[-2] ^= 0xFF
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(bytes(corrupt)), fetched(batch(0, b"a")), never_answer)
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        with pytest.raises(CorruptRecordError, match="t-0"):
            await consumer.poll(WAIT_S)
        # What was fetched behind it may have been asked for already.
        assert await poll_values(consumer) == [b"a"]


async def test_an_error_for_good_is_raised() -> None:
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        with pytest.raises(ApiError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
            await consumer.poll(WAIT_S)


@pytest.mark.parametrize(("policy", "position"), [("earliest", 7), ("latest", 9)])
async def test_an_offset_that_is_gone_is_reset_by_policy(policy: str, position: int) -> None:
    """09:CL-24."""
    async with scripted() as broker, consumer_of(broker, auto_offset_reset=policy) as consumer:
        script_topic(
            broker,
            fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
            fetched(batch(position, b"a")),
            never_answer,
        )
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(7, 9))
        await consumer.assign([TP])
        await consumer.seek(TP, 2)
        assert [record.offset for record in await consumer.poll(WAIT_S)] == [position]


async def test_without_a_policy_an_offset_that_is_gone_is_the_applications_to_settle() -> None:
    """09:CL-24."""
    async with scripted() as broker, consumer_of(broker, auto_offset_reset="none") as consumer:
        script_topic(
            broker,
            fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
            fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
            fetched(batch(7, b"a")),
            never_answer,
        )
        await consumer.assign([TP])
        await consumer.seek(TP, 2)
        with pytest.raises(OffsetsOutOfRangeError) as caught:
            await consumer.poll(WAIT_S)
        assert caught.value.offsets == {TP: 2}
        await consumer.seek(TP, 7)
        records: list[ConsumerRecord] = []
        while not records:
            try:
                records = await consumer.poll(WAIT_S)
            except OffsetsOutOfRangeError:  # Of a request that was under way.
                continue
        assert [record.offset for record in records] == [7]


async def test_without_a_policy_a_partition_without_an_offset_is_an_error() -> None:
    """09:CL-24."""
    async with (
        scripted() as broker,
        consumer_of(broker, auto_offset_reset="none", group_id="g") as consumer,
    ):
        script_topic(broker, fetched(batch(3, b"a")), never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(-1))
        await consumer.assign([TP])
        with pytest.raises(NoOffsetForPartitionError, match="t-0"):
            await consumer.poll(WAIT_S)
        await consumer.seek(TP, 3)
        values: list[bytes | None] = []
        while not values:
            try:
                values = await poll_values(consumer)
            except NoOffsetForPartitionError:  # Told before the seek, heard of after it.
                continue
        assert values == [b"a"]


async def test_a_seek_counts_more_than_what_is_committed() -> None:
    """09:CL-24."""
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, fetched(batch(3, b"a")), never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(40))
        await consumer.assign([TP])
        await consumer.seek(TP, 3)
        assert await poll_values(consumer) == [b"a"]
        assert await consumer.position(TP) == 4
    assert asked_offsets(broker)[0] == 3


async def test_what_is_committed_counts_more_than_the_policy() -> None:
    """09:CL-24."""
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, fetched(batch(40, b"a")), never_answer)
        script_coordinator(broker, coordinator_is(15), coordinator_is())
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(40))
        await consumer.assign([TP])
        assert await consumer.position(TP, WAIT_S) == 40
        assert await poll_values(consumer) == [b"a"]


async def test_a_log_that_was_cut_below_the_position_is_read_again_from_there() -> None:
    """09:CL-24: the offset was committed in epoch 2, which ended at 30; now epoch 5 is led."""
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        broker.topics["t"] = told_topic("t", leader_epoch=5)
        broker.will_answer(ApiKey.FETCH, fetched(batch(30, b"other")), never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(40, leader_epoch=2))
        end = EpochEndOffset(partition=0, leader_epoch=2, end_offset=30)
        topic = OffsetForLeaderTopicResult(topic="t", partitions=[end])
        broker.will_answer(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochResponse(topics=[topic])
        )
        await consumer.assign([TP])
        records: list[ConsumerRecord] = []
        while not records:
            records = await consumer.poll(WAIT_S)
        assert [record.value for record in records] == [b"other"]
    assert asked_offsets(broker)[-1] >= 30


async def test_a_session_the_broker_forgot_begins_anew() -> None:
    """09:CL-26."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(
            broker,
            fetched(batch(0, b"a"), session_id=9),
            FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            fetched(batch(1, b"b"), session_id=10),
            never_answer,
        )
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        values = await poll_values(consumer)
        while len(values) < 2:
            values += await poll_values(consumer)
        assert values == [b"a", b"b"]
    sessions = [(one.session_id, one.session_epoch) for one in broker.received(ApiKey.FETCH)]
    assert sessions[:3] == [(0, 0), (9, 1), (0, 0)]


async def test_what_was_fetched_for_a_paused_partition_is_not_handed_out() -> None:
    """09:CL-21, 09:CL-27."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(batch(0, b"a")), never_answer)
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        while not consumer.has_records:  # noqa: ASYNC110 - no event tells of it, on purpose
            await asyncio.sleep(0.001)
        await consumer.pause([TP])
        assert consumer.paused() == {TP}
        assert await consumer.poll(0) == []
        assert await consumer.position(TP) == 0
        await consumer.resume([TP])
        assert consumer.paused() == frozenset()


async def test_wakeup_ends_a_poll_that_waits() -> None:
    """09:CL-27."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, never_answer)
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        polling = asyncio.ensure_future(consumer.poll(WAIT_S))
        await asyncio.sleep(0)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await polling
        assert await consumer.poll(0) == []


async def test_deadlines_are_honoured_by_a_broker_that_is_silent() -> None:
    """09:CL-5."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, never_answer)
        broker.will_answer(ApiKey.LIST_OFFSETS, never_answer)
        await consumer.assign([TP])
        with pytest.raises(CallTimeoutError, match="t-0"):
            await consumer.position(TP, 0.05)
        with pytest.raises(TimeoutError):
            await consumer.end_offsets([TP], 0.05)
        await consumer.close(timeout=0)
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.poll(0)


async def test_without_a_group_there_is_nothing_to_subscribe_or_commit_to() -> None:
    """09:CL-18."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        with pytest.raises(InvalidGroupError, match="needs group"):
            await consumer.subscribe(["t"])
        with pytest.raises(InvalidGroupError):
            await consumer.commit_sync()
        with pytest.raises(ValueError, match="subscribe or assign"):
            await consumer.poll(0)
        with pytest.raises(ValueError, match="not assigned"):
            await consumer.seek(TopicPartition("t", 1), 0)


async def test_deserializers_and_interceptors_see_every_record() -> None:
    class Interceptor:
        def __init__(self) -> None:
            self.seen: list[object] = []

        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            self.seen += [record.value for record in records]
            return records[:1]

        def on_commit(self, offsets: object) -> None:
            raise AssertionError(offsets)

    interceptor = Interceptor()
    settings: dict[str, Any] = {
        "value_deserializer": bytes.decode,
        "interceptors": [interceptor],
    }
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, fetched(batch(0, b"a", b"b")), never_answer)
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        records = await consumer.poll(WAIT_S)
        values: list[object] = [record.value for record in records]
        assert values == ["a"]
        assert interceptor.seen == ["a", "b"]


async def test_an_iteration_moves_the_position_record_by_record() -> None:
    """A loop that ends early has consumed what it was given, although more was fetched."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(batch(0, b"a", b"b", b"c", b"d", b"e")), never_answer)
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        values = []
        async for record in consumer:
            values.append(record.value)
            assert await consumer.position(TP) == record.offset + 1
            if len(values) == 2:
                break
        assert values == [b"a", b"b"]
        assert (await anext(consumer)).value == b"c"
        some = await consumer.poll(WAIT_S, max_records=1)
        assert [one.value for one in some] == [b"d"]
        assert await poll_values(consumer) == [b"e"]


async def test_columns_have_the_rest_of_a_batch_that_a_poll_began() -> None:
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(batch(0, b"a", b"bc", b"d") + batch(3, b"e")), never_answer)
        await consumer.assign([TP])
        await consumer.seek(TP, 0)
        await consumer.poll(WAIT_S, max_records=1)
        rest = await consumer.poll_columns(WAIT_S)
        found = [
            (one.topic, one.partition, memoryview(one.columns.offset).cast("q").tolist())
            for one in rest
        ]
        assert found == [("t", 0, [1, 2]), ("t", 0, [3])]
        assert [bytes(one.columns.value.data) for one in rest] == [b"bcd", b"e"]
        assert memoryview(rest[0].columns.timestamp).cast("q").tolist() == [1_000, 1_000]
        assert await consumer.position(TP) == 4
