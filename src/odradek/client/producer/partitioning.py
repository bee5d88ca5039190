"""Chooses the partition of a record that names none.

A key decides by its hash (`odradek.client.partitioner`). Without a key, records stay with one
partition until a batch of it is full, then use another: full batches cost less than many small
ones. The next one is drawn at random among those that have a leader; if the choice is adaptive, one
with a longer queue gets fewer records, so that a slow broker does not delay the others.

Example: queues of 0, 1 and 3 batches get the weights 4, 3 and 1.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Protocol

from odradek.client.partitioner import RoundRobin, partition_of_key
from odradek.client.producer.batch import PartitionQueue

__all__ = ["Partitioner", "RoundRobinPartitioner", "choose_queue"]


class Partitioner(Protocol):
    """Chooses a partition in the place of the producer. Called by `send`, on its thread."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partition_count: int
    ) -> int:
        """A number from 0 up to, not including, `partition_count`."""
        ...


class RoundRobinPartitioner:
    """Every record to the next partition of its topic.

    Args:
        keeps_keys: Whether records with a key go where the key says instead. Kafka's of the same
            name does not ask for keys.
    """

    def __init__(self, *, keeps_keys: bool = False) -> None:
        self._keeps_keys = keeps_keys
        self._turns: dict[str, RoundRobin] = {}

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,  # noqa: ARG002 - as every partitioner is called
        partition_count: int,
    ) -> int:
        if key is not None and self._keeps_keys:
            return partition_of_key(key, partition_count)
        turns = self._turns.get(topic)
        if turns is None:
            turns = self._turns.setdefault(topic, RoundRobin())
        return turns.next_partition(partition_count)


def choose_queue(
    queues: Sequence[PartitionQueue], rng: Random, *, is_adaptive: bool, batch_size: int = 0
) -> PartitionQueue:
    """The partition that the next records without a key go to.

    Args:
        batch_size: An open batch that has grown counts once for each time it is so large.
    """
    if len(queues) == 1:
        return queues[0]
    if not is_adaptive:
        return rng.choice(queues)
    lengths = [
        len(queue.closed)
        if queue.open is None or not batch_size
        else len(queue.closed) + queue.open.gathered.size // batch_size
        for queue in queues
    ]
    longest = max(lengths) + 1
    sums = list(accumulate(longest - length for length in lengths))
    return queues[bisect_right(sums, rng.randrange(sums[-1]))]
