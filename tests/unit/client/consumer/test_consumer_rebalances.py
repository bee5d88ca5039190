"""Rebalances that meet trouble: commits that are never answered, partitions that change hands."""

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.find_coordinator import FindCoordinatorResponse
from odradek.protocol.messages.heartbeat import HeartbeatResponse
from odradek.protocol.messages.leave_group import LeaveGroupResponse
from odradek.protocol.schema import replace
from tests.support.scripted_broker import scripted, told_topic
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
from tests.unit.client.consumer.test_consumer_groups import Listener, poll_on, poll_until_assigned
from tests.unit.client.consumer.test_consumer_reading import consumer_of
from tests.unit.client.consumer.test_consumer_trouble import tell_brokers

OTHER = TopicPartition("t", 1)
REBALANCE = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def one_record_at_5(request: FetchRequest) -> FetchResponse | None:
    """However often it is asked for: requests may time out on a slow machine."""
    offset = request.topics[0].partitions[0].fetch_offset
    return fetched(batch(5, b"a")) if offset == 5 else None


async def test_a_commit_that_is_never_answered_does_not_keep_a_member_from_joining() -> None:
    """15:KAFKA-14024: it is given up after request.timeout.ms, and records are read again."""
    listener = Listener()
    has_read: list[object] = []
    settings = {
        "group_id": "g",
        "enable_auto_commit": True,
        "heartbeat_interval_ms": 1,
        "request_timeout_ms": 300,
    }
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, one_record_at_5)
        script_coordinator(broker)
        broker.will_answer(ApiKey.JOIN_GROUP, joined(), joined(generation=2))
        broker.will_answer(ApiKey.SYNC_GROUP, synced(TP))
        broker.will_answer(
            ApiKey.HEARTBEAT,
            lambda _request: REBALANCE if has_read else HeartbeatResponse(),
        )
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.OFFSET_COMMIT, never_answer)
        await consumer.subscribe(["t"], listener=listener)
        while len(listener.told) < 3:
            has_read += await consumer.poll(0.01)
        assert listener.told[:3] == [("assigned", [0]), ("revoked", [0]), ("assigned", [0])]
        assert broker.received(ApiKey.OFFSET_COMMIT)
        assert broker.received(ApiKey.JOIN_GROUP)[-1].member_id == "m-1"
        await consumer.close(timeout=0)


async def test_a_cooperative_member_lets_go_before_it_takes_over_and_joins_again() -> None:
    """15:KAFKA-14639: one partition goes and another comes in the same round."""
    strategy = "cooperative-sticky"
    listener = Listener()
    has_read: list[object] = []
    settings = {
        "group_id": "g",
        "enable_auto_commit": True,
        "heartbeat_interval_ms": 1,
        "partition_assignment_strategy": strategy,
    }
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        broker.topics["t"] = told_topic("t", partitions=2)
        broker.will_answer(ApiKey.FETCH, fetched(batch(5, b"a")), never_answer)
        script_coordinator(broker)
        broker.will_answer(
            ApiKey.JOIN_GROUP,
            *(replace(joined(generation=number), protocol_name=strategy) for number in (1, 2, 3)),
        )
        broker.will_answer(
            ApiKey.SYNC_GROUP,
            *(replace(synced(tp), protocol_name=strategy) for tp in (TP, OTHER, OTHER)),
        )
        broker.will_answer(
            ApiKey.HEARTBEAT,
            lambda _request: (
                REBALANCE if has_read and len(listener.told) == 1 else HeartbeatResponse()
            ),
        )
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        broker.will_answer(ApiKey.OFFSET_COMMIT, commit_answered())
        broker.will_answer(ApiKey.LIST_OFFSETS, never_answer)
        await consumer.subscribe(["t"], listener=listener)
        while len(broker.received(ApiKey.JOIN_GROUP)) < 3 or consumer.assignment() != {OTHER}:
            has_read += await consumer.poll(0.01)
        assert listener.told[:3] == [("assigned", [0]), ("revoked", [0]), ("assigned", [1])]
        # What was read of the one that goes is committed, by the member that it still is.
        [commit, *_] = broker.received(ApiKey.OFFSET_COMMIT)
        assert commit.topics[0].partitions[0].partition_index == 0
        assert commit.topics[0].partitions[0].committed_offset == 6
        await consumer.close(timeout=0)


async def test_a_member_whose_heartbeat_was_refused_sends_them_again_when_it_polls_on() -> None:
    """Otherwise commits keep its session alive, and the group waits for a member that hears of none
    of its rebalances.
    """
    settings = {"group_id": "g", "heartbeat_interval_ms": 1}
    async with scripted() as broker, consumer_of(broker, **settings) as consumer:
        script_topic(broker, never_answer)
        script_group(broker, TP)
        broker.will_answer(ApiKey.JOIN_GROUP, joined(), joined(generation=2))
        broker.will_answer(
            ApiKey.HEARTBEAT,
            HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            REBALANCE,
            HeartbeatResponse(),
        )
        broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"])
        with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED"):
            await poll_on(consumer)
        while len(broker.received(ApiKey.JOIN_GROUP)) < 2:
            await consumer.poll(0.01)
        await consumer.close(timeout=0)


async def test_a_coordinator_that_has_left_the_cluster_is_looked_up_again() -> None:
    """The metadata no longer has the broker, and nothing is raised: the group goes on elsewhere."""
    settings = {"group_id": "g", "heartbeat_interval_ms": 1, "metadata_max_age_ms": 1}
    async with (
        scripted() as stays,
        scripted() as leaves,
        consumer_of(stays, **settings) as consumer,
    ):
        has_left = False

        def coordinator(_request: object) -> FindCoordinatorResponse:
            return coordinator_is(node_id=0 if has_left else 1)

        for broker in (stays, leaves):
            script_topic(broker, never_answer)
            tell_brokers(broker, stays.port, leaves.port)
            script_coordinator(broker, coordinator)
            broker.will_answer(ApiKey.JOIN_GROUP, joined())
            broker.will_answer(ApiKey.SYNC_GROUP, synced(TP))
            broker.will_answer(ApiKey.HEARTBEAT, HeartbeatResponse())
            broker.will_answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
            broker.will_answer(ApiKey.OFFSET_FETCH, committed(5))
        await consumer.subscribe(["t"])
        await poll_until_assigned(consumer)
        assert leaves.received(ApiKey.JOIN_GROUP)
        has_left = True
        for broker in (stays, leaves):
            tell_brokers(broker, stays.port)
        while not stays.received(ApiKey.HEARTBEAT):
            await consumer.poll(0.01)
        await consumer.close(timeout=0)
