"""The interface of a strategy, and its promises.

Promises of `assign`, which the tests hold every strategy to:

1. Every member is in the result, also one without partitions.
2. A partition goes to members that subscribe to its topic, to one of them at most; to exactly one,
   unless a cooperative strategy holds it back until its owner has given it up.
3. The same input gives the same output, in any order of its mappings.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from odradek.model import TopicPartition

__all__ = ["Assignor", "Subscription", "TopicPartitions", "sorted_members"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The subscription of a member, as the leader of its group gets it."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    # The partitions it keeps while it joins; an eager member has given up all of them by then.
    owned: tuple[TopicPartition, ...] = ()
    # The generation in which they were assigned; -1 if it does not report it.
    generation: int = -1
    rack: str | None = None
    instance_id: str | None = None  # group.instance.id; comes beside the subscription.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """The partitions of a topic, numbered from 0."""

    count: int
    # By partition, the racks of its replicas; empty if no broker has a rack.
    racks: tuple[frozenset[str], ...] = ()


class Assignor(Protocol):
    """A strategy. Stateless: the past of a member is passed in."""

    @property
    def name(self) -> str:
        """The name by which members vote for it."""
        ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while they join."""
        ...

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        """The bytes that a member adds to its subscription.

        Args:
            owned: Its last assignment, given up or not.
            generation: The generation of that assignment; -1 if it never had one.
        """
        ...

    def assign(
        self, topics: Mapping[str, TopicPartitions], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Distributes the partitions of the existing topics; run by the leader only.

        May take long: it runs on a thread of its own, and heartbeats go on meanwhile.
        """
        ...


def sorted_members(members: Mapping[str, Subscription]) -> list[str]:
    """Members in the order in which they are served: those with an instance id first, by it."""

    def order(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=order)
