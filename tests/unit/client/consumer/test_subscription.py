"""Topics, patterns and partitions by hand exclude each other."""

import re

import pytest

from odradek.client.cluster import Cluster, TopicView
from odradek.client.consumer.subscription import NO_LISTENER, SubscriptionState
from odradek.model import TopicPartition


def cluster(*names: str, internal: str = "") -> Cluster:
    return Cluster(
        topics={
            name: TopicView(
                name=name, topic_id=bytes(16), is_internal=name == internal, partitions=()
            )
            for name in names
        }
    )


def test_topics_by_name() -> None:
    subscription = SubscriptionState()
    assert not subscription.is_automatic
    subscription.subscribe(["a", "b"], None)
    assert subscription.topics == {"a", "b"}
    assert subscription.listener is NO_LISTENER
    assert not subscription.match(cluster("c"))
    with pytest.raises(ValueError, match="unsubscribe first"):
        subscription.assign([TopicPartition("a", 0)])
    subscription.clear()
    subscription.assign([TopicPartition("a", 0)])
    with pytest.raises(ValueError, match="unsubscribe first"):
        subscription.subscribe(["a"], None)
    with pytest.raises(ValueError, match="unsubscribe first"):
        subscription.subscribe_pattern("a", None)


def test_a_pattern_matches_whole_names_and_finds_what_comes_later() -> None:
    subscription = SubscriptionState()
    subscription.subscribe_pattern(re.compile("log-.*"), None)
    assert subscription.is_automatic
    assert subscription.match(cluster("log-a", "my-log-b"))
    assert subscription.topics == {"log-a"}
    assert not subscription.match(cluster("log-a"))
    assert subscription.match(cluster("log-a", "log-c"))


@pytest.mark.parametrize("exclude", [True, False])
def test_internal_topics_are_left_out_of_patterns_unless_told(exclude: bool) -> None:
    subscription = SubscriptionState(exclude_internal=exclude)
    subscription.subscribe_pattern(".*", None)
    subscription.match(cluster("a", "__consumer_offsets", internal="__consumer_offsets"))
    assert ("__consumer_offsets" in subscription.topics) == (not exclude)


def test_names_must_be_names() -> None:
    with pytest.raises(ValueError, match="expected names"):
        SubscriptionState().subscribe([""], None)
