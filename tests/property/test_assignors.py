"""What every strategy promises, on groups that nobody thought of."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.assignors import BUILT_IN, Assignor, Subscription, TopicPartitions
from odradek.model import TopicPartition

TOPICS = ("t0", "t1", "t2", "t3")
RACKS = ("a", "b", "c")
PARTITIONS = [TopicPartition(topic, number) for topic in TOPICS for number in range(10)]
Assigned = dict[str, list[TopicPartition]]


@st.composite
def groups(
    draw: st.DrawFn, *, same_topics: bool = False
) -> tuple[dict[str, TopicPartitions], dict[str, Subscription]]:
    """Topics, and members with a past of which some is wrong."""
    topics = {}
    for topic in draw(st.sets(st.sampled_from(TOPICS), min_size=1)):
        count = draw(st.integers(0, 9))
        places = st.lists(
            st.frozensets(st.sampled_from(RACKS), min_size=1), min_size=count, max_size=count
        )
        racks = tuple(draw(places)) if draw(st.booleans()) else ()
        topics[topic] = TopicPartitions(count=count, racks=racks)
    names = draw(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=7, unique=True))
    members = {}
    for name in names:
        subscribed = TOPICS if same_topics else draw(st.sets(st.sampled_from(TOPICS)))
        owned = draw(st.sets(st.sampled_from(PARTITIONS)))
        generation = draw(st.integers(-1, 3))
        members[name] = with_past(
            Subscription(
                topics=tuple(sorted(subscribed)),
                rack=draw(st.none() | st.sampled_from(RACKS)),
                instance_id=draw(st.none() | st.just(f"i-{name}")),
            ),
            owned,
            generation,
        )
    return topics, members


def with_past(
    subscription: Subscription, owned: set[TopicPartition], generation: int
) -> Subscription:
    """The same member, telling of its past in the way of both sticky strategies."""
    return Subscription(
        topics=subscription.topics,
        rack=subscription.rack,
        instance_id=subscription.instance_id,
        user_data=BUILT_IN["sticky"].user_data(owned, generation),
        owned=tuple(sorted(owned)),
        generation=generation,
    )


def wanted(
    topics: dict[str, TopicPartitions], members: dict[str, Subscription]
) -> set[TopicPartition]:
    return {
        TopicPartition(topic, partition)
        for topic, found in topics.items()
        for partition in range(found.count)
        if any(topic in member.topics for member in members.values())
    }


def check_rules(
    assigned: Assigned, topics: dict[str, TopicPartitions], members: dict[str, Subscription]
) -> None:
    assert assigned.keys() == members.keys()
    counts = Counter(tp for found in assigned.values() for tp in found)
    assert set(counts.values()) <= {1}
    assert counts.keys() <= wanted(topics, members)
    for member, found in assigned.items():
        assert {tp.topic for tp in found} <= set(members[member].topics)


@pytest.mark.parametrize("assignor", BUILT_IN.values(), ids=list(BUILT_IN))
@settings(max_examples=40)
@given(group=groups(), seed=st.integers(0, 999))
def test_disjoint_complete_and_the_same_for_any_order(
    assignor: Assignor,
    group: tuple[dict[str, TopicPartitions], dict[str, Subscription]],
    seed: int,
) -> None:
    topics, members = group
    assigned = assignor.assign(topics, members)
    check_rules(assigned, topics, members)
    handed_out = {tp for found in assigned.values() for tp in found}
    missing = wanted(topics, members) - handed_out
    if assignor.is_cooperative:
        claimed = {tp for member in members.values() for tp in member.owned}
        assert missing <= claimed
    else:
        assert not missing

    shuffled = list(members.items())
    Random(seed).shuffle(shuffled)
    assert assignor.assign(dict(reversed(topics.items())), dict(shuffled)) == assigned


@settings(max_examples=50)
@given(group=groups())
def test_sticky_is_balanced(
    group: tuple[dict[str, TopicPartitions], dict[str, Subscription]],
) -> None:
    topics, members = group
    assigned = BUILT_IN["sticky"].assign(topics, members)
    for giver, found in assigned.items():
        for taker, other in assigned.items():
            could_move = any(tp.topic in members[taker].topics for tp in found)
            assert not could_move or len(other) >= len(found) - 1, (giver, taker)


@settings(max_examples=50)
@given(group=groups())
def test_range_is_balanced_topic_by_topic(
    group: tuple[dict[str, TopicPartitions], dict[str, Subscription]],
) -> None:
    """With racks and without: who subscribes to a topic has as much of it as the others, or one."""
    topics, members = group
    assigned = BUILT_IN["range"].assign(topics, members)
    for topic in topics:
        shares = [
            sum(tp.topic == topic for tp in assigned[name])
            for name, member in members.items()
            if topic in member.topics
        ]
        assert not shares or max(shares) - min(shares) <= 1, topic


@settings(max_examples=50)
@given(group=groups(same_topics=True))
def test_round_robin_is_balanced_where_all_subscribe_alike(
    group: tuple[dict[str, TopicPartitions], dict[str, Subscription]],
) -> None:
    """Over all topics together. Who does not read a topic is passed over, and may fall behind."""
    topics, members = group
    shares = [len(found) for found in BUILT_IN["roundrobin"].assign(topics, members).values()]
    assert max(shares) - min(shares) <= 1


@settings(max_examples=50)
@given(group=groups(same_topics=True))
def test_sticky_moves_no_more_than_it_must(
    group: tuple[dict[str, TopicPartitions], dict[str, Subscription]],
) -> None:
    topics, members = group
    everything = wanted(topics, members)
    # Each partition claimed by one member only, so that all claims are good.
    owner = {tp: name for name in sorted(members) for tp in members[name].owned if tp in everything}
    owned: dict[str, set[TopicPartition]] = {name: set() for name in members}
    for tp, name in owner.items():
        owned[name].add(tp)
    members = {name: with_past(one, owned[name], 3) for name, one in members.items()}

    assigned = BUILT_IN["sticky"].assign(topics, members)

    quota, extra = divmod(len(everything), len(members))
    fuller = sorted((len(found) for found in owned.values()), reverse=True)
    most_kept = sum(
        min(size, quota + (1 if index < extra else 0)) for index, size in enumerate(fuller)
    )
    kept = sum(len(owned[name] & set(found)) for name, found in assigned.items())
    assert kept == most_kept


@settings(max_examples=40)
@given(group=groups(), seed=st.integers(0, 999))
def test_cooperative_rounds_settle_and_nobody_reads_what_another_holds(
    group: tuple[dict[str, TopicPartitions], dict[str, Subscription]], seed: int
) -> None:
    """Members let go of what they are not assigned, then join again, until nothing changes."""
    topics, members = group
    cooperative = BUILT_IN["cooperative-sticky"]
    random = Random(seed)
    # A lawful start: each partition is held by one member at most.
    owner = {tp: random.choice(sorted(members)) for tp in sorted(wanted(topics, members))}
    owned = {name: {tp for tp, other in owner.items() if other == name} for name in members}
    for generation in range(1, 4):
        members = {name: with_past(one, owned[name], generation) for name, one in members.items()}
        assigned = cooperative.assign(topics, members)
        check_rules(assigned, topics, members)
        for name, found in assigned.items():
            others = {tp for other in owned if other != name for tp in owned[other]}
            assert others.isdisjoint(found)
        is_settled = all(owned[name] <= set(found) for name, found in assigned.items())
        owned = {name: set(found) for name, found in assigned.items()}
        if is_settled:
            break
    else:
        pytest.fail("two rounds must be enough: the first lets go, the second hands on")
    assert {tp for found in owned.values() for tp in found} == wanted(topics, members)
