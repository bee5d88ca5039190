"""Requests for topics: names, counts, placement."""

import uuid
from collections.abc import Mapping
from random import Random

import pytest

from odradek.controller.broker_handlers import BrokerDifference, compare_brokers
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext
from odradek.controller.leader_handlers import imbalanced_partitions
from odradek.controller.topic_requests import (
    accept_any_config,
    check_topic_name,
    decide_new_partitions,
    decide_new_topic,
)
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import NewPartitions, NewTopic, TopicResult
from odradek.metadata.changes import TopicCreated
from odradek.metadata.ports import PartitionRecord, RegisteredBroker, TopicRecord
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from tests.support.controllers import broker


def context_with(*broker_ids: int) -> ControllerContext:
    context = ControllerContext()
    context.add_live_brokers({b: RegisteredBroker(broker(b), b) for b in broker_ids})
    context.put_topic(
        "old.topic",
        TopicRecord(
            topic_id=uuid.UUID(int=1),
            assignment={0: ReplicaAssignment((0,))},
            version=3,
            incarnation=0,
        ),
    )
    return context


def decide(topic: NewTopic, *broker_ids: int) -> TopicCreated:
    return decide_new_topic(
        context_with(*(broker_ids or (0, 1, 2))),
        topic,
        topic_id=uuid.UUID(int=2),
        config=ControllerConfig(default_partition_count=4, default_replication_factor=2),
        check_configs=accept_any_config,
        random=Random(1),
    )


@pytest.mark.parametrize("name", ["a", "A-Z.0_9", "x" * 249, "...", "old-topic"])
def test_good_names(name: str) -> None:
    check_topic_name(name, ["old.topic"])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("ä", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a\n", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("old_topic", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("old.topic", ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_bad_names(name: str, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        check_topic_name(name, ["old.topic"])
    assert refusal.value.code is code


def test_defaults_and_counts() -> None:
    change = decide(NewTopic(name="t", configs={"a": "1", "b": None}))
    assert len(change.assignment) == 4
    assert {len(a.replicas) for a in change.assignment.values()} == {2}
    assert change.configs == {"a": "1"}
    result = TopicResult(name="t", assignment=change.assignment)
    assert (result.partition_count, result.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(name="t", partition_count=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partition_count=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", assignment={}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignment={1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignment={0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignment={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            NewTopic(name="t", assignment={0: [0]}, partition_count=1),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_bad_counts_and_assignments(topic: NewTopic, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        decide(topic)
    assert refusal.value.code is code


def test_configs_are_checked_by_whoever_knows_them() -> None:
    def refuse(topic: str, configs: Mapping[str, str | None]) -> Mapping[str, str]:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{topic}: {sorted(configs)}")

    with pytest.raises(ApiError) as refusal:
        decide_new_topic(
            context_with(0),
            NewTopic(name="t", configs={"x": "1"}),
            topic_id=uuid.UUID(int=2),
            config=ControllerConfig(),
            check_configs=refuse,
            random=Random(1),
        )
    assert refusal.value.code is ErrorCode.INVALID_CONFIG


def test_partitions_to_add() -> None:
    context = context_with(0, 1)
    change = decide_new_partitions(context, NewPartitions(name="old.topic", total_count=3))
    assert (sorted(change.assignment), sorted(change.added)) == ([0, 1, 2], [1, 2])
    assert change.version == 3
    by_hand = NewPartitions(name="old.topic", total_count=2, assignments=[[1]])
    change = decide_new_partitions(context, by_hand)
    assert change.assignment[1] == ReplicaAssignment((1,))


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewPartitions(name="x", total_count=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions(name="a/b", total_count=2), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewPartitions(name="old.topic", total_count=1), ErrorCode.INVALID_PARTITIONS),
        (
            NewPartitions(name="old.topic", total_count=3, assignments=[[0]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            NewPartitions(name="old.topic", total_count=2, assignments=[[0, 1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_partitions_that_cannot_be_added(topic: NewPartitions, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        decide_new_partitions(context_with(0, 1), topic)
    assert refusal.value.code is code


def test_topics_that_are_moved_or_deleted_do_not_grow() -> None:
    context = context_with(0, 1)
    context.queue_topic_deletion(["old.topic"])
    with pytest.raises(ApiError) as refusal:
        decide_new_partitions(context, NewPartitions(name="old.topic", total_count=2))
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    context.topics_to_be_deleted.clear()
    tp = TopicPartition("old.topic", 0)
    context.update_partition_assignment(tp, ReplicaAssignment((1, 0), (1,), (0,)))
    with pytest.raises(ApiError) as refusal:
        decide_new_partitions(context, NewPartitions(name="old.topic", total_count=2))
    assert refusal.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_brokers_are_compared_by_epoch() -> None:
    """03b:T4.1 (the channel operations are in test_driver)."""
    registered = {b: RegisteredBroker(broker(b), e) for b, e in {1: 5, 2: 9, 4: 1}.items()}
    assert compare_brokers({1: 5, 2: 7, 3: 2}, registered) == BrokerDifference(
        new=[4], dead=[3], bounced=[2], live=[1, 2, 4]
    )


@pytest.mark.parametrize(("percentage", "count"), [(0, 1), (49, 1), (50, 0), (100, 0)])
def test_leaders_go_back_above_a_share(percentage: int, count: int) -> None:
    """03b §9: one of the two partitions that prefer broker 0 is led by 1."""
    context = context_with(0, 1)
    assignment = {0: ReplicaAssignment((0, 1)), 1: ReplicaAssignment((0, 1))}
    context.put_topic(
        "t",
        TopicRecord(topic_id=uuid.UUID(int=3), assignment=assignment, version=0, incarnation=0),
    )
    for partition, leader in ((0, 0), (1, 1)):
        state = LeaderAndIsr(leader=leader, leader_epoch=0, isr=(0, 1))
        context.partition_leadership[TopicPartition("t", partition)] = PartitionRecord(state, 1)
    found = imbalanced_partitions(context, percentage)
    assert found == [TopicPartition("t", 1)][:count]
    context.remove_live_brokers([0])
    assert imbalanced_partitions(context, 0) == []
