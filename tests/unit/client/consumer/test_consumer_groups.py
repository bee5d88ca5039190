"""Commits and membership against a coordinator that says what the test wants."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.client.consumer import (
    CommitFailedError,
    ConsumerGroupMetadata,
    FencedInstanceIdError,
    InvalidGroupError,
    OffsetAndMetadata,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import CallTimeoutError
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.records.codec import ConsumerRecord
from tests.support.scripted_broker import HANG_UP, ScriptedBroker, scripted, told_topic
from tests.support.scripted_groups import (
    TP,
    batch,
    commit_answered,
    committed,
    coordinator_is,
    fetched,
    joined,
    never_answer,
    script_coordinator,
    script_group,
    script_topic,
    synced,
)
from tests.unit.client.consumer.test_consumer_reading import WAIT_S, consumer_of

Heard = list[tuple[object, Exception | None]]


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("assigned", [tp.partition for tp in partitions]))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("revoked", [tp.partition for tp in partitions]))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("lost", [tp.partition for tp in partitions]))


def script_commits(broker: ScriptedBroker, *answers: Any) -> None:
    script_topic(broker, never_answer)
    script_coordinator(broker)
    broker.will_answer(ApiKey.OFFSET_FETCH, committed(0))
    broker.will_answer(ApiKey.OFFSET_COMMIT, *answers)


async def until_commits(broker: ScriptedBroker, count: int) -> None:
    """Until the broker has been sent so many, and the answers had time to come back."""
    while len(broker.received(ApiKey.OFFSET_COMMIT)) < count:  # noqa: ASYNC110 - the broker's list
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)


async def test_the_callback_of_a_commit_waits_for_the_next_call() -> None:
    """09:TV-11a."""
    heard: Heard = []
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_commits(broker, commit_answered())
        await consumer.assign([TP])
        await consumer.commit_async({TP: 3}, lambda offsets, error: heard.append((offsets, error)))
        await until_commits(broker, 1)
        assert heard == []
        while not heard:
            await consumer.poll(0.01)
        await consumer.poll(0)
        assert heard == [({TP: OffsetAndMetadata(3)}, None)]


async def test_callbacks_come_in_the_order_of_the_commits() -> None:
    """09:TV-11b."""
    heard: list[int] = []

    def note(offsets: Any, _error: Exception | None) -> None:
        heard.append(offsets[TP].offset)

    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_commits(broker, commit_answered())
        await consumer.assign([TP])
        for offset in (1, 2, 3):
            await consumer.commit_async({TP: offset}, note)
        while len(heard) < 3:
            await consumer.poll(0.01)
    assert heard == [1, 2, 3]
    sent = [
        request.topics[0].partitions[0].committed_offset
        for request in broker.received(ApiKey.OFFSET_COMMIT)
    ]
    assert sent == [1, 2, 3]


async def test_a_synchronous_commit_comes_after_asynchronous_ones() -> None:
    """09:TV-11c."""
    heard: Heard = []
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_commits(broker, commit_answered())
        await consumer.assign([TP])
        await consumer.commit_async({TP: 1}, lambda offsets, error: heard.append((offsets, error)))
        await consumer.commit_sync({TP: 2}, WAIT_S)
        assert heard == [({TP: OffsetAndMetadata(1)}, None)]


@pytest.mark.parametrize(
    "trouble",
    [
        commit_answered(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        commit_answered(ErrorCode.NOT_COORDINATOR),
        HANG_UP,
    ],
    ids=["loading", "moved", "a lost connection"],
)
async def test_passing_trouble_is_tried_again_if_somebody_waits_and_told_otherwise(
    trouble: Any,
) -> None:
    """09:TV-11d."""
    heard: Heard = []
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_commits(broker, trouble, commit_answered(), trouble, commit_answered())
        await consumer.assign([TP])
        await consumer.commit_sync({TP: 2}, WAIT_S)
        await consumer.commit_async({TP: 3}, lambda offsets, error: heard.append((offsets, error)))
        while not heard:
            await consumer.poll(0.01)
        [(_, error)] = heard
        assert isinstance(error, RetriableCommitFailedError)


async def test_a_commit_gives_up_when_its_time_is_over() -> None:
    """09:CL-5."""
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_commits(broker, commit_answered(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        await consumer.assign([TP])
        with pytest.raises(CallTimeoutError, match="commit: gave up after 50 ms"):
            await consumer.commit_sync({TP: 2}, 0.05)


async def test_refused_offsets_are_raised_at_once() -> None:
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_commits(broker, commit_answered(ErrorCode.OFFSET_METADATA_TOO_LARGE))
        await consumer.assign([TP])
        with pytest.raises(ApiError, match="t-0: OFFSET_METADATA_TOO_LARGE"):
            await consumer.commit_sync({TP: OffsetAndMetadata(2, "long")}, WAIT_S)
        with pytest.raises(ValueError, match="-1"):
            await consumer.commit_sync({TP: -1})


async def poll_on(consumer: Consumer) -> None:
    """As applications do, until something is raised."""
    while True:
        await consumer.poll(WAIT_S)


async def poll_until_assigned(consumer: Consumer) -> None:
    while not consumer.assignment():
        await consumer.poll(0.01)


async def test_a_member_joins_reads_commits_and_leaves() -> None:
    """09:CL-23, 09:CL-27."""
    listener = Listener()
    async with (
        scripted() as broker,
        consumer_of(broker, group_id="g", enable_auto_commit=True) as consumer,
    ):
        script_topic(broker, fetched(batch(5, b"a")), never_answer)
        script_group(broker, TP)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.OFFSET_COMMIT, commit_answered())
        await consumer.subscribe(["t"], listener=listener)
        records: list[ConsumerRecord] = []
        while not records:
            records = await consumer.poll(WAIT_S)
        await consumer.close()
    assert listener.told == [("assigned", [0]), ("revoked", [0])]
    [commit] = broker.received(ApiKey.OFFSET_COMMIT)
    assert (commit.member_id, commit.generation_id_or_member_epoch) == ("m-1", 1)
    assert commit.topics[0].partitions[0].committed_offset == 6
    [leave] = broker.received(ApiKey.LEAVE_GROUP)
    assert leave.members[0].member_id == "m-1"


async def test_a_static_member_does_not_leave() -> None:
    """09:CL-27."""
    settings = {"group_id": "g", "group_instance_id": "i-1"}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        script_group(broker, TP)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"])
        await poll_until_assigned(consumer)
    assert broker.received(ApiKey.JOIN_GROUP)[0].group_instance_id == "i-1"
    assert broker.received(ApiKey.LEAVE_GROUP) == []


async def test_a_member_tells_a_producer_who_it_is() -> None:
    """10:TX-12: as it is in its group now, not before it has joined, and not without a group."""
    settings = {"group_id": "g", "group_instance_id": "i-1"}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_group(broker, TP)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.assign([TP])
        assert consumer.group_metadata() == ConsumerGroupMetadata("g")
        await consumer.unsubscribe()
        await consumer.subscribe(["t"])
        with pytest.raises((CommitFailedError, RebalanceInProgressError)):
            consumer.group_metadata()
        await poll_until_assigned(consumer)
        assert consumer.group_metadata() == ConsumerGroupMetadata("g", 1, "m-1", "i-1")
    async with scripted() as broker, consumer_of(broker) as consumer:
        with pytest.raises(InvalidGroupError, match=r"group_metadata needs group\.id"):
            consumer.group_metadata()


@pytest.mark.parametrize(
    "first",
    [
        joined(ErrorCode.MEMBER_ID_REQUIRED),
        joined(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        joined(ErrorCode.NOT_COORDINATOR),
        joined(ErrorCode.UNKNOWN_MEMBER_ID),
        HANG_UP,
    ],
    ids=["id required", "loading", "moved", "unknown", "a lost connection"],
)
async def test_joining_goes_on_until_it_succeeds(first: Any) -> None:
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.JOIN_GROUP, first, joined())
        broker.will_answer(
            ApiKey.SYNC_GROUP, synced(code=ErrorCode.REBALANCE_IN_PROGRESS), synced(TP)
        )
        broker.will_answer(ApiKey.HEARTBEAT, HeartbeatResponse())
        broker.will_answer(ApiKey.LEAVE_GROUP, never_answer)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"])
        await poll_until_assigned(consumer)
        assert consumer.assignment() == {TP}
        await consumer.close(timeout=0)


async def test_a_refused_member_raises() -> None:
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.JOIN_GROUP, joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        await consumer.subscribe(["t"])
        with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL"):
            await poll_on(consumer)


async def test_a_member_the_group_has_forgotten_loses_its_partitions_and_comes_back() -> None:
    """09:CL-23: nothing is revoked, since nothing can be committed."""
    listener = Listener()
    settings = {"group_id": "g", "heartbeat_interval_ms": 1}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.JOIN_GROUP, joined(), joined(generation=2))
        broker.will_answer(ApiKey.SYNC_GROUP, synced(TP))
        broker.will_answer(
            ApiKey.HEARTBEAT,
            HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID),
            HeartbeatResponse(),
        )
        broker.will_answer(ApiKey.LEAVE_GROUP, never_answer)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"], listener=listener)
        while len(listener.told) < 3:
            await consumer.poll(0.01)
        assert listener.told == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
        assert broker.received(ApiKey.JOIN_GROUP)[1].member_id == ""
        await consumer.close(timeout=0)


async def test_an_eager_member_lets_go_before_it_joins_again() -> None:
    """09:CL-23."""
    listener = Listener()
    settings = {"group_id": "g", "heartbeat_interval_ms": 1}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        broker.topics["t"] = told_topic("t", partitions=2)
        script_coordinator(broker)
        broker.will_answer(ApiKey.JOIN_GROUP, joined(), joined(generation=2))
        other = TopicPartition("t", 1)
        broker.will_answer(ApiKey.SYNC_GROUP, synced(TP, other), synced(other))
        broker.will_answer(
            ApiKey.HEARTBEAT,
            HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS),
            HeartbeatResponse(),
        )
        broker.will_answer(ApiKey.LEAVE_GROUP, never_answer)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.LIST_OFFSETS, never_answer)
        await consumer.subscribe(["t"], listener=listener)
        while len(listener.told) < 3:
            await consumer.poll(0.01)
        assert listener.told == [("assigned", [0, 1]), ("revoked", [0, 1]), ("assigned", [1])]
        await consumer.close(timeout=0)


async def test_a_member_that_polls_too_rarely_leaves_and_comes_back() -> None:
    """09:CL-22."""
    listener = Listener()
    settings = {"group_id": "g", "heartbeat_interval_ms": 1, "max_poll_interval_ms": 20}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        script_group(broker, TP)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"], listener=listener)
        await poll_until_assigned(consumer)
        while not broker.received(ApiKey.LEAVE_GROUP):  # noqa: ASYNC110 - the broker's list
            await asyncio.sleep(0.001)  # The application is busy.
        before = len(listener.told)
        while len(listener.told) < before + 2:
            await consumer.poll(0.01)
        assert [what for what, _ in listener.told[before : before + 2]] == ["lost", "assigned"]


async def test_another_consumer_with_the_same_instance_id_is_the_end() -> None:
    settings = {"group_id": "g", "group_instance_id": "i-1", "heartbeat_interval_ms": 1}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.JOIN_GROUP, joined())
        broker.will_answer(ApiKey.SYNC_GROUP, synced(TP))
        broker.will_answer(
            ApiKey.HEARTBEAT, HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
        )
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"])
        with pytest.raises(FencedInstanceIdError):
            await poll_on(consumer)
        with pytest.raises(FencedInstanceIdError):
            await consumer.poll(WAIT_S)


async def test_another_consumer_with_the_same_instance_id_while_partitions_go() -> None:
    """The fence falls while a cooperative member's listener gives partitions up."""
    is_revoking, is_fenced = asyncio.Event(), asyncio.Event()

    def beat(request: HeartbeatRequest) -> HeartbeatResponse:
        if request.generation_id == 1:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        if not is_revoking.is_set():
            return HeartbeatResponse()
        is_fenced.set()
        return HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)

    class Slow(Listener):
        async def on_partitions_revoked(  # type: ignore[override]  # either is good
            self, partitions: Sequence[TopicPartition]
        ) -> None:
            super().on_partitions_revoked(partitions)
            is_revoking.set()
            await is_fenced.wait()
            await asyncio.sleep(0.05)  # The answer comes; later is good enough as well.

    listener = Slow()
    settings = {
        "group_id": "g",
        "group_instance_id": "i-1",
        "heartbeat_interval_ms": 1,
        "partition_assignment_strategy": "cooperative-sticky",
    }
    other = TopicPartition("t", 1)
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        broker.topics["t"] = told_topic("t", partitions=2)
        script_coordinator(broker)
        for generation in (1, 2):
            answer = joined(generation=generation, strategy="cooperative-sticky")
            broker.will_answer(ApiKey.JOIN_GROUP, answer)
        broker.will_answer(ApiKey.SYNC_GROUP, synced(TP, other), synced(TP))
        broker.will_answer(ApiKey.HEARTBEAT, beat)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.LIST_OFFSETS, never_answer)
        await consumer.subscribe(["t"], listener=listener)
        with pytest.raises(FencedInstanceIdError):
            await asyncio.wait_for(poll_on(consumer), 60)
        assert not consumer.assignment()
    assert listener.told[1:2] == [("revoked", [1])]
    assert listener.told[-1] == ("lost", [0])
    # A third would fence the other one in turn.
    assert len(broker.received(ApiKey.JOIN_GROUP)) == 2


async def test_a_commit_that_waits_its_turn_is_of_the_generation_it_was_made_in() -> None:
    """Its turn comes after a rebalance: it must not pass for one of the new generation."""
    settings = {"group_id": "g", "heartbeat_interval_ms": 1}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.JOIN_GROUP, joined(), joined(generation=2))
        broker.will_answer(ApiKey.SYNC_GROUP, synced(TP))
        broker.will_answer(ApiKey.HEARTBEAT, HeartbeatResponse())
        broker.will_answer(ApiKey.LEAVE_GROUP, never_answer)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.OFFSET_COMMIT, commit_answered())
        await consumer.subscribe(["t"])
        await poll_until_assigned(consumer)
        member, commits = consumer._group, consumer._commits
        assert member is not None
        assert commits is not None
        async with commits.committer._turn:  # An earlier commit takes long.
            await consumer.commit_async({TP: 6})
            member.request_join("the test wants it")
            while member.membership.generation == 1 or member.needs_advance:
                await consumer.poll(0.01)
        await until_commits(broker, 1)
        await consumer.close(timeout=0)
    [commit] = broker.received(ApiKey.OFFSET_COMMIT)
    assert commit.generation_id_or_member_epoch == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError),
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError),
    ],
)
async def test_a_commit_of_a_member_that_missed_a_rebalance_fails_and_it_joins_again(
    code: ErrorCode, error: type[ApiError]
) -> None:
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, never_answer)
        script_group(broker, TP)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.OFFSET_COMMIT, commit_answered(code))
        await consumer.subscribe(["t"])
        await poll_until_assigned(consumer)
        with pytest.raises(error):
            await consumer.commit_sync({TP: 6}, WAIT_S)
        while len(broker.received(ApiKey.JOIN_GROUP)) < 2:
            await consumer.poll(0.01)


async def test_closing_never_hangs() -> None:
    """09:CL-5: not even while a join is under way and the coordinator is silent."""
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker, coordinator_is())
        broker.will_answer(ApiKey.JOIN_GROUP, joined(ErrorCode.MEMBER_ID_REQUIRED), never_answer)
        broker.will_answer(ApiKey.LEAVE_GROUP, never_answer)
        await consumer.subscribe(["t"])
        while len(broker.received(ApiKey.JOIN_GROUP)) < 2:
            await consumer.poll(0.01)
        await consumer.close(timeout=0.05)
