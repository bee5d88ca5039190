"""The image against a naive model, and what every placement must give."""

import uuid
from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.metadata.delta import ClusterDelta, ImageDelta, apply_delta
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.metadata.persistent_map import PersistentMap
from odradek.metadata.placement import BrokerRack, assign_replicas, extend_assignment
from odradek.model import LEADER_DURING_DELETE

TOPICS = ["a", "b", "c"]
IDS = [uuid.UUID(int=number) for number in range(1, 7)]
STATES = st.builds(
    lambda topic, partition, leader: PartitionState(
        topic=topic, partition=partition, leader=leader, leader_epoch=0, isr=(), replicas=()
    ),
    st.sampled_from(TOPICS),
    st.integers(0, 2),
    st.sampled_from([0, 1, -1, LEADER_DURING_DELETE]),
)
DELTAS = st.builds(
    lambda states, ids: ClusterDelta(partitions=tuple(states), topic_ids=ids),
    st.lists(STATES, max_size=6),
    # An id belongs to one name for ever.
    st.fixed_dictionaries(
        {},
        optional={name: st.sampled_from(IDS[i * 2 : i * 2 + 2]) for i, name in enumerate(TOPICS)},
    ),
)


@settings(deadline=None, max_examples=80)
@given(st.lists(DELTAS, max_size=8))
def test_the_image_is_what_applying_by_hand_gives(deltas: list[ClusterDelta]) -> None:
    image = ClusterImage()
    model: dict[str, tuple[uuid.UUID | None, dict[int, PartitionState]]] = {}
    for delta in deltas:
        before = image
        frozen = {name: dict(topic.partitions) for name, topic in before.topics.items()}
        image, deleted = apply_delta(image, ImageDelta(cluster=delta))
        assert {name: dict(topic.partitions) for name, topic in before.topics.items()} == frozen
        assert deleted == [s.tp for s in delta.partitions if s.leader == LEADER_DURING_DELETE]
        for state in delta.partitions:
            old_id, partitions = model.get(state.topic, (None, {}))
            new_id = delta.topic_ids.get(state.topic, old_id)
            if new_id != old_id:
                partitions = {}
            partitions.pop(state.partition, None)
            if state.leader != LEADER_DURING_DELETE:
                partitions[state.partition] = state
            model[state.topic] = (new_id, partitions)
        model = {name: entry for name, entry in model.items() if entry[1]}
        assert {n: (t.id, dict(t.partitions)) for n, t in image.topics.items()} == model
        assert image.topic_names == {t.id: n for n, t in image.topics.items() if t.id is not None}


KEYS = st.integers(-5, 5) | st.integers(-(2**70), 2**70)
# Enough for branches, and some that share them at every level.
WIDE = st.integers(0, 3).map(lambda n: {(k << 12 * n) - 300: k for k in range(600)})


@settings(deadline=None, max_examples=80)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(KEYS, st.integers(), max_size=90) | WIDE, st.lists(KEYS, max_size=9)
        ),
        max_size=9,
    )
)
def test_a_persistent_map_is_a_dict_that_forgets_nothing(
    edits: list[tuple[dict[int, int], list[int]]],
) -> None:
    made: PersistentMap[int, int] = PersistentMap()
    model: dict[int, int] = {}
    versions = [(made, dict(model))]
    for put, removed in edits:
        made = made.edited(put, remove=removed)
        model = {key: value for key, value in model.items() if key not in removed} | put
        versions.append((made, dict(model)))
    for version, expected in versions:
        assert version == expected
        assert (list(version), len(version)) == (sorted(expected), len(expected))


@settings(deadline=None, max_examples=80)
@given(
    racks=st.lists(st.sampled_from([None, "x", "y", "z"]), min_size=1, max_size=8),
    partition_count=st.integers(1, 25),
    data=st.data(),
)
def test_placement_spreads(
    racks: list[str | None], partition_count: int, data: st.DataObject
) -> None:
    brokers = [BrokerRack(10 * number, rack) for number, rack in enumerate(racks)]
    factor = data.draw(st.integers(1, len(brokers)))
    assignment = assign_replicas(
        brokers,
        partition_count=partition_count,
        replication_factor=factor,
        random=Random(data.draw(st.integers(0, 99))),
    )
    assert list(assignment) == list(range(partition_count))
    for placed in assignment.values():
        assert len(set(placed.replicas)) == len(placed.replicas) == factor
        if None not in racks:
            used = {racks[broker // 10] for broker in placed.replicas}
            assert len(used) == min(factor, len(set(racks)))
    leaders = Counter({broker.id: 0 for broker in brokers})
    leaders.update(placed.replicas[0] for placed in assignment.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1
    added = extend_assignment(assignment, brokers, partition_count=partition_count + 3)
    leaders.update(placed.replicas[0] for placed in added.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1
