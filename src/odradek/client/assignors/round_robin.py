"""`roundrobin`: all partitions of all topics in order, assigned to the members in turn.

Members that do not subscribe to a partition's topic are skipped. The turn goes on from topic to
topic. Example: t1 with 5 partitions, t2 with 7, c0 to c2 subscribe to both, c3 and c4 to t2 only:
t1 goes c0 c1 c2 c0 c1, and t2 starts with c2.
"""

from collections.abc import Iterable, Mapping

from odradek.client.assignors.interface import Subscription, TopicPartitions, sorted_members
from odradek.model import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor:
    """See the module's docstring."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002 - remembers nothing
        """None: the past is not used."""
        return None

    def assign(
        self, topics: Mapping[str, TopicPartitions], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See `Assignor.assign`."""
        order = sorted_members(members)
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in order}
        wanted = {topic for one in members.values() for topic in one.topics}
        turn = 0
        for topic in sorted(wanted & topics.keys()):
            for partition in range(topics[topic].count):
                # Ends: every topic in this loop has a subscriber.
                while topic not in members[order[turn]].topics:
                    turn = (turn + 1) % len(order)
                assigned[order[turn]].append(TopicPartition(topic, partition))
                turn = (turn + 1) % len(order)
        return assigned
