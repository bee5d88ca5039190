"""Bugs that a simulation has to find. Each exchanges one function, in the process of one seed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.broker.internal_partitions import InternalPartitions
from odradek.coordinator.group import sessions
from odradek.coordinator.group.decisions import Decision, Now
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.rebalance import handle_departures
from odradek.errors import ErrorCode
from odradek.purgatory import DelayedOperation, SystemTimer
from odradek.purgatory.timing_wheel import TimerTask
from odradek.records.batch import iter_headers
from odradek.replication.partition import Partition
from odradek.storage.log.flushing import Flusher
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.recovery import loader
from odradek.storage.recovery.segment_recovery import RecoveredSegment
from odradek.storage.segments.segment import LogSegment
from odradek.testing.disk import SimDisk

__all__ = ["PLANTS"]

_LATE_S = 0.03


def _write_late() -> None:
    """The high watermark covers what was appended, and is answered, before the file has it."""
    write, writev = SimDisk.write, SimDisk.writev

    def is_log(disk: SimDisk, fd: int) -> bool:
        return disk._descriptors[fd].node.path.endswith(".log")

    def write_late(disk: SimDisk, fd: int, data: Any) -> int:
        if not is_log(disk, fd):
            return write(disk, fd, data)
        kept = bytes(data)
        asyncio.get_running_loop().call_later(_LATE_S, write, disk, fd, kept)
        return len(kept)

    def writev_late(disk: SimDisk, fd: int, buffers: Sequence[Any]) -> int:
        if not is_log(disk, fd):
            return writev(disk, fd, buffers)
        return write_late(disk, fd, b"".join(bytes(each) for each in buffers))

    SimDisk.write = write_late  # type: ignore[method-assign]
    SimDisk.writev = writev_late  # type: ignore[method-assign, assignment]


def _raise_recovery_point_early() -> None:
    """A flush counts as done when it is begun."""
    schedule = Flusher.schedule

    def schedule_and_believe(flusher: Flusher, upto: int, **named: Any) -> bool:
        is_begun = schedule(flusher, upto, **named)
        if is_begun:
            flusher._watermarks.recovery_point = upto
        return is_begun

    Flusher.schedule = schedule_and_believe  # type: ignore[method-assign, assignment]


def _answer_commits_early() -> None:
    """A commit is answered, and appended a moment later."""
    try_append = InternalPartitions.try_append

    def append_late(
        partitions: InternalPartitions, partition: int, leader_epoch: int, batch: bytearray
    ) -> tuple[ErrorCode, int] | None:
        loop = asyncio.get_running_loop()
        kept = bytearray(batch)
        loop.call_later(_LATE_S, try_append, partitions, partition, leader_epoch, kept)
        return ErrorCode.NONE, partitions.start_offset(partition)

    InternalPartitions.try_append = append_late  # type: ignore[method-assign, assignment]


def _serve_to_the_log_end() -> None:
    """Consumers are served up to the log end, while the high watermark takes a moment to follow."""
    read = Log.read
    raise_mark = Log.maybe_increment_high_watermark

    def read_all(log: Log, start: int, length: int, _isolation: Any, **named: Any) -> Any:
        return read(log, start, length, FetchIsolation.LOG_END, **named)

    def raise_late(log: Log, metadata: Any) -> Any:
        asyncio.get_running_loop().call_later(_LATE_S, raise_mark, log, metadata)
        return None

    def append_and_wait(log: Log, records: Any, leader_epoch: int, origin: Any) -> Any:
        info = log.append_as_leader(records, leader_epoch=leader_epoch, origin=origin)
        raise_late(log, log.log_end_offset_metadata)
        return info

    Log.read = read_all  # type: ignore[method-assign, assignment]
    Log.append_unreplicated = append_and_wait  # type: ignore[method-assign, assignment]
    Partition.maybe_increment_high_watermark = lambda partition: bool(  # type: ignore[method-assign, assignment]
        partition.log is not None
        and raise_late(partition.log, partition.log.log_end_offset_metadata)
    )


def _let_session_timers_survive() -> None:
    """The timer of a member that left rings, and the others share its partitions once more."""
    on_timer = sessions._on_session_timer

    def on_any_timer(
        group: Group, member_id: str, due_ms: int, now: Now, decision: Decision
    ) -> None:
        if member_id not in group.members and group.members:
            handle_departures(group, f"member {member_id} was silent too long", now, decision)
        else:
            on_timer(group, member_id, due_ms, now, decision)

    sessions._on_session_timer = on_any_timer


def _complete_without_looking() -> None:
    """An operation that ended is ended again when its key changes once more or its time is up."""

    def force_complete(operation: DelayedOperation) -> bool:
        operation._is_completed = True
        operation.on_complete()
        return True

    DelayedOperation.force_complete = force_complete  # type: ignore[method-assign, assignment]


def _lose_the_timer_of_operations() -> None:
    """An operation waits for its condition alone, however long that takes."""
    add = SystemTimer.add

    def add_others(timer: SystemTimer, task: TimerTask) -> None:
        if not isinstance(task, DelayedOperation):
            add(timer, task)

    SystemTimer.add = add_others  # type: ignore[method-assign, assignment]


def _cut_a_sound_batch() -> None:
    """A recovery takes the last batch for a torn one, synced or not."""
    recover = loader.recover_segment  # type: ignore[attr-defined]  # where it is called from

    def cut_and_recover(segment: LogSegment, *given: Any, **named: Any) -> RecoveredSegment:
        positions = [position for position, _ in iter_headers(Path(segment.path).read_bytes())]
        if len(positions) > 1:
            segment.cut(positions[-1])
        recovered: RecoveredSegment = recover(segment, *given, **named)
        return recovered

    loader.recover_segment = cut_and_recover  # type: ignore[attr-defined]


PLANTS: Mapping[str, Callable[[], None]] = {
    "high-watermark-before-the-write": _write_late,
    "recovery-point-before-the-sync": _raise_recovery_point_early,
    "recovery-cuts-a-sound-batch": _cut_a_sound_batch,
    "commit-before-the-append": _answer_commits_early,
    "fetch-above-the-high-watermark": _serve_to_the_log_end,
    "session-timer-survives-its-member": _let_session_timers_survive,
    "operation-completes-twice": _complete_without_looking,
    "operation-outlives-its-time": _lose_the_timer_of_operations,
}
