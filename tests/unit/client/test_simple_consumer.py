"""The low-level reader: one retry, raw batches, and the leader found again."""

import asyncio
from typing import Any

import pytest

from odradek.client.errors import CallTimeoutError, ClosedError
from odradek.client.simple_consumer import RawBatches, SimpleConsumer
from odradek.errors import (
    CorruptRecordError,
    DisconnectedError,
    ErrorCode,
    OffsetOutOfRangeError,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.support.scripted_broker import HANG_UP, ScriptedBroker, scripted, topic_id
from tests.support.scripted_groups import (
    TP,
    batch,
    commit_answered,
    committed,
    ends,
    never_answer,
    script_coordinator,
    script_topic,
)


def consumer_of(broker: ScriptedBroker, *, check_crcs: bool = True) -> SimpleConsumer:
    return SimpleConsumer(
        bootstrap_servers=f"127.0.0.1:{broker.port}", retry_backoff_ms=1, check_crcs=check_crcs
    )


def fetched(records: bytes, *, high_watermark: int = 4, code: int = 0) -> FetchResponse:
    """An answer that names the topic both ways."""
    partition = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=high_watermark,
        records=records,
        aborted_transactions=None,
    )
    topic = FetchableTopicResponse(topic="t", topic_id=topic_id("t"), partitions=[partition])
    return FetchResponse(responses=[topic])


async def test_a_lost_connection_is_made_up_for_once() -> None:
    """09:TV-10."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, never_answer)
        broker.will_answer(ApiKey.LIST_OFFSETS, HANG_UP, ends(7, 9))
        assert await consumer.earliest_or_latest_offset(TP, -2) == 7
        assert await consumer.earliest_or_latest_offset(TP, -1) == 9


async def test_the_second_loss_surfaces_and_the_next_call_connects_again() -> None:
    """09:TV-10."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, never_answer)
        broker.will_answer(ApiKey.LIST_OFFSETS, HANG_UP, HANG_UP, ends(7, 9))
        with pytest.raises(DisconnectedError):
            await consumer.earliest_or_latest_offset(TP, -2)
        assert await consumer.earliest_or_latest_offset(TP, -2) == 7
        await consumer.close()
        with pytest.raises(ClosedError):
            await consumer.earliest_or_latest_offset(TP, -2)


async def test_one_fetch_tells_of_each_partition() -> None:
    data = batch(0, b"a")
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(data), fetched(b"", code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        first = await consumer.fetch({TP: 0}, max_wait_ms=3, partition_max_bytes=77)
        assert (first[TP].error, bytes(first[TP].records)) == (None, data)
        second = (await consumer.fetch({TP: 0}))[TP].error
        assert second is not None
        assert second.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked = broker.received(ApiKey.FETCH)[0]
    assert asked.max_wait_ms == 3
    assert asked.topics[0].partitions[0].partition_max_bytes == 77


async def test_groups_are_asked_through_their_coordinator() -> None:
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.OFFSET_COMMIT, commit_answered())
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        assert await consumer.coordinator("g") == 0
        await consumer.commit_offsets("g", {TP: 5})
        found = (await consumer.fetch_offsets("g", [TP]))[TP]
        assert found is not None
        assert found.offset == 5
        cluster = await consumer.metadata(["t"])
        assert cluster.topics.keys() == {"t"}


async def read(consumer: SimpleConsumer, offset: int, end: int | None = None) -> list[RawBatches]:
    return [raw async for raw in consumer.fetch_batches("t", 0, offset, end)]


async def test_raw_batches_are_whole_and_say_where_they_lie() -> None:
    """09:CL-29: the tail that is cut short comes with the next buffer."""
    first, second = batch(0, b"a", b"b"), batch(2, b"c", b"d")
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(first + second[:-3]), fetched(second), never_answer)
        got = await read(consumer, 1)
    assert [bytes(raw.buffer) for raw in got] == [first, second]
    assert [(raw.first, raw.last, raw.next_offset) for raw in got] == [(0, 1, 2), (2, 3, 4)]
    assert bytes(got[0].columns(start=1).value.data) == b"b"
    assert got[1].high_watermark == 4


async def test_reading_ends_at_the_end_that_was_given() -> None:
    """09:CL-29."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(batch(0, b"a", b"b"), high_watermark=100), never_answer)
        [raw] = await read(consumer, 0, end=1)
        assert raw.next_offset == 2
        assert await read(consumer, 5, end=5) == []


async def test_a_batch_above_the_limit_is_asked_for_with_a_larger_one() -> None:
    """09:CL-29."""
    whole = batch(0, b"x" * 100)
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(
            broker, fetched(whole[:50], high_watermark=1), fetched(whole, high_watermark=1)
        )
        raws = [raw async for raw in consumer.fetch_batches("t", 0, 0, max_bytes=50)]
    assert [bytes(raw.buffer) for raw in raws] == [whole]
    assert [one.max_bytes for one in broker.received(ApiKey.FETCH)][:2] == [50, 100]


async def test_an_end_beyond_the_log_is_waited_for_no_longer_than_the_timeout() -> None:
    """09:CL-5, CL-29."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(
            broker, fetched(batch(0, b"a"), high_watermark=1), fetched(b"", high_watermark=1)
        )
        batches = consumer.fetch_batches("t", 0, 0, 100, timeout=0.2)
        assert (await anext(batches)).last == 0
        with pytest.raises(CallTimeoutError, match="nothing came from offset 1 in 200 ms"):
            await anext(batches)


async def test_reading_ends_behind_records_that_compaction_took() -> None:
    """09:CL-29: the high watermark stays where it was when they were there."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(batch(0, b"a")), fetched(b""))
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(0, 4))
        [raw] = await read(consumer, 0)
    assert (raw.next_offset, raw.high_watermark) == (1, 4)


@pytest.mark.parametrize(
    "trouble",
    [HANG_UP, fetched(b"", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    ids=["a lost connection", "a moved leader"],
)
async def test_the_leader_is_found_again(trouble: Any) -> None:
    """09:CL-29."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, trouble, fetched(batch(0, b"a"), high_watermark=1))
        [raw] = await read(consumer, 0)
        assert raw.last == 0


async def test_damage_is_told_unless_nobody_wants_to_know() -> None:
    """09:CL-29."""
    bad = bytearray(batch(0, b"abc"))
    bad[-2] ^= 0xFF
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(bytes(bad), high_watermark=1))
        with pytest.raises(CorruptRecordError, match="t-0: the batch at offset 0"):
            await read(consumer, 0)
        async with consumer_of(broker, check_crcs=False) as trusting:
            [raw] = await read(trusting, 0)
            assert bytes(raw.buffer) == bytes(bad)


async def test_an_offset_that_is_not_there_is_an_error() -> None:
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(b"", code=ErrorCode.OFFSET_OUT_OF_RANGE))
        with pytest.raises(OffsetOutOfRangeError, match="OFFSET_OUT_OF_RANGE"):
            await read(consumer, 99)


async def test_no_group_or_metadata_is_asked_for_beyond_the_leader() -> None:
    """09:CL-29."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, fetched(batch(0, b"a"), high_watermark=1))
        await read(consumer, 0)
    assert {key for key, _, _ in broker.requests} == {
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
        ApiKey.FETCH,
    }


async def test_a_call_waits_no_longer_for_its_turn_than_it_may() -> None:
    """09:CL-5."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        script_topic(broker, never_answer)
        broker.will_answer(ApiKey.LIST_OFFSETS, never_answer)
        first = asyncio.create_task(consumer.earliest_or_latest_offset(TP, -1))
        while not broker.received(ApiKey.LIST_OFFSETS):  # noqa: ASYNC110 - the broker's list
            await asyncio.sleep(0.001)
        with pytest.raises(CallTimeoutError, match="LIST_OFFSETS: no answer within 50 ms"):
            await consumer.earliest_or_latest_offset(TP, -1, 0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
