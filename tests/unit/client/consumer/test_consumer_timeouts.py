"""Calls end when their time is over and members show that they live, whoever is slow.

What is slow here never answers; requests have their half a minute as always, so a call that waited
for one would not be back before the test is given up.
"""

import asyncio
import threading
from collections.abc import Mapping

import pytest

from odradek.client.assignors import Subscription, TopicPartitions, encode_subscription
from odradek.client.assignors.ranges import RangeAssignor
from odradek.client.consumer import OffsetAndMetadata
from odradek.client.errors import CallTimeoutError
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupResponseMember
from odradek.protocol.messages.leave_group import LeaveGroupResponse
from odradek.protocol.schema import replace
from tests.support.scripted_broker import scripted, told_topic
from tests.support.scripted_groups import (
    TP,
    batch,
    commit_answered,
    committed,
    fetched,
    joined,
    never_answer,
    script_coordinator,
    script_group,
    script_topic,
    synced,
)
from tests.unit.client.consumer.test_consumer_groups import (
    Listener,
    poll_until_assigned,
    until_commits,
)
from tests.unit.client.consumer.test_consumer_reading import WAIT_S, consumer_of
from tests.unit.client.consumer.test_consumer_rebalances import REBALANCE

OTHER = TopicPartition("t", 1)
# Commits before partitions go, and at no other time.
AUTOMATIC: dict[str, object] = {
    "group_id": "g",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 3_600_000,
}


async def test_polls_keep_their_time_while_a_commit_before_a_revocation_is_not_answered() -> None:
    """09:CL-5: and hand nothing out of what goes, which others will read from the commit on."""
    listener = Listener()
    has_read: list[object] = []
    settings = {**AUTOMATIC, "heartbeat_interval_ms": 1}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, fetched(batch(5, b"a")), fetched(batch(6, b"b")), never_answer)
        script_group(broker, TP)
        broker.script[ApiKey.HEARTBEAT].clear()

        def beat(_request: HeartbeatRequest) -> HeartbeatResponse | None:
            if broker.received(ApiKey.OFFSET_COMMIT):
                return None  # Brokers answer in order.
            return REBALANCE if has_read else HeartbeatResponse()

        broker.will_answer(ApiKey.HEARTBEAT, beat)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.OFFSET_COMMIT, never_answer)
        await consumer.subscribe(["t"], listener=listener)
        while not has_read:
            has_read += await consumer.poll(0.01)
        while not broker.received(ApiKey.OFFSET_COMMIT):
            has_read += await consumer.poll(0.001)
        before = len(has_read)
        for timeout in (0, 0.001, 0.05):
            has_read += await consumer.poll(timeout)
        assert len(has_read) == before
        assert listener.told == [("assigned", [0])]
        assert len(broker.received(ApiKey.JOIN_GROUP)) == 1
        [commit] = broker.received(ApiKey.OFFSET_COMMIT)
        assert commit.topics[0].partitions[0].committed_offset == 5 + before
        await consumer.close(timeout=0)


async def test_a_cooperative_member_reads_on_while_the_commit_before_a_loss_is_not_answered() -> (
    None
):
    """09:CL-5, 09:CL-23: the poll that takes an assignment over keeps its time as well."""
    strategy = "cooperative-sticky"
    settings = {
        **AUTOMATIC,
        "heartbeat_interval_ms": 1,
        "partition_assignment_strategy": strategy,
    }
    listener = Listener()
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        broker.topics["t"] = told_topic("t", partitions=2)
        script_coordinator(broker)
        broker.will_answer(
            ApiKey.JOIN_GROUP, *(joined(generation=n, strategy=strategy) for n in (1, 2))
        )
        broker.will_answer(ApiKey.SYNC_GROUP, synced(TP, OTHER), synced(OTHER))

        def beat(request: HeartbeatRequest) -> HeartbeatResponse | None:
            if len(broker.received(ApiKey.OFFSET_COMMIT)) == 1:
                return None  # Brokers answer in order.
            is_first = request.generation_id == 1 and listener.told
            return REBALANCE if is_first else HeartbeatResponse()

        broker.will_answer(ApiKey.HEARTBEAT, beat)
        broker.will_answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.LIST_OFFSETS, never_answer)
        broker.will_answer(ApiKey.OFFSET_COMMIT, never_answer, commit_answered())
        await consumer.subscribe(["t"], listener=listener)
        while not broker.received(ApiKey.OFFSET_COMMIT):
            await consumer.poll(0.01)
        for timeout in (0, 0.001, 0.05):
            await consumer.poll(timeout)
        assert consumer.assignment() == {TP, OTHER}
        # The commit is given up with its connection, and the member goes on.
        group = consumer._group
        assert group is not None
        group._coordinator.drop_connection()
        while consumer.assignment() != {OTHER}:
            await consumer.poll(0.01)
        assert listener.told[:3] == [("assigned", [0, 1]), ("revoked", [0]), ("assigned", [])]
        await consumer.close(timeout=0)


async def test_who_left_in_silence_is_gone_before_it_joins_anew() -> None:
    """09:CL-22: though the application comes back while the leave is on its way."""
    settings = {"group_id": "g", "heartbeat_interval_ms": 1, "max_poll_interval_ms": 50}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        script_group(broker, TP)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"])
        await poll_until_assigned(consumer)
        group = consumer._group
        assert group is not None
        group._coordinator.forget("the leave has to look for it")
        while not group.membership.has_lost:  # noqa: ASYNC110 - at once, before the leave is sent
            await asyncio.sleep(0)
        while len(broker.received(ApiKey.JOIN_GROUP)) < 2:
            await consumer.poll(0)
        sent = [key for key, _, _ in broker.requests]
        again = [at for at, key in enumerate(sent) if key is ApiKey.JOIN_GROUP][1]
        assert ApiKey.LEAVE_GROUP in sent[:again]
        assert broker.received(ApiKey.LEAVE_GROUP)[0].members[0].member_id == "m-1"


async def test_a_leader_shows_that_it_lives_while_it_assigns() -> None:
    """09:CL-22."""
    beats: list[HeartbeatRequest] = []
    has_beaten = threading.Event()

    def beat(request: HeartbeatRequest) -> HeartbeatResponse:
        beats.append(request)
        if len(beats) == 3:
            has_beaten.set()
        return HeartbeatResponse()

    class Slow(RangeAssignor):
        def assign(
            self, topics: Mapping[str, TopicPartitions], members: Mapping[str, Subscription]
        ) -> dict[str, list[TopicPartition]]:
            assert has_beaten.wait(20), "no heartbeat came"
            assert not broker.received(ApiKey.SYNC_GROUP)
            return super().assign(topics, members)

    settings = {"group_id": "g", "heartbeat_interval_ms": 1, "assignors": [Slow()]}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        script_group(broker, TP)
        broker.script[ApiKey.JOIN_GROUP].clear()
        broker.script[ApiKey.HEARTBEAT].clear()
        metadata = encode_subscription(Subscription(topics=("t",)))
        members = (JoinGroupResponseMember(member_id="m-1", metadata=metadata),)
        broker.will_answer(
            ApiKey.JOIN_GROUP, replace(joined(generation=7), leader="m-1", members=members)
        )
        broker.will_answer(ApiKey.HEARTBEAT, beat)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"])
        await poll_until_assigned(consumer)
        assert (beats[0].member_id, beats[0].generation_id) == ("m-1", 7)
        [sync] = broker.received(ApiKey.SYNC_GROUP)
        assert [one.member_id for one in sync.assignments] == ["m-1"]


async def test_a_commit_does_not_wait_for_the_answer_to_the_one_before() -> None:
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(0))
        broker.will_answer(ApiKey.OFFSET_COMMIT, never_answer)
        await consumer.assign([TP])
        for offset in (1, 2, 3):
            await consumer.commit_async({TP: offset})
        await until_commits(broker, 3)
        sent = [
            request.topics[0].partitions[0].committed_offset
            for request in broker.received(ApiKey.OFFSET_COMMIT)
        ]
        assert sent == [1, 2, 3]
        await consumer.close(timeout=0)


async def test_a_commit_waits_no_longer_for_the_coordinator_than_it_may() -> None:
    """09:CL-5: somebody with more time is looking for it already."""
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker, never_answer)
        await consumer.assign([TP])
        await consumer.commit_async({TP: 1})
        while not broker.received(ApiKey.FIND_COORDINATOR):  # noqa: ASYNC110 - the broker's list
            await asyncio.sleep(0.001)
        with pytest.raises(CallTimeoutError):
            await consumer.commit_sync({TP: 2}, 0.05)
        with pytest.raises(CallTimeoutError):
            await consumer.committed([TP], 0.05)
        await consumer.close(timeout=0)


async def test_committed_offsets_are_told_while_a_join_waits() -> None:
    async with scripted() as broker, consumer_of(broker, group_id="g") as consumer:
        script_topic(broker, never_answer)
        script_coordinator(broker)
        broker.will_answer(ApiKey.JOIN_GROUP, never_answer)
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"])
        while not broker.received(ApiKey.JOIN_GROUP):
            await consumer.poll(0.01)
        assert await consumer.committed([TP], WAIT_S) == {TP: OffsetAndMetadata(5)}
        await consumer.close(timeout=0)
