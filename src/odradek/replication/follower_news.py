"""Which partitions of a follower's fetch session have news, so that a fetch touches only these.

A follower asks for all its partitions with every fetch, and of most of them nothing has changed. So
a session of a follower is told by its partitions: each has a `FollowerWatch`, and notes itself in
the session's `SessionNews` when its log end, a watermark or its role changes. A fetch looks at the
partitions that are noted, and at those that its request names. One leaves the news when an answer
has told everything: it has no records behind the fetch offset, no error, and the watermarks are
those that were sent.

Two things are lazy because of that:

- **Time.** An idle follower's fetches are not applied to its partitions one by one. When a
  partition changes again, the time of the session's last fetch counts as the time at which the
  follower was caught up (`isr.FollowerState.note_idle_until`).
- **Changes by other ways**, such as a log start that retention moved: a fetch looks at a few
  further partitions in turn.

Worked example: 1,000 partitions, one is appended to. The fetch that waits is woken by it, reads one
partition and names one. With 500 ms between idle fetches every partition is looked at once in two
minutes, at least.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from odradek.replication.fetch_session import PartitionKey, SessionPartition
    from odradek.replication.partition import Partition

__all__ = ["FollowerWatch", "SessionNews"]

# Partitions without news that a fetch looks at, in turn.
_FURTHER_PER_FETCH: Final = 4


@final
class SessionNews:
    """The partitions of one session that have to be looked at."""

    __slots__ = ("_turn", "entries", "last_fetch_ms", "waiting_count", "wake")

    def __init__(self) -> None:
        # In order: an answer that is limited serves the first ones.
        self.entries: dict[PartitionKey, SessionPartition] = {}
        self.last_fetch_ms = 0
        # Fetches of the session that wait for news: one, unless the follower reconnected.
        self.waiting_count = 0
        self.wake: Callable[[], None] = _do_nothing  # Wakes them.
        self._turn: list[PartitionKey] = []

    def add_further(
        self, partitions: "dict[PartitionKey, SessionPartition]", keys: "Iterable[PartitionKey]"
    ) -> None:
        """Adds a few partitions in turn, whether or not anything was noted of them."""
        if not self._turn:
            self._turn = list(keys)[::-1]
        for _ in range(min(_FURTHER_PER_FETCH, len(self._turn))):
            key = self._turn.pop()
            entry = partitions.get(key)
            if entry is not None:
                self.entries.setdefault(key, entry)

    def move_to_end(self, key: "PartitionKey") -> None:
        """Lets the other partitions be served first the next time."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.entries[key] = entry


@final
class FollowerWatch:
    """One partition of a follower's session.

    Args:
        partition: Tells its changes.
        replica_id: The follower.
        entry: The partition in the session.
        news: Of the session.
    """

    __slots__ = ("_entry", "_news", "_replica_id", "partition")

    def __init__(
        self,
        partition: "Partition",
        replica_id: int,
        entry: "SessionPartition",
        news: SessionNews,
    ) -> None:
        self.partition = partition
        self._replica_id = replica_id
        self._entry = entry
        self._news = news
        partition.watches = (*partition.watches, self)

    def end(self) -> None:
        """Watches the partition no longer."""
        partition = self.partition
        partition.watches = tuple(watch for watch in partition.watches if watch is not self)

    def note(self) -> None:
        """Notes that the partition changed."""
        news, entry = self._news, self._entry
        if entry.key not in news.entries:
            news.entries[entry.key] = entry
            follower = self.partition.followers.get(self._replica_id)
            if follower is not None:
                follower.note_idle_until(news.last_fetch_ms)
        if news.waiting_count:
            news.wake()

    def is_all_told(self) -> bool:
        """Whether the follower has all records and was told the present watermarks."""
        log, entry = self.partition.log, self._entry
        return (
            log is not None
            and self.partition.is_leader
            and self.partition.leader_epoch == entry.current_leader_epoch
            and log.log_end_offset == entry.fetch_offset
            and log.high_watermark == entry.told_high_watermark
            and log.log_start_offset == entry.told_log_start_offset
        )


def _do_nothing() -> None:
    """Wakes no fetch: none has waited yet."""
