"""The strategies on the examples of the specification."""

import pytest

from odradek.client.assignors import (
    BUILT_IN,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
    TopicPartitions,
    find_assignors,
    is_cooperative,
)
from odradek.errors import ConfigError
from odradek.model import TopicPartition

TWO_TOPICS = {"t1": TopicPartitions(count=5), "t2": TopicPartitions(count=7)}
BOTH, SECOND = Subscription(topics=("t1", "t2")), Subscription(topics=("t2",))
FIVE_MEMBERS = {"c0": BOTH, "c1": BOTH, "c2": BOTH, "c3": SECOND, "c4": SECOND}


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def numbers(assigned: dict[str, list[TopicPartition]]) -> dict[str, list[int]]:
    return {member: [tp.partition for tp in found] for member, found in assigned.items()}


def alike(count: int, *members: str, topic: str = "t") -> dict[str, Subscription]:
    assert count == len(members)
    return {member: Subscription(topics=(topic,)) for member in members}


def test_range_gives_the_first_members_one_more() -> None:
    """09:TV-12a."""
    topics = {"t": TopicPartitions(count=7)}
    assigned = RangeAssignor().assign(topics, alike(5, "c0", "c1", "c2", "c3", "c4"))
    assert numbers(assigned) == {"c0": [0, 1], "c1": [2, 3], "c2": [4], "c3": [5], "c4": [6]}


def test_range_cuts_each_topic_among_its_subscribers() -> None:
    """09:TV-12b."""
    assert RangeAssignor().assign(TWO_TOPICS, FIVE_MEMBERS) == {
        "c0": partitions("t1", 0, 1) + partitions("t2", 0, 1),
        "c1": partitions("t1", 2, 3) + partitions("t2", 2, 3),
        "c2": partitions("t1", 4) + partitions("t2", 4),
        "c3": partitions("t2", 5),
        "c4": partitions("t2", 6),
    }


def test_round_robin_deals_in_turn() -> None:
    """09:TV-12c."""
    topics = {"t": TopicPartitions(count=7)}
    assigned = RoundRobinAssignor().assign(topics, alike(3, "c0", "c1", "c2"))
    assert numbers(assigned) == {"c0": [0, 3, 6], "c1": [1, 4], "c2": [2, 5]}


def test_round_robin_goes_on_from_topic_to_topic() -> None:
    """09:TV-12d."""
    assert RoundRobinAssignor().assign(TWO_TOPICS, FIVE_MEMBERS) == {
        "c0": partitions("t1", 0, 3) + partitions("t2", 3),
        "c1": partitions("t1", 1, 4) + partitions("t2", 4),
        "c2": partitions("t1", 2) + partitions("t2", 0, 5),
        "c3": partitions("t2", 1, 6),
        "c4": partitions("t2", 2),
    }


def test_a_cooperative_newcomer_gets_its_share_in_the_second_round() -> None:
    """09:TV-12e."""
    topics = {"t": TopicPartitions(count=6)}
    everything = tuple(partitions("t", *range(6)))
    first = CooperativeStickyAssignor().assign(
        topics,
        {
            "c0": Subscription(topics=("t",), owned=everything, generation=1),
            "c1": Subscription(topics=("t",)),
        },
    )
    assert len(first["c0"]) == 3
    assert first["c1"] == []

    second = CooperativeStickyAssignor().assign(
        topics,
        {
            "c0": Subscription(topics=("t",), owned=tuple(first["c0"]), generation=2),
            "c1": Subscription(topics=("t",), generation=2),
        },
    )
    assert second["c0"] == first["c0"]
    assert second["c1"] == sorted(set(everything) - set(first["c0"]))


def test_a_cooperative_partition_never_changes_hands_in_one_round() -> None:
    """15:KAFKA-14639: a member that missed a rebalance still claims what another owns by now."""
    topics = {"t": TopicPartitions(count=4)}
    owned = {"a": partitions("t", 0, 1, 2, 3), "late": partitions("t", 0, 1)}
    generations = {"a": 10, "late": 9}
    for _ in range(4):
        assigned = CooperativeStickyAssignor().assign(
            topics,
            {
                member: Subscription(
                    topics=("t",), owned=tuple(owned[member]), generation=generations[member]
                )
                for member in owned
            },
        )
        for member, other in (("a", "late"), ("late", "a")):
            assert not set(assigned[member]) & set(owned[other])
        owned = assigned
        generations = dict.fromkeys(owned, max(generations.values()) + 1)
    assert {member: len(found) for member, found in owned.items()} == {"a": 2, "late": 2}


def test_sticky_members_keep_theirs_when_one_leaves() -> None:
    """09:TV-12f."""
    sticky = StickyAssignor()
    assigned = sticky.assign(
        {"t": TopicPartitions(count=6)},
        {
            "c0": Subscription(topics=("t",), user_data=sticky.user_data(partitions("t", 0, 1), 3)),
            "c2": Subscription(topics=("t",), user_data=sticky.user_data(partitions("t", 4, 5), 3)),
        },
    )
    assert set(partitions("t", 0, 1)) < set(assigned["c0"])
    assert set(partitions("t", 4, 5)) < set(assigned["c2"])
    assert {len(found) for found in assigned.values()} == {3}


def test_the_claim_of_the_higher_generation_wins_and_equal_ones_cancel_out() -> None:
    sticky = StickyAssignor()
    topics = {"t": TopicPartitions(count=4)}
    assigned = sticky.assign(
        topics,
        {
            "a": Subscription(
                topics=("t",), user_data=sticky.user_data(partitions("t", 0, 1), generation=4)
            ),
            "b": Subscription(
                topics=("t",), user_data=sticky.user_data(partitions("t", 0, 3), generation=5)
            ),
        },
    )
    assert numbers(assigned) == {"a": [1, 2], "b": [0, 3]}

    cooperative = CooperativeStickyAssignor()
    claim = Subscription(topics=("t",), owned=tuple(partitions("t", 0)), generation=5)
    assigned = cooperative.assign(topics, {"a": claim, "b": claim})
    assert TopicPartition("t", 0) not in assigned["a"] + assigned["b"]


@pytest.mark.parametrize("assignor", BUILT_IN.values(), ids=list(BUILT_IN))
def test_static_members_are_served_first_in_the_order_of_their_instance_ids(
    assignor: Assignor,
) -> None:
    members = {
        "m1": Subscription(topics=("t",)),
        "m2": Subscription(topics=("t",), instance_id="i2"),
        "m3": Subscription(topics=("t",), instance_id="i1"),
    }
    assigned = assignor.assign({"t": TopicPartitions(count=1)}, members)
    assert numbers(assigned) == {"m3": [0], "m2": [], "m1": []}


@pytest.mark.parametrize("assignor", BUILT_IN.values(), ids=list(BUILT_IN))
def test_topics_that_are_not_there_and_members_without_any_are_passed_over(
    assignor: Assignor,
) -> None:
    members = {
        "a": Subscription(topics=("gone", "t")),
        "b": Subscription(topics=("gone",)),
        "c": Subscription(topics=()),
    }
    topics = {"t": TopicPartitions(count=2), "empty": TopicPartitions(count=0)}
    assert numbers(assignor.assign(topics, members)) == {"a": [0, 1], "b": [], "c": []}


def racks(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(name) for name in names)


def in_racks(**rack_of: str) -> dict[str, Subscription]:
    return {
        member: Subscription(topics=("t1", "t2"), rack=rack) for member, rack in rack_of.items()
    }


def test_range_prefers_members_that_are_near_a_replica() -> None:
    topics = {"t1": TopicPartitions(count=4, racks=racks("b", "b", "a", "a"))}
    assigned = RangeAssignor().assign(topics, in_racks(c0="a", c1="b"))
    assert numbers(assigned) == {"c0": [2, 3], "c1": [0, 1]}


def test_range_keeps_its_quotas_whatever_the_racks() -> None:
    topics = {"t1": TopicPartitions(count=5, racks=racks("a", "a", "a", "a", "b"))}
    assigned = RangeAssignor().assign(topics, in_racks(c0="a", c1="b"))
    assert numbers(assigned) == {"c0": [0, 1, 2], "c1": [3, 4]}


def test_range_leaves_racks_aside_where_every_partition_is_in_all_of_them() -> None:
    topics = {"t1": TopicPartitions(count=4, racks=racks("ab", "ba", "ab", "ab"))}
    assigned = RangeAssignor().assign(topics, in_racks(c0="b", c1="a"))
    assert numbers(assigned) == {"c0": [0, 1], "c1": [2, 3]}


def test_range_gives_topics_that_are_cut_alike_to_the_same_member() -> None:
    topics = {
        "t1": TopicPartitions(count=2, racks=racks("b", "a")),
        "t2": TopicPartitions(count=2, racks=racks("b", "a")),
    }
    assert RangeAssignor().assign(topics, in_racks(c0="a", c1="b")) == {
        "c0": partitions("t1", 1) + partitions("t2", 1),
        "c1": partitions("t1", 0) + partitions("t2", 0),
    }


def test_strategies_are_found_by_name_by_java_class_or_are_given_themselves() -> None:
    mine = RangeAssignor()
    found = find_assignors(
        [mine, "sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"]
    )
    assert found == (mine, BUILT_IN["sticky"], BUILT_IN["cooperative-sticky"])
    assert not is_cooperative(found)
    assert is_cooperative(found[2:])


@pytest.mark.parametrize(
    ("strategies", "why"),
    [
        (["stickyy"], "did you mean sticky"),
        (["org.example.Mine"], "there are: range, roundrobin"),
        (["range", "range"], "twice"),
        ([], "no strategy"),
    ],
)
def test_bad_strategies_are_told(strategies: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        find_assignors(strategies)
