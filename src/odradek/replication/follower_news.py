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

A high watermark alone wakes no fetch at once, unless consumers read from followers. The next record
carries it; if none comes within a few milliseconds, it is told without one. Otherwise a record that
comes alone would cost each follower two fetches: one for it, one for its commit (KAFKA-9952).

Worked example: 1,000 partitions, one is appended to. The fetch that waits is woken by it, reads one
partition and names one. With 500 ms between idle fetches every partition is looked at once in two
minutes, at least.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, final

from odradek.clock import Clock

if TYPE_CHECKING:
    from odradek.replication.fetch_session import PartitionKey, SessionPartition
    from odradek.replication.partition import Partition

__all__ = ["FollowerWatch", "SessionNews", "WatermarkDelay"]

# Partitions without news that a fetch looks at, in turn.
_FURTHER_PER_FETCH: Final = 4


@final
class SessionNews:
    """The partitions of one session that have to be looked at."""

    __slots__ = (
        "_turn",
        "entries",
        "is_pressing",
        "is_watermark_due",
        "is_watermark_timed",
        "last_fetch_ms",
        "waiting_count",
        "wake",
        "watermark_delay",
        "watermark_since_ms",
    )

    def __init__(self) -> None:
        # In order: an answer that is limited serves the first ones.
        self.entries: dict[PartitionKey, SessionPartition] = {}
        self.last_fetch_ms = 0
        # Fetches of the session that wait for news: one, unless the follower reconnected.
        self.waiting_count = 0
        self.wake: Callable[[], None] = _do_nothing  # Wakes them.
        # Whether something other than a high watermark was noted since the last fetch was parked.
        self.is_pressing = False
        # Whether a high watermark is to be told now, without records.
        self.is_watermark_due = False
        # Since when a high watermark is known that no answer has told; -1: none is untold.
        self.watermark_since_ms = -1
        self.is_watermark_timed = False  # Whether the delay will look at this session.
        self.watermark_delay: WatermarkDelay | None = None  # None: watermarks are told at once.
        self._turn: list[PartitionKey] = []

    def note_high_watermark(self) -> None:
        """Has the high watermarks told, now or in a moment."""
        if self.watermark_delay is not None:
            self.watermark_delay.note(self)
            return
        self.is_watermark_due = True
        if self.waiting_count:
            self.wake()

    def begin_answer(self) -> None:
        """Begins an answer, which tells all high watermarks."""
        self.watermark_since_ms = -1
        self.is_watermark_due = False

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
class WatermarkDelay:
    """How long a high watermark waits for records to travel with.

    Args:
        delay_ms: The longest.
        clock: For it.
        call_later: Calls back after some milliseconds.
        wake: Ends the waiting fetches of a session.
    """

    __slots__ = ("_call_later", "_clock", "_delay_ms", "_wake")

    def __init__(
        self,
        delay_ms: int,
        *,
        clock: Clock,
        call_later: Callable[[int, Callable[[], object]], None],
        wake: Callable[[SessionNews], None],
    ) -> None:
        self._delay_ms = delay_ms
        self._clock = clock
        self._call_later = call_later
        self._wake = wake

    def note(self, news: SessionNews) -> None:
        """Notes that a high watermark is untold.

        A session is looked at once in a delay, however often its watermarks move.
        """
        if news.watermark_since_ms < 0:
            news.watermark_since_ms = self._clock.monotonic_ms()
            if not news.is_watermark_timed:
                self._look_later(news, self._delay_ms)

    def _look_later(self, news: SessionNews, delay_ms: int) -> None:
        news.is_watermark_timed = True
        self._call_later(delay_ms, partial(self._look, news))

    def _look(self, news: SessionNews) -> None:
        news.is_watermark_timed = False
        if news.watermark_since_ms < 0:
            return
        left_ms = news.watermark_since_ms + self._delay_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._look_later(news, left_ms)
            return
        news.is_watermark_due = True
        if news.waiting_count:
            self._wake(news)


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
        self._add()
        news = self._news
        news.is_pressing = True
        if news.waiting_count:
            news.wake()

    def note_high_watermark(self) -> None:
        """Notes that the high watermark moved, and nothing else did."""
        self._add()
        self._news.note_high_watermark()

    def _add(self) -> None:
        news, entry = self._news, self._entry
        if entry.key not in news.entries:
            news.entries[entry.key] = entry
            follower = self.partition.followers.get(self._replica_id)
            if follower is not None:
                follower.note_idle_until(news.last_fetch_ms)

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
