"""`range`: each member gets a run of neighbouring partitions of every topic.

Per topic with P partitions and M subscribed members, each gets P // M, the first P % M one more.
Example: 7 partitions, 5 members: 0-1, 2-3, 4, 5, 6. Topics with as many partitions are cut alike,
so that the same member reads partition n of all of them.

Where members report a rack and it makes a difference (some partition has no replica in some rack),
partitions go first to members in the rack of a replica, within the same quotas; the others are
assigned as above. Topics cut alike are matched partition by partition, so that they stay so.
"""

from collections.abc import Callable, Iterable, Mapping

from odradek.client.assignors.interface import Subscription, TopicPartitions, sorted_members
from odradek.model import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor:
    """See the module's docstring."""

    name = "range"
    is_cooperative = False

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002 - remembers nothing
        """None: the past is not used."""
        return None

    def assign(
        self, topics: Mapping[str, TopicPartitions], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`."""
        order = sorted_members(members)
        shares = [
            _TopicShares(topic, topics[topic], subscribers)
            for topic in sorted(topics)
            if topics[topic].count > 0
            and (subscribers := {m: members[m].rack for m in order if topic in members[m].topics})
        ]
        if any(one.is_rack_relevant for one in shares):
            _match_racks(shares)
        for one in shares:
            one.hand_out(lambda _member, _partition: True)
        return {
            member: sorted(TopicPartition(one.topic, p) for one in shares for p in one.of(member))
            for member in order
        }


class _TopicShares:
    """The state while the partitions of one topic are assigned."""

    def __init__(
        self, topic: str, partitions: TopicPartitions, subscribers: Mapping[str, str | None]
    ) -> None:
        self.topic = topic
        self.count = partitions.count
        self.subscribers = dict(subscribers)
        self._racks = partitions.racks
        self._quota, self._extra_count = divmod(partitions.count, len(subscribers))
        self._left = list(range(partitions.count))
        self._taken: dict[str, list[int]] = {member: [] for member in subscribers}
        told = {rack for rack in subscribers.values() if rack}
        present = frozenset().union(*self._racks) if self._racks else frozenset()
        self.is_rack_relevant = not told.isdisjoint(present) and any(
            racks != present for racks in self._racks
        )

    def of(self, member: str) -> list[int]:
        return self._taken.get(member, [])

    def room(self, member: str) -> int:
        """How many more a member may get; some may get one above the quota."""
        most = self._quota + (1 if self._extra_count > 0 else 0)
        return max(most - len(self._taken[member]), 0)

    def is_near(self, member: str, partition: int) -> bool:
        rack = self.subscribers[member]
        return not rack or (bool(self._racks) and rack in self._racks[partition])

    def give(self, member: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._left.remove(partition)
            self._taken[member].append(partition)
        if len(self._taken[member]) > self._quota:
            self._extra_count -= 1

    def hand_out(self, may_have: Callable[[str, int], bool]) -> None:
        for member in self.subscribers:
            fitting = [partition for partition in self._left if may_have(member, partition)]
            if fitting and (room := self.room(member)):
                self.give(member, fitting[:room])


def _match_racks(shares: Iterable[_TopicShares]) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_TopicShares]] = {}
    for one in shares:
        alike.setdefault((tuple(one.subscribers), one.count), []).append(one)
    for group in alike.values():
        if len(group) == 1:
            if group[0].is_rack_relevant:
                group[0].hand_out(group[0].is_near)
            continue
        for partition in range(group[0].count):
            for member in group[0].subscribers:
                if all(one.is_near(member, partition) and one.room(member) for one in group):
                    for one in group:
                        one.give(member, (partition,))
                    break
