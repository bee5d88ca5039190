"""Fetching: positions, decoding, and what a reader survives."""

from typing import Any

import pytest

from odradek.client import Fetched, Fetcher
from odradek.client.fetch import decode_batches
from odradek.errors import (
    ApiError,
    CorruptRecordError,
    ErrorCode,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from tests.support.scripted_broker import (
    HANG_UP,
    ScriptedBroker,
    client_of,
    scripted,
    told_topic,
    topic_id,
)

TP = TopicPartition("t", 0)


def batch(base_offset: int, *values: bytes, codec: Codec = Codec.NONE) -> bytes:
    records = [(1_000, None, value, ()) for value in values]
    return bytes(build_batch(records, base_offset=base_offset, codec=codec))


def marker(offset: int) -> bytes:
    return bytes(
        build_end_transaction_marker(
            EndTransactionMarker(ControlType.COMMIT, 0),
            producer_id=1,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )
    )


def fetched(records: bytes = b"", **fields: Any) -> FetchResponse:
    partition = PartitionData(
        partition_index=0, high_watermark=50, records=records, aborted_transactions=None, **fields
    )
    return FetchResponse(
        responses=[FetchableTopicResponse(topic_id=topic_id("t"), partitions=[partition])]
    )


class TestDecoding:
    def test_records_from_the_position_on(self) -> None:
        data = batch(5, b"a", b"b", b"c", codec=Codec.ZSTD) + batch(8, b"d")

        records, next_offset = decode_batches(data, 6, TP)

        assert [(one.offset, one.value) for one in records] == [(6, b"b"), (7, b"c"), (8, b"d")]
        assert next_offset == 9

    def test_control_batches_move_the_position_and_are_not_shown(self) -> None:
        """09:CL-25."""
        records, next_offset = decode_batches(batch(0, b"a") + marker(1), 0, TP)

        assert [one.value for one in records] == [b"a"]
        assert next_offset == 2

    def test_a_batch_that_is_cut_short_is_left_for_the_next_fetch(self) -> None:
        whole = batch(0, b"a")
        for cut in (1, 20, len(whole) - 1):
            records, next_offset = decode_batches(whole + batch(1, b"b")[:cut], 0, TP)
            assert [one.value for one in records] == [b"a"]
            assert next_offset == 1

    def test_not_even_one_whole_batch_is_an_error_and_no_endless_loop(self) -> None:
        with pytest.raises(RecordTooLargeError, match="t-0: no whole batch at offset 0"):
            decode_batches(batch(0, b"a")[:-1], 0, TP)

    def test_a_wrong_checksum_is_told(self) -> None:
        """09:CL-18: check.crcs."""
        data = bytearray(batch(3, b"abc"))
        data[-1] ^= 1
        with pytest.raises(CorruptRecordError, match="batch at offset 3 is corrupt"):
            decode_batches(data, 3, TP)


def script(broker: ScriptedBroker, *answers: Any) -> None:
    broker.topics["t"] = told_topic("t")
    broker.will_answer(ApiKey.FETCH, *answers)


def asked_offsets(broker: ScriptedBroker) -> list[int]:
    requests: list[FetchRequest] = broker.received(ApiKey.FETCH)
    return [request.topics[0].partitions[0].fetch_offset for request in requests]


async def test_the_position_follows_what_was_read() -> None:
    async with scripted() as broker:
        script(broker, fetched(batch(0, b"a", b"b")), fetched(batch(2, b"c")), fetched())
        async with client_of(broker) as client, Fetcher(client, {TP: 0}) as fetcher:
            await client.topic("t")
            first = await fetcher.poll(1_000)
            second = await fetcher.poll(1_000)
            nothing = await fetcher.poll(5)

            assert [one.value for one in first[0].records] == [b"a", b"b"]
            assert first[0].high_watermark == 50
            assert [one.value for one in second[0].records] == [b"c"]
            assert nothing == []
            assert fetcher.position(TP) == 3
        assert asked_offsets(broker)[:3] == [0, 2, 3]


@pytest.mark.parametrize(
    "trouble",
    [
        HANG_UP,
        fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        fetched(bytes(build_batch([(0, None, b"x", ())]))[:-1] + b"\xff"),
    ],
    ids=["a lost connection", "a moved leader", "a corrupt batch"],
)
async def test_trouble_is_survived_at_the_same_position(trouble: Any) -> None:
    noted: list[ApiError] = []
    async with scripted() as broker:
        script(broker, trouble, fetched(batch(0, b"a")), fetched())
        async with (
            client_of(broker) as client,
            Fetcher(client, {TP: 0}, on_retry=noted.append) as fetcher,
        ):
            await client.topic("t")
            got = await fetcher.poll(5_000)

        assert [one.value for one in got[0].records] == [b"a"]
        assert asked_offsets(broker)[:2] == [0, 0]
        assert len(noted) == 1


def ends(start: int, end: int) -> Any:
    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        place = request.topics[0].partitions[0].timestamp
        offset = start if place == -2 else end
        partition = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])]
        )

    return answer


async def test_a_position_below_the_log_goes_on_at_its_start() -> None:
    async with scripted() as broker:
        script(
            broker,
            fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
            fetched(batch(7, b"a")),
            fetched(),
        )
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(7, 9))
        async with client_of(broker) as client, Fetcher(client, {TP: 2}) as fetcher:
            await client.topic("t")
            assert await fetcher.poll(1_000) == [Fetched(TP, [], 50, skipped_count=5)]
            (got,) = await fetcher.poll(1_000)
            assert got.records[0].offset == 7


async def test_a_position_above_the_log_is_an_error() -> None:
    async with scripted() as broker:
        script(broker, fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(7, 9))
        async with client_of(broker) as client, Fetcher(client, {TP: 10}) as fetcher:
            await client.topic("t")
            with pytest.raises(OffsetOutOfRangeError, match="offsets 7 to 9, 10 is out of range"):
                await fetcher.poll(1_000)


async def test_an_error_for_good_is_raised() -> None:
    async with scripted() as broker:
        script(broker, fetched(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        async with client_of(broker) as client, Fetcher(client, {TP: 0}) as fetcher:
            await client.topic("t")
            with pytest.raises(ApiError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
                await fetcher.poll(1_000)
