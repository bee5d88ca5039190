"""Positions that are validated because a leader moved, while fetched records still wait.

What was handed out is not handed out again, whatever was buffered or under way meanwhile (CL-24).
"""

from collections.abc import Callable

from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.fetched import FetchedData
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.records.builder import build_batch
from tests.support.scripted_broker import ScriptedBroker, scripted, told_topic
from tests.support.scripted_groups import TP, batch, ends, fetched, never_answer
from tests.unit.client.consumer.test_consumer_reading import (
    WAIT_S,
    asked_offsets,
    consumer_of,
    poll_values,
)
from tests.unit.client.consumer.test_consumer_trouble import (
    leader_and_follower,
    read_from_start,
    until,
)

# The log: values by leader epoch, offsets from 0 on. Each epoch's records are one batch.
LOG = {5: [b"a", b"b"], 6: [b"c", b"d"], 7: [b"e"]}
VALUES = [value for values in LOG.values() for value in values]


def end_of(epoch: int) -> int:
    return sum(len(values) for before, values in LOG.items() if before <= epoch)


def batch_of(epoch: int) -> bytes:
    records = [(1_000, None, value, ()) for value in LOG[epoch]]
    base_offset = end_of(epoch) - len(LOG[epoch])
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=epoch))


class MovingLeader:
    """Leads `t` in a higher epoch as soon as it is asked for what that epoch has."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self.epoch = 6
        self._lead_on(6)
        broker.will_answer(ApiKey.FETCH, self._fetch)
        broker.will_answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._validate)
        # Called before an answer to the question where an epoch ends; errors to give instead.
        self.on_question: Callable[[], object] = lambda: None
        self.refusals: list[ErrorCode] = []
        self.asked_epochs: list[int] = []

    def _lead_on(self, epoch: int) -> None:
        self.epoch = epoch
        self._broker.topics["t"] = told_topic("t", leader_epoch=epoch)

    def _fetch(self, request: FetchRequest) -> FetchResponse | None:
        if not request.topics:
            return None
        asked = request.topics[0].partitions[0]
        if asked.fetch_offset < end_of(6):
            first = 5 if asked.fetch_offset < end_of(5) else 6
            return fetched(b"".join(batch_of(epoch) for epoch in range(first, 7)))
        if self.epoch == 6:
            self._lead_on(7)
        if asked.current_leader_epoch < self.epoch:
            return fetched(error_code=ErrorCode.FENCED_LEADER_EPOCH)
        return fetched(batch_of(7)) if asked.fetch_offset < end_of(7) else None

    def _validate(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        epoch = request.topics[0].partitions[0].leader_epoch
        self.asked_epochs.append(epoch)
        self.on_question()
        if self.refusals:
            answer = EpochEndOffset(partition=0, error_code=self.refusals.pop())
        else:
            answer = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end_of(epoch))
        topic = OffsetForLeaderTopicResult(topic="t", partitions=[answer])
        return OffsetForLeaderEpochResponse(topics=[topic])


async def read_all(consumer: Consumer, values: list[bytes | None]) -> None:
    while b"e" not in values:
        values += await poll_values(consumer)


async def test_what_is_buffered_when_the_leader_moves_is_not_read_twice() -> None:
    """09:CL-24: the buffer and what is fetched after the validation do not overlap."""
    async with scripted() as broker, consumer_of(broker, max_poll_records=1) as consumer:
        leader = MovingLeader(broker)
        # Another round, so that brokers are asked while the position waits for its leader.
        leader.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await read_from_start(consumer)
        values = await poll_values(consumer)
        # The rest of the first answer waits; asking for more has met the new leader.
        await until(lambda: len(leader.asked_epochs) == 2)
        await read_all(consumer, values)
        assert values == VALUES
    assert leader.asked_epochs[0] == 5


async def test_records_of_a_later_epoch_are_no_sign_of_a_cut() -> None:
    """09:CL-24: an epoch's end is compared with the position it was asked for."""
    async with scripted() as broker, consumer_of(broker, max_poll_records=1) as consumer:
        leader = MovingLeader(broker)
        values: list[bytes | None] = []
        leader.on_question = lambda: values.extend(
            record.value for _ in range(2) for record in consumer.take_nowait()
        )
        await read_from_start(consumer)
        values += await poll_values(consumer)
        await until(lambda: bool(leader.asked_epochs))
        await read_all(consumer, values)
        assert values == VALUES


async def begun(consumer: Consumer) -> FetchedData:
    """The first answer, which a call on another thread has begun to hand out."""
    await until(lambda: consumer.has_records)
    data = consumer._fetcher.begin_columns()
    assert data is not None
    assert [record.value for record in data.take(1)] == [b"a"]
    consumer.send_fetches()
    return data


async def test_a_call_that_hands_out_meanwhile_is_not_repeated_by_the_next() -> None:
    """09:CL-24: where fetching went on was decided before the call moved the position."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        leader = MovingLeader(broker)
        await read_from_start(consumer)
        data = await begun(consumer)
        await until(lambda: bool(leader.asked_epochs) and asked_offsets(broker)[-1] == 1)
        values = [b"a", *(record.value for record in data.take(10))]
        await read_all(consumer, values)
        assert values == VALUES


async def test_a_position_that_moves_while_it_is_validated_is_validated_again() -> None:
    """09:CL-24."""
    async with scripted() as broker, consumer_of(broker) as consumer:
        leader = MovingLeader(broker)
        values: list[bytes | None] = [b"a"]
        await read_from_start(consumer)
        data = await begun(consumer)
        leader.on_question = lambda: values.extend(record.value for record in data.take(10))
        await until(lambda: len(values) == end_of(6))
        await read_all(consumer, values)
        assert values == VALUES
        assert await consumer.position(TP, WAIT_S) == end_of(7)
    assert leader.asked_epochs == [5, 6]


async def test_a_follower_that_answers_late_does_not_reset_the_position() -> None:
    """09:CL-24, 09:CL-26: it was asked as a follower, so the leader has the last word."""
    async with (
        leader_and_follower() as (leader, follower),
        consumer_of(leader, auto_offset_reset="latest") as consumer,
    ):

        def answer_late(_request: FetchRequest) -> FetchResponse:
            """The leader's word has grown old, and it is asked itself, before this arrives."""
            state = consumer._partitions.get(TP)
            assert state is not None
            state.preferred_until_ms = 0
            consumer.send_fetches()
            return fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)

        leader.will_answer(
            ApiKey.FETCH, fetched(preferred_read_replica=1), fetched(batch(0, b"a")), never_answer
        )
        leader.will_answer(ApiKey.LIST_OFFSETS, ends(0, 9))
        follower.will_answer(ApiKey.FETCH, answer_late)
        await read_from_start(consumer)
        assert await poll_values(consumer) == [b"a"]
        assert await consumer.position(TP) == 1
    assert leader.received(ApiKey.LIST_OFFSETS) == []
