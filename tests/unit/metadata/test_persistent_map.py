"""The map that shares what did not change."""

import uuid
from collections.abc import Iterable
from typing import Any

import pytest

from odradek.metadata.delta import ClusterDelta, ImageDelta, apply_delta
from odradek.metadata.image import ClusterImage, ConfigResource, PartitionState
from odradek.metadata.persistent_map import PersistentMap, as_persistent
from odradek.model import LEADER_DURING_DELETE
from odradek.protocol.enums import ConfigResourceType

TOPIC_COUNT = 10_000


def numbered(count: int) -> dict[str, int]:
    return {f"key-{number}": number for number in range(count)}


@pytest.mark.parametrize("count", [0, 1, 256, 257, 20_000])
def test_it_is_the_mapping_it_was_made_of(count: int) -> None:
    entries = numbered(count)
    made = PersistentMap(entries)
    assert made == entries
    assert (len(made), list(made)) == (count, sorted(entries))
    assert list(made.items()) == sorted(entries.items())
    for key, value in entries.items():
        assert (made[key], made.get(key), key in made) == (value, value, True)
    assert (made.get("other"), made.get("other", 7), "other" in made) == (None, 7, False)
    with pytest.raises(KeyError):
        made["other"]


@pytest.mark.parametrize("count", [10, 256, 20_000])
def test_an_edit_leaves_the_map_before_it_as_it_was(count: int) -> None:
    entries = numbered(count)
    before = PersistentMap(entries)
    after = before.edited({"key-3": -3, "new": 1}, remove=["key-4", "key-5", "unknown"])
    assert before == entries
    expected = {**entries, "key-3": -3, "new": 1}
    del expected["key-4"], expected["key-5"]
    assert after == expected
    assert len(after) == count - 1


def test_a_key_that_is_removed_and_put_is_there() -> None:
    assert PersistentMap({"a": 1}).edited({"a": 2}, remove=["a"]) == {"a": 2}


def test_an_edit_that_changes_nothing_gives_the_same_map() -> None:
    made = PersistentMap(numbered(100))
    assert made.edited() is made
    assert made.edited(remove=["unknown"]) is made
    assert as_persistent(made) is made


def test_keys_of_one_hash_share_a_leaf_of_any_size() -> None:
    class Same:
        """Equal to itself alone."""

        def __hash__(self) -> int:
            return 7

    keys = [Same() for _ in range(700)]
    made = PersistentMap(dict.fromkeys(keys, 1), order=id)
    assert (len(made), set(made)) == (700, set(keys))
    assert len(made.edited(remove=keys[:699])) == 1


def nodes_of(values: PersistentMap[Any, Any]) -> dict[int, Any]:
    """Every dict and branch list of a map, by identity."""
    found, waiting = {}, [values._root]
    while waiting:
        node = waiting.pop()
        found[id(node)] = node
        if isinstance(node, list):
            waiting += node
    return found


def copied_entries(before: object, after: object) -> int:
    """Entries of the nodes that the later map does not share with the earlier one."""
    assert isinstance(before, PersistentMap)
    assert isinstance(after, PersistentMap)
    shared = nodes_of(before).keys()
    return sum(len(node) for key, node in nodes_of(after).items() if key not in shared)


def state(name: str, leader: int = 1) -> PartitionState:
    return PartitionState(
        topic=name, partition=0, leader=leader, leader_epoch=0, isr=(1,), replicas=(1,)
    )


def topics(names: Iterable[str]) -> ClusterDelta:
    names = list(names)
    return ClusterDelta(
        partitions=tuple(state(name) for name in names),
        topic_ids={name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in names},
        configs={ConfigResource(ConfigResourceType.TOPIC, name): {"a": "b"} for name in names},
        config_owners={name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in names},
    )


@pytest.mark.parametrize(
    "delta",
    [
        ClusterDelta(partitions=(state("topic-77", leader=2),)),
        ClusterDelta(partitions=(state("topic-77", leader=LEADER_DURING_DELETE),)),
        topics(["new"]),
        ClusterDelta(configs={ConfigResource(ConfigResourceType.TOPIC, "topic-77"): {"c": "d"}}),
    ],
    ids=["leader", "deletion", "creation", "configs"],
)
def test_a_delta_of_one_topic_copies_what_it_names_and_not_the_cluster(
    delta: ClusterDelta,
) -> None:
    """14 section 15: a change costs the change. Counted, so that no clock decides."""
    names = [f"topic-{number}" for number in range(TOPIC_COUNT)]
    before = apply_delta(ClusterImage(), ImageDelta(cluster=topics(names))).image
    after = apply_delta(before, ImageDelta(cluster=delta)).image
    maps = ("topics", "topic_names", "configs", "config_owners")
    counts = {name: copied_entries(getattr(before, name), getattr(after, name)) for name in maps}
    # A list of 64 branches and a leaf of at most 256 entries.
    assert max(counts.values()) <= 64 + 256, counts
    assert sum(counts.values()) > 0
    if delta.configs and not delta.partitions:
        assert counts["topics"] == 0
