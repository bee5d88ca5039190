"""The metadata cache: the vectors of the specification, and the errors of a Metadata answer."""

import asyncio
import logging
import uuid
from dataclasses import replace

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import MetadataCache, PartitionMetadata
from odradek.metadata.delta import ClusterDelta, ClusterMembership
from odradek.metadata.image import NO_NODE, ConfigResource, LiveBroker, Node, PartitionState
from odradek.model import LEADER_DURING_DELETE, Endpoint, SecurityProtocol, TopicPartition
from odradek.protocol.enums import ConfigResourceType
from tests.support.caches import update_cache

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
ID_A, ID_B = uuid.UUID(int=10), uuid.UUID(int=11)


def broker(broker_id: int, *listeners: str) -> LiveBroker:
    endpoints = tuple(
        Endpoint(f"h{broker_id}", 9092 + index, listener, SecurityProtocol.PLAINTEXT)
        for index, listener in enumerate(listeners or ("PLAINTEXT",))
    )
    return LiveBroker(broker_id, endpoints)


def state(
    topic: str, partition: int, leader: int, replicas: tuple[int, ...] = (1, 2), epoch: int = 0
) -> PartitionState:
    return PartitionState(
        topic=topic,
        partition=partition,
        leader=leader,
        leader_epoch=epoch,
        isr=replicas,
        replicas=replicas,
    )


BROKERS = (broker(0), broker(1), broker(2))
BASE = ClusterDelta(
    controller_epoch=1,
    membership=ClusterMembership(1, BROKERS),
    partitions=(state("t", 0, 1, (1, 2)), state("t", 1, 2, (2, 0))),
    topic_ids={"t": ID_A},
)
SAME = ClusterMembership(1, BROKERS)


def base() -> MetadataCache:
    cache = MetadataCache(0)
    assert update_cache(cache, 1, BASE) == []
    return cache


def update(
    *partitions: PartitionState, members: ClusterMembership = SAME, epoch: int = 1
) -> ClusterDelta:
    return ClusterDelta(controller_epoch=epoch, membership=members, partitions=partitions)


def deletion(topic: str, partition: int) -> PartitionState:
    return state(topic, partition, LEADER_DURING_DELETE)


def test_a_new_cache_is_empty() -> None:
    """06:M1."""
    cache = MetadataCache(0)
    assert cache.get_all_topics() == set()
    assert cache.get_controller_id() is None
    assert not cache.contains_topic("t")
    assert not cache.is_published


def test_the_base() -> None:
    """06:M2."""
    cache = base()
    assert cache.is_published
    assert cache.get_all_topics() == {"t"}
    assert cache.get_all_partitions() == {T0, T1}
    assert cache.contains(T0)
    assert not cache.contains(T2)
    assert cache.get_controller_id() == 1
    assert cache.get_non_existing_topics(["t", "u"]) == {"u"}
    assert [b.id for b in cache.get_alive_brokers()] == [0, 1, 2]


def test_the_live_brokers_are_replaced_and_partitions_kept() -> None:
    """06:M3."""
    cache = base()
    topics = cache.image.topics
    deleted = update_cache(cache, 2, update(members=ClusterMembership(None, BROKERS[:2])))
    assert deleted == []
    assert cache.get_controller_id() is None
    assert cache.get_all_partitions() == {T0, T1}
    assert cache.image.topics is topics
    assert cache.get_alive_broker(2) is None
    assert cache.get_alive_broker(1) == BROKERS[1]


def test_a_partition_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """06:M4."""
    cache = base()
    with caplog.at_level(logging.INFO, "state.change.logger"):
        assert update_cache(cache, 7, update(deletion("t", 0))) == [T0]
    assert cache.get_all_partitions() == {T1}
    assert caplog.messages == [
        "[MetadataCache brokerId=0] Added 0 partitions, deleted 1 partitions, "
        "from controller 1 epoch 1 with correlation id 7"
    ]


def test_the_last_partition_takes_its_topic_along() -> None:
    """06:M5."""
    cache = base()
    update_cache(cache, 2, update(deletion("t", 0)))
    assert update_cache(cache, 3, update(deletion("t", 1))) == [T1]
    assert not cache.contains_topic("t")


def test_an_update_is_partial() -> None:
    """06:M6: what is not named stays, and is shared rather than copied."""
    cache = base()
    before = cache.image
    update_cache(cache, 2, update(state("u", 0, 0)))
    assert cache.get_all_topics() == {"t", "u"}
    assert cache.image.topics["t"] is before.topics["t"]
    assert before.topics.keys() == {"t"}


def test_a_held_image_does_not_change() -> None:
    """06:M7."""
    cache = base()
    held = cache.image
    update_cache(cache, 2, update(state("t", 0, 2, epoch=1)))
    now, then = cache.get_partition_info("t", 0), held.partition("t", 0)
    assert now is not None
    assert then is not None
    assert (now.leader, now.leader_epoch) == (2, 1)
    assert (then.leader, then.leader_epoch) == (1, 0)
    assert cache.get_partition_info("t", 1) is held.partition("t", 1)


def test_replica_endpoints() -> None:
    """06:M8."""
    cache = base()
    endpoints = cache.get_partition_replica_endpoints(T0, "PLAINTEXT")
    assert endpoints == {1: Node(1, "h1", 9092), 2: Node(2, "h2", 9092)}
    assert cache.get_partition_replica_endpoints(T0, "SSL") == {}
    assert cache.get_partition_replica_endpoints(TopicPartition("t", 9), "PLAINTEXT") == {}
    update_cache(cache, 2, update(members=ClusterMembership(1, BROKERS[:2])))
    assert cache.get_partition_replica_endpoints(T0, "PLAINTEXT").keys() == {1}


def test_different_listeners_are_an_error_in_the_log_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """06:M9."""
    cache = MetadataCache(0)
    brokers = (broker(0, "A", "B"), broker(1, "A", "B"), broker(2, "A"))
    with caplog.at_level(logging.ERROR):
        update_cache(cache, 1, update(members=ClusterMembership(1, brokers)))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "Listeners are not identical across brokers" in caplog.text
    assert cache.get_alive_brokers() == list(brokers)


def test_listeners_are_not_compared_while_this_broker_is_not_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """06:M10."""
    cache = MetadataCache(0)
    with caplog.at_level(logging.ERROR):
        update_cache(
            cache, 1, update(members=ClusterMembership(1, (broker(1, "A", "B"), broker(2, "A"))))
        )
    assert caplog.records == []
    assert len(cache.get_alive_brokers()) == 2


def test_added_and_deleted_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """06:M11."""
    cache = base()
    added = (state("u", 0, 1), state("u", 1, 1), state("t", 2, 1))
    with caplog.at_level(logging.INFO, "state.change.logger"):
        deleted = update_cache(
            cache, 2, update(added[0], deletion("t", 0), added[1], deletion("t", 1), added[2])
        )
    assert deleted == [T0, T1]
    assert "Added 3 partitions, deleted 2 partitions" in caplog.text


def test_every_partition_is_traced_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    cache = MetadataCache(0)
    with caplog.at_level(5, "state.change.logger"):
        update_cache(cache, 3, BASE)
    assert len(caplog.messages) == 3


def test_an_older_controller_is_refused() -> None:
    """06:M12."""
    cache = base()
    update_cache(cache, 2, update(epoch=5))
    held = cache.image
    with pytest.raises(ApiError, match="controller epoch 4 is older than 5") as caught:
        update_cache(cache, 3, update(deletion("t", 0), epoch=4))
    assert caught.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert cache.image is held
    update_cache(cache, 4, update(epoch=5))


def test_a_broker_behind_catches_up() -> None:
    """06:M13: the same question, asked again, is answered."""
    ahead, behind = base(), base()
    created = update(state("new", 0, 1))
    update_cache(ahead, 2, created)
    assert [t.name for t in ahead.get_topic_metadata(["new"], "PLAINTEXT")] == ["new"]
    assert behind.get_topic_metadata(["new"], "PLAINTEXT") == []
    update_cache(behind, 2, created)
    assert behind.get_topic_metadata(["new"], "PLAINTEXT") == ahead.get_topic_metadata(
        ["new"], "PLAINTEXT"
    )


def test_readers_see_whole_updates_only() -> None:
    """06:M14: eight readers keep their image over an await during 1000 updates.

    Each update gives both partitions the same leader and moves the controller with it.
    """
    cache = base()
    reads = 0

    async def read() -> None:
        nonlocal reads
        while cache.get_controller_id() != 1000:
            image = cache.image
            first = image.partition("t", 0)
            await asyncio.sleep(0)
            second = image.partition("t", 1)
            if first is not None and second is not None and image.controller_epoch > 1:
                assert first.leader == second.leader == image.controller_id
                reads += 1

    async def write() -> None:
        for number in range(2, 1001):
            update_cache(
                cache,
                number,
                update(
                    state("t", 0, number),
                    state("t", 1, number),
                    members=ClusterMembership(number, BROKERS),
                    epoch=number,
                ),
            )
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(read() for _ in range(8)), write())

    asyncio.run(main())
    assert reads > 1000


def test_topic_ids_follow_their_topics() -> None:
    """06:M15."""
    cache = base()
    assert cache.get_topic_name(ID_A) == "t"
    assert cache.get_topic_id("t") == ID_A
    update_cache(cache, 2, update(deletion("t", 0), deletion("t", 1)))
    assert cache.get_topic_name(ID_A) is None
    assert cache.get_topic_id("t") is None
    update_cache(cache, 3, replace(update(state("t", 0, 1)), topic_ids={"t": ID_B}))
    assert cache.get_topic_name(ID_B) == "t"
    assert cache.get_topic_id("t") == ID_B
    assert cache.get_topic_name(ID_A) is None


def test_another_id_replaces_the_topic_whole() -> None:
    cache = base()
    update_cache(cache, 2, replace(update(state("t", 0, 1)), topic_ids={"t": ID_B}))
    assert cache.get_all_partitions() == {T0}
    assert cache.get_topic_name(ID_A) is None
    assert cache.image.topic_by_id(ID_A) is None
    topic = cache.image.topic_by_id(ID_B)
    assert topic is not None
    assert topic.name == "t"


def test_configs_alone_do_not_make_the_cache_answer() -> None:
    """The half of 06 §8's last vector that is the cache's: no answer before the first update."""
    cache = MetadataCache(0)
    resource = ConfigResource(ConfigResourceType.BROKER, "")
    published = []
    for delta in (ClusterDelta(configs={resource: {"a": "b"}}), BASE):
        update_cache(cache, 1, delta)
        published.append(cache.is_published)
    assert published == [False, True]
    assert cache.image.configs == {resource: {"a": "b"}}


def test_the_leader_endpoint() -> None:
    cache = base()
    assert cache.get_partition_leader_endpoint("t", 0, "PLAINTEXT") == Node(1, "h1", 9092)
    assert cache.get_partition_leader_endpoint("t", 0, "SSL") == NO_NODE
    assert cache.get_partition_leader_endpoint("t", 9, "PLAINTEXT") is None
    update_cache(cache, 2, update(state("t", 0, -1)))
    assert cache.get_partition_leader_endpoint("t", 0, "PLAINTEXT") == NO_NODE


LISTENER_BROKERS = (broker(0, "A"), broker(1, "A", "B"), broker(2, "B"))


@pytest.mark.parametrize(
    ("listener", "names_listener", "expected"),
    [
        ("A", False, ErrorCode.NONE),
        ("C", False, ErrorCode.LEADER_NOT_AVAILABLE),
        ("C", True, ErrorCode.LISTENER_NOT_FOUND),
    ],
)
def test_a_leader_that_cannot_be_reached(
    listener: str, names_listener: bool, expected: ErrorCode
) -> None:
    cache = MetadataCache(0)
    update_cache(cache, 1, replace(BASE, membership=ClusterMembership(1, LISTENER_BROKERS)))
    (topic,) = cache.get_topic_metadata(["t"], listener, error_unavailable_listeners=names_listener)
    assert topic.id == ID_A
    leader = 1 if expected is ErrorCode.NONE else -1
    assert topic.partitions[0] == PartitionMetadata(expected, 0, leader, 0, (1, 2), (1, 2), ())


@pytest.mark.parametrize("names_listener", [False, True])
def test_a_dead_leader_is_not_available_whatever_the_listener(names_listener: bool) -> None:
    cache = base()
    update_cache(cache, 2, update(members=ClusterMembership(1, BROKERS[::2])))
    (topic,) = cache.get_topic_metadata(
        ["t", "unknown"], "PLAINTEXT", error_unavailable_listeners=names_listener
    )
    dead, alive = topic.partitions
    assert (dead.error, dead.leader) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (dead.replicas, dead.isr) == ((1, 2), (1, 2))
    assert (alive.error, alive.leader) == (ErrorCode.NONE, 2)


def test_dead_replicas_are_an_error_for_the_oldest_clients_only() -> None:
    cache = base()
    update_cache(cache, 2, update(members=ClusterMembership(1, BROKERS[:2])))
    (old,) = cache.get_topic_metadata(["t"], "PLAINTEXT", error_unavailable_endpoints=True)
    assert old.partitions[0] == PartitionMetadata(
        ErrorCode.REPLICA_NOT_AVAILABLE, 0, 1, 0, (1,), (1,), ()
    )
    (new,) = cache.get_topic_metadata(["t"], "PLAINTEXT")
    assert new.partitions[0].error is ErrorCode.NONE
    assert new.partitions[0].replicas == (1, 2)


def test_cluster_metadata() -> None:
    cache = MetadataCache(0)
    update_cache(cache, 1, replace(BASE, membership=ClusterMembership(1, LISTENER_BROKERS)))
    seen = cache.get_cluster_metadata("cluster", "A")
    assert seen.cluster_id == "cluster"
    assert [node.id for node in seen.nodes] == [0, 1]
    assert seen.controller == Node(1, "h1", 9092)
    assert [topic.name for topic in seen.topics] == ["t"]
    assert cache.get_alive_nodes("A") == seen.nodes
    empty = MetadataCache(0).get_cluster_metadata("cluster", "A")
    assert (empty.nodes, empty.controller, empty.topics) == ([], None, [])


def test_a_listener_comes_once_per_broker() -> None:
    with pytest.raises(ApiError, match="a listener name comes twice"):
        broker(1, "A", "A")
    with pytest.raises(ApiError, match=r"broker 1 has no listener B, only \['A'\]") as caught:
        broker(1, "A").node("B")
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert broker(1, "A").node("A") == Node(1, "h1", 9092)
