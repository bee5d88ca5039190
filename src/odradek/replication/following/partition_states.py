"""Where each partition of a fetcher stands. Pure.

A partition is fetched only while it is FETCHING, not delayed and not busy::

    (added) ─► TRUNCATING ─ the leader's answer is applied ─► FETCHING ◄─┐
                   ▲                                             │        │ append, cut, reset
                   └── asked again, the epochs did not meet      └────────┘
    any state: an error delays it, a failure removes it, a new role removes it

Rules (05 sections 2, 3 and 15):

1. An answer counts only if the partition is ready, and still at the offset and in the leader epoch
   that the request asked with: otherwise it was removed, added again or cut meanwhile.
2. A partition that was read moves to the end of the order, so that each has its turn when the
   leader's answer is limited.
3. A partition that failed is removed and remembered as failed until its next role; the others go
   on.
4. FENCED_LEADER_EPOCH in the epoch that the partition still has: it fails, and waits for a new
   role. If it has a newer epoch by now, it is tried again.

Delays double from 50 ms up to `replica.fetch.backoff.ms`, and begin anew after an answer that
counts. While work on the local log runs on a thread the partition is *busy*: nothing is asked for
it.

Worked example: a partition at 90 gets records up to 99, and the leader's high watermark is 120. It
continues at 100 with a lag of 20, at the end of the order.
"""

import uuid
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from odradek.model import TopicPartition

__all__ = ["FIRST_BACKOFF_MS", "FollowedPartition", "FollowedPartitions", "ReplicaState"]

# The delay after one error; twice as long after each further one. A follower often hears of its
# leader a moment before the leader does.
FIRST_BACKOFF_MS: Final = 50
_MOST_DOUBLINGS: Final = 16  # Beyond every back-off that is useful.


class ReplicaState(Enum):
    """Whether the local log is known to be a prefix of the leader's."""

    TRUNCATING = "truncating"  # Not known: the leader has to be asked first.
    FETCHING = "fetching"


class FollowedPartition:
    """One partition as its fetcher sees it."""

    __slots__ = (
        "began_in_sync",
        "delayed_until_ms",
        "error_count",
        "fetch_offset",
        "is_busy",
        "lag",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "state",
        "topic_id",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        *,
        topic_id: uuid.UUID | None,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
        state: ReplicaState,
        began_in_sync: bool = False,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch  # Of the role under which it follows.
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch  # Of the record before it; -1 without one.
        self.log_start_offset = log_start_offset  # Of the local log.
        self.state = state
        self.began_in_sync = began_in_sync  # Whether its role put it into the ISR.
        self.lag: int | None = None  # Records behind the leader's high watermark; None: not known.
        self.delayed_until_ms: int | None = None  # Monotonic.
        self.error_count = 0  # Delays since the last answer that counted.
        self.is_busy = False  # Work on its log is under way.

    def __repr__(self) -> str:
        return f"FollowedPartition({self.tp}, {self.state.value}, at {self.fetch_offset})"

    @property
    def is_free(self) -> bool:
        """Whether it is neither delayed nor busy."""
        return self.delayed_until_ms is None and not self.is_busy

    @property
    def is_ready_for_fetch(self) -> bool:
        return self.state is ReplicaState.FETCHING and self.is_free

    @property
    def is_truncating(self) -> bool:
        return self.state is ReplicaState.TRUNCATING and self.is_free

    @property
    def is_in_sync(self) -> bool:
        """Whether it has all committed records; used for throttling only.

        Until the leader has told its high watermark, the role tells: a throttle that is exceeded
        would otherwise take a replica out of the ISR with each new leader epoch.
        """
        return self.began_in_sync if self.lag is None else self.lag <= 0


class FollowedPartitions:
    """The partitions of one fetcher, in the order in which they are to be fetched.

    Args:
        failed: The partitions that failed, shared by all fetchers of a broker.
    """

    def __init__(self, failed: set[TopicPartition]) -> None:
        self.failed = failed
        self._states: dict[TopicPartition, FollowedPartition] = {}
        self._without_id_count = 0
        self._delayed: set[TopicPartition] = set()
        self._truncating: dict[TopicPartition, None] = {}
        # Partitions whose part of the next request differs from the last one, in order.
        self._changed: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._states

    def __iter__(self) -> Iterator[FollowedPartition]:
        return iter(self._states.values())

    def get(self, tp: TopicPartition) -> FollowedPartition | None:
        return self._states.get(tp)

    @property
    def uses_topic_ids(self) -> bool:
        """Whether every topic here has an id."""
        return self._without_id_count == 0

    # Membership

    def add(self, partition: FollowedPartition) -> bool:
        """Begins to follow a partition, unless it is followed in the same epoch already."""
        known = self._states.get(partition.tp)
        if known is not None and known.leader_epoch == partition.leader_epoch:
            return False
        self.remove([partition.tp])
        self._states[partition.tp] = partition
        self._without_id_count += partition.topic_id is None
        self._note(partition)
        return True

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Follows partitions no longer, and forgets that they failed."""
        for tp in partitions:
            self.failed.discard(tp)
            self._drop(tp)

    def fail(self, tp: TopicPartition) -> None:
        """Stops following a partition until its next role."""
        if tp in self._states:
            self.failed.add(tp)
            self._drop(tp)

    def _drop(self, tp: TopicPartition) -> None:
        dropped = self._states.pop(tp, None)
        if dropped is not None:
            self._without_id_count -= dropped.topic_id is None
            self._delayed.discard(tp)
            self._truncating.pop(tp, None)
            self._changed[tp] = None

    # What to do next

    def wake(self, now_ms: int) -> None:
        """Ends the delays that are over."""
        for tp in [tp for tp in self._delayed if self._is_over(tp, now_ms)]:
            one = self._states[tp]
            one.delayed_until_ms = None
            self._delayed.discard(tp)
            self._note(one)

    def _is_over(self, tp: TopicPartition, now_ms: int) -> bool:
        until_ms = self._states[tp].delayed_until_ms
        return until_ms is None or until_ms <= now_ms

    def next_wake_ms(self) -> int | None:
        """When the first delay ends; None if no partition is delayed."""
        delays = [self._states[tp].delayed_until_ms for tp in self._delayed]
        return min((until_ms for until_ms in delays if until_ms is not None), default=None)

    def truncating(self) -> list[FollowedPartition]:
        """The partitions for which the leader has to be asked where the logs part."""
        return [one for tp in self._truncating if (one := self._states[tp]).is_truncating]

    def ready(self) -> list[FollowedPartition]:
        """The partitions that may be fetched, in order."""
        return [one for one in self._states.values() if one.is_ready_for_fetch]

    def take_changed(self) -> list[TopicPartition]:
        """The partitions whose part of the request changed since the last call, in order."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    # What answers lead to

    def is_expected(self, tp: TopicPartition, *, asked_offset: int, asked_epoch: int) -> bool:
        """Whether an answer to a request with this offset and epoch still counts."""
        one = self._states.get(tp)
        return (
            one is not None
            and one.is_ready_for_fetch
            and one.fetch_offset == asked_offset
            and one.leader_epoch == asked_epoch
        )

    def advance(
        self,
        one: FollowedPartition,
        *,
        next_offset: int,
        last_epoch: int,
        log_start_offset: int,
        leader_high_watermark: int,
    ) -> None:
        """Applies an answer without an error; only one with records moves the partition."""
        one.lag = max(0, leader_high_watermark - next_offset)
        one.error_count = 0
        if next_offset != one.fetch_offset:
            del self._states[one.tp]
            self._states[one.tp] = one
        elif one.log_start_offset == log_start_offset:
            return
        one.fetch_offset = next_offset
        one.last_fetched_epoch = last_epoch
        one.log_start_offset = log_start_offset
        self._note(one)

    def delay(self, partitions: Iterable[TopicPartition], *, now_ms: int, backoff_ms: int) -> None:
        """Does not fetch partitions for a while; a delay that runs is not extended.

        Args:
            backoff_ms: The longest delay; the first ones in a row are shorter.
        """
        for tp in partitions:
            one = self._states.get(tp)
            if one is None or one.delayed_until_ms is not None:
                continue
            delay_ms = min(backoff_ms, FIRST_BACKOFF_MS << min(one.error_count, _MOST_DOUBLINGS))
            one.error_count += 1
            one.delayed_until_ms = now_ms + delay_ms
            self._delayed.add(tp)
            del self._states[tp]
            self._states[tp] = one
            self._changed[tp] = None

    def begin_work(self, one: FollowedPartition) -> None:
        """Begins work on the local log: nothing is asked for the partition meanwhile."""
        one.is_busy = True
        self._note(one)

    def end_work(
        self,
        one: FollowedPartition,
        *,
        fetch_offset: int,
        last_epoch: int,
        log_start_offset: int,
        state: ReplicaState,
        lag: int | None = None,
    ) -> None:
        """Continues after work on the local log, if the partition is followed still."""
        one.is_busy = False
        if self._states.get(one.tp) is not one:
            return
        one.fetch_offset = fetch_offset
        one.last_fetched_epoch = last_epoch
        one.log_start_offset = log_start_offset
        one.state = state
        if lag is not None:
            one.lag = lag
        self._note(one)

    def handle_fenced(self, tp: TopicPartition, asked_epoch: int) -> bool:
        """Handles FENCED_LEADER_EPOCH; returns whether to try again."""
        one = self._states.get(tp)
        if one is None:
            return False
        if one.leader_epoch == asked_epoch:
            self.fail(tp)
            return False
        return True

    def _note(self, one: FollowedPartition) -> None:
        self._changed[one.tp] = None
        if one.state is ReplicaState.TRUNCATING:
            self._truncating[one.tp] = None
        else:
            self._truncating.pop(one.tp, None)
