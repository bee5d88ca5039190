"""The state of each partition that a consumer reads. Pure.

The **position** is the offset after the last record that was returned to the application; a commit
without arguments commits it. Fetching is ahead of it by the buffered records. A partition goes
through::

    AWAIT_COMMITTED ── offset of the group ──▶ READY ◀── found ── AWAIT_RESET
           │ none                               ▲ │ leader epoch changed
           └──────────── AWAIT_RESET            │ ▼
                                          AWAIT_VALIDATION

`seek` leads to READY from everywhere. Only READY partitions that are not paused are read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.model import TopicPartition

__all__ = ["NO_EPOCH", "AssignedPartition", "Partitions", "Stage"]

NO_EPOCH: Final = -1


class Stage(Enum):
    """The reason why a partition is not read yet, or READY."""

    AWAIT_COMMITTED = "the group's offset"
    AWAIT_RESET = "an offset by policy"
    AWAIT_VALIDATION = "the leader's confirmation of the position"
    READY = "nothing"


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """One partition of the assignment. Replaced when it is assigned anew."""

    tp: TopicPartition
    stage: Stage = Stage.AWAIT_COMMITTED
    # Offset after the last record returned. Invariant: set when READY or AWAIT_VALIDATION.
    position: int | None = None
    # Leader epoch of the last record returned; NO_EPOCH if unknown.
    position_epoch: int = NO_EPOCH
    # Leader epoch under which the position was last validated.
    leader_epoch: int = NO_EPOCH
    # For ListOffsets, while AWAIT_RESET; None: by auto.offset.reset.
    reset_timestamp: int | None = None
    is_paused: bool = False
    # Whether it is about to be revoked: its offset is committed, no more records are returned.
    is_leaving: bool = False
    # From the last answer; -1 before it.
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    # Another replica to read from, until then (monotonic ms); -1: the leader.
    preferred_replica: int = -1
    preferred_until_ms: int = 0
    # How often in a row such a replica could not be read, and until when (monotonic ms) the leader
    # is therefore asked for the records themselves.
    replica_failure_count: int = 0
    leader_only_until_ms: int = 0
    # Grows with every seek, reset, validation, pause and loss: answers to earlier fetches are
    # dropped.
    version: int = 0
    # Monotonic ms before which a failed look-up is not repeated.
    retry_at_ms: int = 0

    @property
    def is_fetchable(self) -> bool:
        return self.stage is Stage.READY and not self.is_paused and not self.is_leaving

    def seek(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Continues at an offset."""
        self.position = offset
        self.position_epoch = leader_epoch
        self.leader_epoch = NO_EPOCH
        self.stage = Stage.READY
        self.reset_timestamp = None
        self.retry_at_ms = 0
        self.version += 1

    def reset(self, timestamp: int | None = None) -> None:
        """Forgets the position; `timestamp` of None: auto.offset.reset decides the next one."""
        self.position = None
        self.stage = Stage.AWAIT_RESET
        self.reset_timestamp = timestamp
        self.retry_at_ms = 0
        self.preferred_replica = -1
        self.version += 1

    def leave_replica(self, now_ms: int, pauses_ms: tuple[int, int]) -> None:
        """Continues at the leader, since the preferred replica could not be read.

        The leader may still believe in the replica. If it were told the consumer's rack, it would
        send the consumer there again, and the partition would get no records from either.

        Args:
            now_ms: The monotonic time.
            pauses_ms: How long the replica is left alone after the first failure, and at most; the
                time doubles with each further one.
        """
        first_ms, longest_ms = pauses_ms
        pause_ms = min(first_ms << min(self.replica_failure_count, 16), longest_ms)
        self.preferred_replica = -1
        self.replica_failure_count += 1
        self.leader_only_until_ms = now_ms + pause_ms

    def await_validation(self) -> None:
        """Continues once the leader has confirmed the position, and then at the leader."""
        self.stage = Stage.AWAIT_VALIDATION
        self.retry_at_ms = 0
        self.preferred_replica = -1  # It was chosen by the leader before.
        self.version += 1

    def end_offset(self, *, is_read_committed: bool) -> int:
        """The end of the log for this reader, as of the last fetch; -1 before it."""
        return self.last_stable_offset if is_read_committed else self.high_watermark

    def lag(self, *, is_read_committed: bool) -> int | None:
        """Records between the position and the end, as of the last fetch; None before it."""
        end = self.end_offset(is_read_committed=is_read_committed)
        if self.position is None or end < 0:
            return None
        return max(end - self.position, 0)


class Partitions:
    """The assignment, in the order in which it was given."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, AssignedPartition] = {}

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._states

    def get(self, tp: TopicPartition) -> AssignedPartition | None:
        return self._states.get(tp)

    def names(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replaces the assignment; partitions that stay keep position and pauses."""
        before = self._states
        self._states = {tp: before.get(tp) or AssignedPartition(tp) for tp in partitions}

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Returns no more records of these; they stay until the next `assign`."""
        for tp in partitions:
            state = self._states.get(tp)
            if state is not None and not state.is_leaving:
                state.is_leaving = True
                state.version += 1

    def is_current(self, state: AssignedPartition, version: int) -> bool:
        """Whether the records that were fetched for a state may still be returned."""
        return state.version == version and self._states.get(state.tp) is state

    def positions(self) -> dict[TopicPartition, tuple[int, int]]:
        """Position and its epoch of every partition that has one."""
        return {
            state.tp: (state.position, state.position_epoch)
            for state in self._states.values()
            if state.position is not None
        }
