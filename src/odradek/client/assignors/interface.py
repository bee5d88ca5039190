"""What a strategy is given, and what it has to promise.

Promises of `assign`, which the tests hold every strategy to:

1. Every member is in the result, if with nothing.
2. A partition goes to members that subscribe to its topic, to one of them at most; to exactly one,
   unless a cooperative strategy holds it back until its owner has let go of it.
3. The same input gives the same output, in whatever order its mappings are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from odradek.model import TopicPartition

__all__ = ["Assignor", "Subscription", "TopicPartitions", "sorted_members"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member tells the leader of its group."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    # What it holds while it joins; an eager member has let go of everything by then.
    owned: tuple[TopicPartition, ...] = ()
    # The generation in which it came to own that; -1 if it does not tell.
    generation: int = -1
    rack: str | None = None
    instance_id: str | None = None  # group.instance.id; comes beside the subscription.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """The partitions of a topic, numbered from 0."""

    count: int
    # By partition, the racks of its replicas; empty if no broker tells its rack.
    racks: tuple[frozenset[str], ...] = ()


class Assignor(Protocol):
    """A strategy. Stateless: what a member remembers is passed in."""

    @property
    def name(self) -> str:
        """As members vote for it."""
        ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while they join."""
        ...

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """What a member adds to its subscription.

        Args:
            owned: What it was assigned last, let go or not.
            generation: When; -1 if it never was.
        """
        ...

    def assign(
        self, topics: Mapping[str, TopicPartitions], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Distributes the partitions of the topics that are there; run by the leader only.

        May take its time: it is run on a thread of its own, and heartbeats go on meanwhile.
        """
        ...


def sorted_members(members: Mapping[str, Subscription]) -> list[str]:
    """Members in the order in which they are served: those with an instance id first, by it."""

    def order(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=order)
