"""Reading a range of a partition from a broker that says what it is told to."""

import asyncio
from dataclasses import dataclass
from typing import Any

from odradek.client import Client, ClientOptions
from odradek.client.consumer.config import ConsumerConfig
from odradek.client.errors import CallTimeoutError, RecreatedTopicError
from odradek.client.range_reader import FetchedBatches, read_range, topic_id_text
from odradek.errors import ErrorCode, OdradekError, OffsetOutOfRangeError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.testing import ManualClock
from tests.support.scripted_broker import (
    HANG_UP,
    client_of,
    scripted,
    told_topic,
    topic_id,
)
from tests.support.scripted_groups import TP, batch, ends

CONFIG = ConsumerConfig(isolation_level="read_committed")
THIS_TOPIC = topic_id_text(topic_id("t"))


@dataclass(frozen=True)
class Range:
    start: int
    end: int | None
    topic_id: str = THIS_TOPIC


def answer(
    records: bytes = b"", *, end: int = 100, code: ErrorCode = ErrorCode.NONE
) -> FetchResponse:
    partition = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=end + 5,
        last_stable_offset=end,
        records=records,
        aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=1)],
    )
    topic = FetchableTopicResponse(topic="t", topic_id=topic_id("t"), partitions=[partition])
    return FetchResponse(responses=[topic])


class Reading:
    """What came of reading a range from a broker with these answers."""

    def __init__(
        self,
        part: Range,
        *answers: Any,
        timeout_ms: int = 60_000,
        max_bytes: int = 1000,
        log_start: int = 0,
        **options: Any,
    ) -> None:
        self._log_start = log_start
        self._options = options
        self.fetched: list[FetchedBatches] = []
        self.error: Exception | None = None
        self.requests: list[Any] = []
        asyncio.run(self._read(part, answers, timeout_ms, max_bytes))

    async def _read(
        self, part: Range, answers: tuple[Any, ...], timeout_ms: int, max_bytes: int
    ) -> None:
        async with scripted() as broker, client_of(broker, **self._options) as client:
            broker.topics = {"t": told_topic("t")}
            broker.will_answer(ApiKey.FETCH, *answers)
            broker.will_answer(ApiKey.LIST_OFFSETS, ends(self._log_start, 100))
            reading = read_range(
                client,
                CONFIG,
                TP,
                offset=part.start,
                end=part.end,
                max_bytes=max_bytes,
                timeout_ms=timeout_ms,
                topic_id=part.topic_id,
            )
            try:
                self.fetched += [fetched async for fetched in reading]
            except OdradekError as error:
                self.error = error
            self.requests = broker.received(ApiKey.FETCH)

    @property
    def asked_for(self) -> list[int]:
        return [request.topics[0].partitions[0].fetch_offset for request in self.requests]

    @property
    def positions(self) -> list[int]:
        assert self.error is None, self.error
        return [one.next_offset for one in self.fetched]


def test_whole_batches_come_up_to_the_end() -> None:
    """12:SP-36: and the broker is not asked for more."""
    first, second = batch(0, b"a", b"b"), batch(2, b"c")
    reading = Reading(Range(1, 3), answer(first), answer(second + batch(3, b"d")[:30]), answer())
    assert [bytes(one.records) for one in reading.fetched] == [first, second]
    assert [(one.offset, one.next_offset) for one in reading.fetched] == [(1, 2), (2, 3)]
    assert reading.fetched[0].aborted == ((7, 1),)
    assert reading.asked_for == [1, 2]


def test_a_position_beyond_the_end_ends_it() -> None:
    """12:SP-36: the record before the end need not be there."""
    reading = Reading(Range(3, 40), answer(batch(50, b"a")), answer())
    assert reading.positions == [51]
    assert reading.asked_for == [3]


def test_a_gap_up_to_the_end_ends_it() -> None:
    """12:SP-36: three answers without a byte though the log goes on, the last with all room."""
    reading = Reading(Range(0, 90), answer(batch(0, b"a")), answer(), answer(), answer(), HANG_UP)
    assert reading.positions == [1]
    assert reading.asked_for == [0, 1, 1, 1]
    assert [request.max_bytes for request in reading.requests] == [1000, 1000, 1000, 2**31 - 1]


def test_what_comes_only_when_it_is_sought_is_read() -> None:
    """12:SP-36: nothing is left out as long as a record may be there."""
    reading = Reading(
        Range(0, 3),
        *(answer(), answer(), answer(batch(0, b"a", b"b"))),
        *(answer(), answer(), answer(batch(2, b"c"))),
        HANG_UP,
    )
    assert reading.positions == [2, 3]
    assert reading.asked_for == [0, 0, 0, 2, 2, 2]
    assert reading.requests[3].max_bytes == 1000


def test_empty_answers_below_the_start_of_the_log_are_no_gap() -> None:
    """12:SP-37: but what retention took."""
    reading = Reading(Range(0, 90), answer(), answer(), answer(), log_start=40)
    assert isinstance(reading.error, OffsetOutOfRangeError)
    assert reading.asked_for == [0, 0]


def test_an_empty_answer_that_is_chance_is_no_gap() -> None:
    """12:SP-36."""
    reading = Reading(
        Range(0, 2), answer(), answer(batch(0, b"a")), answer(), answer(batch(1, b"b"))
    )
    assert reading.positions == [1, 2]


def test_a_log_that_ends_before_the_range_is_not_waited_for_for_ever() -> None:
    """12:SP-37."""
    reading = Reading(Range(0, 5), answer(batch(0, b"a"), end=1), answer(end=1), timeout_ms=200)
    assert isinstance(reading.error, CallTimeoutError)
    assert "the log ends at 1, to be read up to 5" in str(reading.error)


def test_a_batch_larger_than_what_was_asked_for() -> None:
    """12:SP-36: an answer that cuts it is asked for again, with more room."""
    large = batch(0, b"x" * 500)
    reading = Reading(
        Range(0, 1), answer(large[:100]), answer(large[:200]), answer(large), max_bytes=100
    )
    assert [bytes(one.records) for one in reading.fetched] == [large]
    assert [request.max_bytes for request in reading.requests] == [100, 200, 400]


def test_another_topic_of_the_name_is_not_read() -> None:
    """12:SP-37."""
    reading = Reading(Range(0, 1, topic_id="other"), answer(batch(0, b"a")))
    assert isinstance(reading.error, RecreatedTopicError)
    assert (reading.error.expected, reading.error.found) == ("other", THIS_TOPIC)
    assert not reading.requests


def test_a_topic_whose_id_nobody_told_is_read() -> None:
    """12:SP-32: after a checkpoint of Spark's own source."""
    assert Reading(Range(0, 1, topic_id=""), answer(batch(0, b"a"))).positions == [1]


def test_a_lost_connection_and_a_moved_leader_are_got_over() -> None:
    reading = Reading(
        Range(0, 1),
        HANG_UP,
        answer(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        FetchResponse(responses=[]),  # As a broker throttles.
        answer(batch(0, b"a")),
    )
    assert reading.positions == [1]
    assert reading.asked_for == [0, 0, 0, 0]


def test_an_offset_that_is_not_there_is_told() -> None:
    """12:SP-37."""
    reading = Reading(Range(0, 1), answer(code=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert isinstance(reading.error, OffsetOutOfRangeError)


def test_a_range_without_an_end_ends_where_the_log_does() -> None:
    """09:CL-29: and the broker is not asked again."""
    reading = Reading(Range(0, None), answer(batch(0, b"a"), end=2), answer(batch(1, b"b"), end=2))
    assert reading.positions == [1, 2]
    assert reading.asked_for == [0, 1]
    assert Reading(Range(2, None), answer(end=2)).asked_for == [2]


def test_a_gap_up_to_the_end_of_the_log_ends_it() -> None:
    """09:CL-29: compaction may take the last records before the high watermark."""
    reading = Reading(Range(0, None), answer(batch(0, b"a")), answer(), answer(), answer(), HANG_UP)
    assert reading.positions == [1]
    assert reading.asked_for == [0, 1, 1, 1]


def test_an_empty_range_asks_nobody() -> None:
    reading = Reading(Range(5, 5), answer())
    assert reading.positions == reading.asked_for == []


def test_a_broker_that_does_not_wait_is_asked_at_intervals() -> None:
    """09:CL-5: each interval twice the last; without them there would be thousands of requests."""
    reading = Reading(Range(1, 5), answer(end=1), timeout_ms=200, retry_backoff_max_ms=1_000)
    assert isinstance(reading.error, CallTimeoutError)
    assert len(reading.requests) < 20


def test_no_broker_may_wait_longer_than_the_caller() -> None:
    """09:CL-5: an answer that nothing came is to arrive in time."""
    reading = Reading(Range(1, None), answer(end=1), timeout_ms=100)
    assert reading.positions == []
    assert reading.requests[0].max_wait_ms <= 50


async def test_the_time_that_the_caller_takes_is_its_own() -> None:
    """09:CL-5: it may keep what came for longer than a step may take."""
    clock = ManualClock()
    async with scripted() as broker:
        broker.topics = {"t": told_topic("t")}
        broker.will_answer(
            ApiKey.FETCH, answer(batch(0, b"a"), end=1), answer(end=1), answer(batch(1, b"b"))
        )
        options = ClientOptions(bootstrap=(("127.0.0.1", broker.port),), retry_backoff_ms=1)
        async with Client(options, clock=clock) as client:
            reading = read_range(
                client, CONFIG, TP, offset=0, end=2, max_bytes=1000, timeout_ms=60_000
            )
            assert (await anext(reading)).next_offset == 1
            while len(broker.received(ApiKey.FETCH)) < 2:  # noqa: ASYNC110 - the broker's list
                await asyncio.sleep(0.001)
            clock.advance(60_001)
            assert (await anext(reading)).next_offset == 2
            await reading.aclose()
