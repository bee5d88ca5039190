"""Partitions for records without a key: sticky, adaptive, or in turn."""

import time
from collections import Counter
from random import Random

import pytest

from odradek.client.partitioner import partition_of_key
from odradek.client.producer.accumulator import Accumulator, TopicQueues
from odradek.client.producer.batch import PartitionQueue
from odradek.client.producer.config import read_producer_settings
from odradek.client.producer.delivery import OutcomeOwner
from odradek.client.producer.partitioning import RoundRobinPartitioner, choose_queue


def queues(*lengths: int) -> list[PartitionQueue]:
    made = [PartitionQueue("t", number) for number in range(len(lengths))]
    for queue, length in zip(made, lengths, strict=True):
        queue.closed.extend([None] * length)  # type: ignore[list-item]  # only counted
    return made


def accumulator(count: int, **settings: object) -> tuple[Accumulator, TopicQueues]:
    given = {"bootstrap_servers": "a:1", "batch_size": 1_000} | settings
    _, options = read_producer_settings(None, given)
    made = Accumulator(
        options, OutcomeOwner(), now_ms=lambda: 7, monotonic_s=time.monotonic, rng=Random(3)
    )
    topic = TopicQueues("t", b"")
    topic.queues = topic.every = queues(*[0] * count)
    topic.available = topic.queues
    made.topics["t"] = topic
    return made, topic


def test_a_longer_queue_gets_less() -> None:
    """09:CL-12: weighted by inverse queue length when adaptive."""
    rng = Random(1)
    some = queues(0, 1, 3)
    drawn = Counter(choose_queue(some, rng, is_adaptive=True).partition for _ in range(8_000))
    # Weights 4, 3 and 1 of 8.
    assert drawn[0] == pytest.approx(4_000, rel=0.1)
    assert drawn[1] == pytest.approx(3_000, rel=0.1)
    assert drawn[2] == pytest.approx(1_000, rel=0.15)
    even = Counter(choose_queue(some, rng, is_adaptive=False).partition for _ in range(6_000))
    assert all(count == pytest.approx(2_000, rel=0.1) for count in even.values())


def test_records_without_a_key_stay_until_a_batch_is_full() -> None:
    """09:CL-12."""
    made, _ = accumulator(4)
    places = []
    for _ in range(400):
        delivery = made.append("t", b"x" * 79, None, (), None, None)
        assert delivery is not None
        places.append(delivery[0].partition)
    # Records of 88 bytes with what they cost: ten fit into a batch of 1000.
    runs = [places[start : start + 10] for start in range(0, 400, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert len(set(places)) == 4


def test_small_batches_that_lingered_count_together() -> None:
    """09:CL-12: at least batch.size bytes go to a partition, in however many batches."""
    made, topic = accumulator(4)
    places = []
    for _ in range(20):
        delivery = made.append("t", b"x" * 79, None, (), None, None)
        assert delivery is not None
        places.append(delivery[0].partition)
        made.close_batch(topic.queues[places[-1]])  # As the loop does when the linger is over.
    # 149 bytes each with their header: six make a thousand.
    assert len(set(places[:6])) == 1


def test_only_partitions_with_a_leader_get_records_without_a_key() -> None:
    """09:CL-12."""
    made, topic = accumulator(4)
    topic.available = topic.queues[1:3]
    for _ in range(400):
        made.append("t", b"x" * 79, None, (), None, None)
    assert [bool(queue.closed) for queue in topic.queues] == [False, True, True, False]


def test_an_empty_key_is_a_key_unless_keys_are_ignored() -> None:
    """09:CL-9, 09:CL-11, 09:CL-12."""
    made, _ = accumulator(5)
    places = {made.append("t", b"v", b"", (), None, None)[0].partition for _ in range(50)}  # type: ignore[index]
    assert places == {partition_of_key(b"", 5)}
    ignoring, topic = accumulator(5, partitioner_ignore_keys=True)
    for number in range(400):
        ignoring.append("t", b"x" * 79, b"%d" % (number % 2), (), None, None)
    assert sum(bool(queue.closed) for queue in topic.queues) == 5


def test_round_robin_takes_turns() -> None:
    turns = RoundRobinPartitioner()
    assert [turns("t", b"k", b"", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert turns("u", None, None, 3) == 0
    keeping = RoundRobinPartitioner(keeps_keys=True)
    assert {keeping("t", b"k", b"", 3) for _ in range(5)} == {partition_of_key(b"k", 3)}
    assert [keeping("t", None, b"", 3) for _ in range(3)] == [0, 1, 2]


def test_a_batch_that_is_opened_while_the_loop_looks_wakes_it_again() -> None:
    """The loop may have passed it by, and would not come back for it."""
    made, topic = accumulator(1)
    woken: list[int] = []
    made.wake = lambda: woken.append(1)
    made.looks_at_s = 0.0  # The loop is about to look: whatever is opened now will be found.
    made.append("t", b"v", None, (), None, None)
    assert woken == []
    made.close_batch(topic.queues[0])
    topic.queues[0].closed.clear()
    made.looks_at_s = float("inf")  # It looks, or has nothing to look for.
    made.append("t", b"v", None, (), None, None)
    assert woken == [1]
    assert made.is_woken
