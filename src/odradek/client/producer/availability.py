"""Leaders that take no requests, and which partitions records without a key use meanwhile.

A leader is blocked when it has as many unanswered requests as it may have, or when a batch waits
and cannot be sent: there is no connection, or the leader asked for a pause. It is no longer blocked
when it takes a request, or could take one and no batch waits. A leader that is blocked for
`partitioner.availability.timeout.ms` is avoided: records without a key go to other leaders, unless
no other broker leads a partition of the topic.

Example, with 1000 ms: a leader is blocked at 0, takes a request at 900 and is blocked again. It is
avoided from 1900 on, and if it takes the next request at 2500, until then.
"""

from collections.abc import Sequence
from typing import Final

from odradek.client.producer.batch import PartitionQueue
from odradek.model import NO_LEADER

__all__ = ["Availability"]

_FOREVER_S: Final = float("inf")


class Availability:
    """See the module's docstring. Times are the loop's.

    Args:
        timeout_ms: 0: no leader is ever avoided.
    """

    __slots__ = ("_blocked_since_s", "_timeout_s", "avoided")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        # By leader. Empty if there is no timeout.
        self._blocked_since_s: dict[int, float] = {}
        # As `update` found it. Replaced, never edited.
        self.avoided: frozenset[int] = frozenset()

    @property
    def blocked(self) -> dict[int, float]:
        """Leaders that take no requests, and since when."""
        return dict(self._blocked_since_s)

    def block(self, leader: int, now_s: float) -> None:
        """Notes that the leader takes no request now."""
        if self._timeout_s:
            self._blocked_since_s.setdefault(leader, now_s)

    def unblock(self, leader: int) -> None:
        """Notes that the leader took a request, or could take one."""
        self._blocked_since_s.pop(leader, None)

    def update(self, now_s: float) -> bool:
        """Decides which leaders to avoid from now on; returns whether that changed."""
        avoided = frozenset(
            leader
            for leader, since_s in self._blocked_since_s.items()
            if since_s + self._timeout_s <= now_s
        )
        is_other = avoided != self.avoided
        self.avoided = avoided
        return is_other

    @property
    def next_s(self) -> float:
        """When one more leader is to be avoided, unless it takes a request before."""
        return min(
            (
                since_s + self._timeout_s
                for leader, since_s in self._blocked_since_s.items()
                if leader not in self.avoided
            ),
            default=_FOREVER_S,
        )

    def among(self, queues: Sequence[PartitionQueue]) -> Sequence[PartitionQueue]:
        """Those of a topic's queues that records without a key may choose from."""
        led = [queue for queue in queues if queue.leader != NO_LEADER]
        taking = [queue for queue in led if queue.leader not in self.avoided]
        return taking or led or queues
