"""`roundrobin`: all partitions of all topics in a row, dealt out in turn.

Members that do not subscribe to a partition's topic are passed over. The turn goes on from topic to
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
        """None: the past plays no part."""
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
                # Ends: somebody subscribes to every topic in this loop.
                while topic not in members[order[turn]].topics:
                    turn = (turn + 1) % len(order)
                assigned[order[turn]].append(TopicPartition(topic, partition))
                turn = (turn + 1) % len(order)
        return assigned
