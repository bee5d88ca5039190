"""Leaders that take nothing, and partitions for records without a key while there are such.

A leader is blocked when it owes as many answers as it may, or when something waits that it does not
take: there is no connection, or it asked for a pause. It no longer is when it takes a request, or
could take one and nothing waits. Who is blocked for `partitioner.availability.timeout.ms` is
avoided: records that may go anywhere go elsewhere, unless nobody else leads a partition of the
topic.

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
        """Leaders that take nothing, and since when."""
        return dict(self._blocked_since_s)

    def block(self, leader: int, now_s: float) -> None:
        """The leader takes nothing now."""
        if self._timeout_s:
            self._blocked_since_s.setdefault(leader, now_s)

    def unblock(self, leader: int) -> None:
        """It took something, or could if there were something."""
        self._blocked_since_s.pop(leader, None)

    def update(self, now_s: float) -> bool:
        """Decides whom to avoid from now on; whether that differs from before."""
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
        """When one more is to be avoided, unless something is taken before."""
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
