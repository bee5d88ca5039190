"""Which ISR changes the controller has to be told of, and when.

Only a store engine needs this: the leader writes the ISR into the store itself, and the controller
watches one notification node instead of every partition. Bursts are collected, as a whole cluster
may shrink at once::

    tell if there is something to tell, and
        no change came for 5 s,                  the burst is over
        or nothing was told for 60 s             it does not end
"""

from odradek.model import TopicPartition

__all__ = ["BLACKOUT_MS", "CHECK_INTERVAL_MS", "PROPAGATION_INTERVAL_MS", "IsrNotifications"]

CHECK_INTERVAL_MS = 2_500
BLACKOUT_MS = 5_000
PROPAGATION_INTERVAL_MS = 60_000


class IsrNotifications:
    """Partitions whose ISR was changed here since the controller was last told.

    Args:
        now_ms: When it is made; nothing was told before that.
    """

    def __init__(self, now_ms: int) -> None:
        # In the order of the changes; bounded by the partitions of this broker.
        self._changed: dict[TopicPartition, None] = {}
        self.last_change_ms = now_ms
        self.last_propagation_ms = now_ms

    def __len__(self) -> int:
        return len(self._changed)

    def record(self, tp: TopicPartition, now_ms: int) -> None:
        """An ISR was stored."""
        self._changed[tp] = None
        self.last_change_ms = now_ms

    def due(self, now_ms: int) -> tuple[TopicPartition, ...]:
        """What to tell now; nothing if it is better to wait."""
        if (
            self.last_change_ms + BLACKOUT_MS < now_ms
            or self.last_propagation_ms + PROPAGATION_INTERVAL_MS < now_ms
        ):
            return tuple(self._changed)
        return ()

    def mark_propagated(self, told: tuple[TopicPartition, ...], now_ms: int) -> None:
        """The controller was told of these; what changed meanwhile is still to be told.

        A partition that changed again meanwhile need not be told twice: the controller reads its
        state after it was told.
        """
        for tp in told:
            self._changed.pop(tp, None)
        self.last_propagation_ms = now_ms
