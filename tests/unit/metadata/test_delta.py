"""Applying deltas to the cluster image."""

import uuid
from dataclasses import replace

import pytest

from odradek.errors import ApiError
from odradek.metadata.delta import (
    ClusterDelta,
    HostedPartition,
    ImageDelta,
    LocalDelta,
    StoppedPartition,
    apply_delta,
)
from odradek.metadata.image import (
    ClusterImage,
    ConfigResource,
    PartitionState,
    QuotaEntity,
    ScramCredential,
    ScramKey,
)
from odradek.model import LEADER_DURING_DELETE, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ConfigResourceType
from odradek.security.acls import AclBinding
from odradek.security.operations import Operation, PatternType, Permission, ResourceType

ID_A, ID_B = uuid.UUID(int=10), uuid.UUID(int=11)
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
COMPACTED = {"cleanup.policy": "compact"}


def state(topic: str, partition: int, leader: int = 1) -> PartitionState:
    return PartitionState(
        topic=topic, partition=partition, leader=leader, leader_epoch=0, isr=(1,), replicas=(1,)
    )


def apply(image: ClusterImage, delta: ClusterDelta) -> ClusterImage:
    return apply_delta(image, ImageDelta(cluster=delta)).image


def topic(*partitions: PartitionState, topic_id: uuid.UUID = ID_A) -> ClusterDelta:
    return ClusterDelta(partitions=partitions, topic_ids={"t": topic_id})


def test_an_empty_delta_shares_everything() -> None:
    image = apply(ClusterImage(), replace(topic(state("t", 0)), configs={TOPIC: COMPACTED}))
    after = apply(image, ClusterDelta())
    assert after == image
    for name in ("brokers", "topics", "topic_names", "configs", "quotas", "scram", "features"):
        assert getattr(after, name) is getattr(image, name)


def test_configs_and_quotas_are_replaced_per_entity() -> None:
    user = QuotaEntity((("client-id", "c"), ("user", None)))
    image = apply(
        ClusterImage(),
        ClusterDelta(configs={TOPIC: COMPACTED}, quotas={user: {"producer_byte_rate": 1e6}}),
    )
    assert image.topic_configs("t") == COMPACTED
    assert image.topic_configs("u") == {}
    assert image.quotas == {user: {"producer_byte_rate": 1e6}}
    image = apply(image, ClusterDelta(configs={TOPIC: {}}, quotas={user: {}}))
    assert (image.configs, image.quotas) == ({}, {})


def test_acls_scram_and_features_come_and_go() -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        "t",
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    key = ScramKey("a", 1)
    credential = ScramCredential(b"salt", b"stored", b"server", 8192)
    image = apply(
        ClusterImage(),
        ClusterDelta(
            acls_added=frozenset({acl}), scram={key: credential}, features={"metadata.version": 7}
        ),
    )
    assert image.acls == frozenset({acl})
    assert image.scram == {key: credential}
    assert image.features == {"metadata.version": 7}
    gone = ClusterDelta(
        acls_removed=frozenset({acl}), scram={key: None}, features={"metadata.version": 0}
    )
    assert apply(image, gone) == ClusterImage()


def test_configs_leave_with_their_topic() -> None:
    image = apply(
        ClusterImage(),
        replace(topic(state("t", 0)), configs={TOPIC: COMPACTED}, config_owners={"t": ID_A}),
    )
    assert image.holds_configs_of("t", ID_A)
    image = apply(image, topic(state("t", 0, LEADER_DURING_DELETE)))
    assert image == ClusterImage()
    assert not image.holds_configs_of("t", ID_A)


def test_configs_read_for_the_next_topic_of_the_name_stay() -> None:
    """The local part of the new topic may come before the old one's end is announced."""
    image = apply(
        ClusterImage(),
        replace(topic(state("t", 0)), configs={TOPIC: COMPACTED}, config_owners={"t": ID_A}),
    )
    image = apply(
        image, ClusterDelta(configs={TOPIC: {"retention.ms": "1"}}, config_owners={"t": ID_B})
    )
    assert image.holds_configs_of("t", ID_B)
    image = apply(image, topic(state("t", 0), topic_id=ID_B))
    assert image.topic_configs("t") == {"retention.ms": "1"}
    assert image.holds_configs_of("t", ID_B)


def test_configs_of_a_replaced_topic_go() -> None:
    image = apply(ClusterImage(), replace(topic(state("t", 0)), configs={TOPIC: COMPACTED}))
    assert not image.holds_configs_of("t", ID_A)
    image = apply(image, topic(state("t", 0), topic_id=ID_B))
    assert image.topic_configs("t") == {}


def test_a_topic_without_an_id_keeps_the_one_it_has() -> None:
    image = apply(ClusterImage(), topic(state("t", 0)))
    image = apply(image, ClusterDelta(partitions=(state("t", 1), state("u", 0))))
    assert image.topics["t"].id == ID_A
    assert image.topics["t"].partitions.keys() == {0, 1}
    assert image.topics["u"].id is None
    assert image.topic_names == {ID_A: "t"}


def test_one_id_for_two_topics_breaks_nothing() -> None:
    delta = ClusterDelta(
        partitions=(state("t", 0), state("u", 0)), topic_ids={"t": ID_A, "u": ID_A}
    )
    image = apply(ClusterImage(), delta)
    image = apply(image, topic(state("t", 0, LEADER_DURING_DELETE)))
    assert image.topic_names == {ID_A: "u"}


def test_deleting_what_is_not_there_is_reported_and_harmless() -> None:
    delta = ImageDelta(cluster=ClusterDelta(partitions=(state("x", 3, LEADER_DURING_DELETE),)))
    applied = apply_delta(ClusterImage(), delta)
    assert applied.deleted == [TopicPartition("x", 3)]
    assert applied.image == ClusterImage()


def test_a_local_part_changes_the_epoch_only() -> None:
    image = apply(ClusterImage(), topic(state("t", 0)))
    local = LocalDelta(
        controller_id=1,
        controller_epoch=4,
        hosted=(HostedPartition(state=state("t", 1), topic_id=ID_A, is_new=True),),
        stopped=(StoppedPartition(tp=TopicPartition("t", 0), leader_epoch=-2, deletes_log=True),),
    )
    applied = apply_delta(image, ImageDelta(local=local))
    assert applied.deleted == []
    assert applied.image == replace(image, controller_epoch=4)
    with pytest.raises(ApiError, match="controller epoch 3 is older than 4"):
        apply_delta(applied.image, ImageDelta(local=replace(local, controller_epoch=3)))


def test_a_delta_without_a_controller_is_never_too_old() -> None:
    image = ClusterImage(controller_epoch=9)
    assert apply(image, ClusterDelta(features={"f": 1})).controller_epoch == 9


@pytest.mark.parametrize(
    ("start", "target", "expected"),
    [
        pytest.param(
            ReplicaAssignment((1, 2, 3)),
            (2, 3, 4),
            ReplicaAssignment((2, 3, 4, 1), adding=(4,), removing=(1,)),
            id="03a:C-11",
        ),
        pytest.param(
            ReplicaAssignment((2, 3, 4, 1), adding=(4,), removing=(1,)),
            (1, 2, 3),
            ReplicaAssignment((1, 2, 3), adding=(), removing=()),
            id="cancelled",
        ),
    ],
)
def test_a_reassignment_holds_old_and_new_replicas(
    start: ReplicaAssignment, target: tuple[int, ...], expected: ReplicaAssignment
) -> None:
    moved = start.reassign_to(target)
    assert moved == expected
    assert moved.target == target
    assert set(moved.origin) == set(start.origin)
    assert moved.is_being_reassigned == bool(expected.adding or expected.removing)
    assert moved.remove_replica(4).replicas == tuple(r for r in expected.replicas if r != 4)
