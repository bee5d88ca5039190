"""ISR changes that are to be announced to the controller, and when.

Only a store engine needs this: the leader writes the ISR into the store itself, and the controller
watches one notification node instead of every partition. Bursts are collected, as a whole cluster
may shrink at once::

    announce if there are changes, and
        no change came for 5 s,                  the burst is over
        or nothing was announced for 60 s        the burst does not end
"""

from odradek.model import TopicPartition

__all__ = ["BLACKOUT_MS", "CHECK_INTERVAL_MS", "PROPAGATION_INTERVAL_MS", "IsrNotifications"]

CHECK_INTERVAL_MS = 2_500
BLACKOUT_MS = 5_000
PROPAGATION_INTERVAL_MS = 60_000


class IsrNotifications:
    """Partitions whose ISR was changed here since the last announcement.

    Args:
        now_ms: The present time; counts as the last announcement.
    """

    def __init__(self, now_ms: int) -> None:
        # In the order of the changes; bounded by the partitions of this broker.
        self._changed: dict[TopicPartition, None] = {}
        self.last_change_ms = now_ms
        self.last_propagation_ms = now_ms

    def __len__(self) -> int:
        return len(self._changed)

    def record(self, tp: TopicPartition, now_ms: int) -> None:
        """Records that the ISR of a partition was stored."""
        self._changed[tp] = None
        self.last_change_ms = now_ms

    def due(self, now_ms: int) -> tuple[TopicPartition, ...]:
        """The partitions to announce now; empty while waiting is better."""
        if (
            self.last_change_ms + BLACKOUT_MS < now_ms
            or self.last_propagation_ms + PROPAGATION_INTERVAL_MS < now_ms
        ):
            return tuple(self._changed)
        return ()

    def mark_propagated(self, told: tuple[TopicPartition, ...], now_ms: int) -> None:
        """Removes announced partitions; those that changed meanwhile remain.

        A partition that changed again meanwhile need not be announced twice: the controller reads
        its state after the announcement.
        """
        for tp in told:
            self._changed.pop(tp, None)
        self.last_propagation_ms = now_ms
