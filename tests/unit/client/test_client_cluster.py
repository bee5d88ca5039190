"""A client's picture of its cluster."""

from odradek.client.cluster import NO_TOPIC_ID, Cluster, Node
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from odradek.protocol.schema import replace
from tests.support.scripted_broker import missing_topic, told_topic, topic_id

BROKERS = [
    MetadataResponseBroker(node_id=number, host=f"host-{number}", port=9092) for number in (0, 1, 2)
]
TP = TopicPartition("t", 0)


def picture(*topics: object, before: Cluster | None = None) -> Cluster:
    cluster, _ = (before or Cluster()).merged(answer(*topics), ["t"])
    return cluster


def answer(*topics: object) -> MetadataResponse:
    return MetadataResponse(brokers=BROKERS, cluster_id="c", controller_id=2, topics=topics)  # type: ignore[arg-type]  # any messages


def test_a_picture_has_brokers_topics_and_leaders() -> None:
    cluster = picture(told_topic("t", partitions=2, leader=1))

    assert (cluster.cluster_id, cluster.controller_id) == ("c", 2)
    assert cluster.nodes[1] == Node(1, "host-1", 9092)
    assert cluster.leader(TP) == cluster.nodes[1]
    assert cluster.topic_id("t") == topic_id("t")
    assert cluster.name_of(topic_id("t")) == "t"
    assert cluster.topics["t"].replication_factor == 1


def test_what_is_not_known_is_none() -> None:
    cluster = picture(told_topic("t", leader=7))

    assert cluster.leader(TP) is None  # No broker 7.
    assert cluster.leader(TopicPartition("t", 1)) is None
    assert cluster.leader(TopicPartition("t", -1)) is None
    assert cluster.leader(TopicPartition("u", 0)) is None
    assert cluster.topic_id("u") == NO_TOPIC_ID
    assert cluster.name_of(topic_id("u")) is None


def test_a_leader_is_replaced_by_an_equal_or_higher_epoch_only() -> None:
    """09:CL-4: a broker that missed an election must not lead clients back."""
    cluster = picture(told_topic("t", leader=1, leader_epoch=7))

    stale = picture(told_topic("t", leader=0, leader_epoch=6), before=cluster)
    equal = picture(told_topic("t", leader=2, leader_epoch=7), before=cluster)
    newer = picture(told_topic("t", leader=0, leader_epoch=8), before=cluster)

    leaders = [one.topics["t"].partitions[0].leader for one in (stale, equal, newer)]
    assert leaders == [1, 2, 0]


def test_another_id_under_the_same_name_is_another_topic() -> None:
    """09:CL-4: nothing of the deleted topic stays, its higher epoch least of all."""
    cluster = picture(told_topic("t", partitions=3, leader=1, leader_epoch=7))
    recreated = replace(told_topic("t", leader=0, leader_epoch=0), topic_id=b"another id......")

    cluster = picture(recreated, before=cluster)

    assert len(cluster.topics["t"].partitions) == 1
    assert cluster.topics["t"].partitions[0].leader == 0


def test_an_answer_for_some_topics_keeps_the_others() -> None:
    cluster, _ = Cluster().merged(answer(told_topic("t"), told_topic("u")), None)

    some, errors = cluster.merged(answer(missing_topic("t")), ["t"])
    everything, _ = cluster.merged(answer(told_topic("u")), None)

    assert list(some.topics) == ["u"]
    assert errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert list(everything.topics) == ["u"]


def test_an_unknown_error_code_is_an_error_all_the_same() -> None:
    broken = replace(missing_topic("t"), error_code=9999)
    _, errors = Cluster().merged(answer(broken), ["t"])

    assert errors == {"t": ErrorCode.UNKNOWN_SERVER_ERROR}


def test_a_leader_that_was_not_there_is_forgotten_until_it_is_told_again() -> None:
    told = told_topic("t", leader=1, leader_epoch=3)
    cluster = picture(told)

    without = cluster.without_leader(TP, node_id=1)

    assert without.leader(TP) is None
    assert cluster.without_leader(TP, node_id=2) is cluster  # Somebody else leads by now.
    assert cluster.without_leader(TopicPartition("u", 0), node_id=1) is cluster
    assert picture(told, before=without).leader(TP) == Node(1, "host-1", 9092)
