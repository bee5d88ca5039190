"""Opens a log: settles what a crash interrupted, loads the segments, recovers the unsynced end.

Passes over a partition directory:

1. Undo or finish the replacements of segments that a crash interrupted (`interrupted_swaps`), and
   write unsynced files anew if the disk refused an earlier process (`rewriting`).
2. Open every `.log` in order. A missing or bad index is rebuilt by a scan that never cuts.
3. After an unclean stop, scan from the segment with the recovery point on, and cut the torn
   tail; a segment that ends before its roll did (`roll_witnesses`) is torn as well. After a clean
   stop only the last index interval is read.

Data below the recovery point is never cut, even if it is damaged. Where a clean stop's log does not
end in readable batches, its bytes stay and the log continues in a new segment at the offset the
stop recorded, so that no offset is ever assigned twice. Where it ends above that offset, see
`excess_tail`; where it ends below its log start, its segments are set aside.

The recovery point itself does not rise here: recovery reads, it does not sync, and a start after a
second crash must scan the same data again. The one exception is a log that continues behind damage:
all bytes before its new segment stay, and are synced.
"""

import itertools
import logging
import os
from collections.abc import Callable
from typing import TypeVar

from odradek.errors import CorruptCheckpointError
from odradek.model import TopicPartition
from odradek.records.batch import CURRENT_MAGIC
from odradek.storage import paths
from odradek.storage.directories.closed_logs import ClosedLog
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.log.config import INT32_MAX, LogConfig
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.log import Log
from odradek.storage.log.roll_witnesses import RollWitnesses
from odradek.storage.log.services import LogServices
from odradek.storage.producers.snapshot import list_snapshots
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.recovery.excess_tail import settle_excess
from odradek.storage.recovery.foreign_segments import ForeignSegments
from odradek.storage.recovery.interrupted_swaps import InterruptedSwaps
from odradek.storage.recovery.losses import report_losses, warn_of_jump
from odradek.storage.recovery.recorded_producers import RecordedProducers
from odradek.storage.recovery.rewriting import rewrite_unsynced
from odradek.storage.recovery.segment_files import SegmentFiles
from odradek.storage.recovery.segment_recovery import (
    NEVER_CUT,
    RecoveredSegment,
    SegmentOverflow,
    recover_segment,
)
from odradek.storage.recovery.set_aside import set_segments_aside
from odradek.storage.segments.segment import LogSegment
from odradek.storage.segments.segments import LogSegments

__all__ = ["load_log"]

logger = logging.getLogger(__name__)

# A load that takes this long gets a line.
_LONG_LOAD_MS = 1_000

_T = TypeVar("_T")


def load_log(
    directory: str,
    topic_partition: TopicPartition,
    *,
    config: LogConfig,
    log_directory: LogDirectory,
    services: LogServices,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    had_clean_shutdown: bool = False,
    closed: ClosedLog | None = None,
) -> Log:
    """Opens, and where needed creates or recovers, the log in `directory`.

    Args:
        directory: The partition directory.
        topic_partition: The partition of the log.
        config: The topic's settings.
        log_directory: The data directory above it, which fails with it.
        services: Disk, clock and the like.
        recovery_point: First offset not known to be on disk, from the checkpoint.
        log_start_offset: First visible offset, from the checkpoint.
        had_clean_shutdown: Whether the last process closed this log in order.
        closed: The log as that process left it, if recorded; used instead of the checkpoints.

    Raises:
        OSError: The disk refused.
    """
    loader = _Loader(
        directory, topic_partition, config, services, recovery_point, log_start_offset,
        had_clean_shutdown, closed if had_clean_shutdown else None,
        log_directory.has_doubtful_bytes and not had_clean_shutdown,
    )  # fmt: skip
    return loader.load(log_directory)


class _Loader:
    """The state of one load."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        services: LogServices,
        recovery_point: int,
        log_start_offset: int,
        had_clean_shutdown: bool,
        closed: ClosedLog | None,
        is_doubtful: bool,
    ) -> None:
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._services = services
        self._disk = services.disk
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._is_clean = had_clean_shutdown
        self._is_doubtful = is_doubtful  # Whether reads may show bytes that the disk lacks.
        # The log as a clean stop left it; None if that is not recorded.
        self._closed = closed
        segments = () if closed is None else closed.segments
        self._closed_segments = {segment.base_offset: segment for segment in segments}
        self._files = SegmentFiles(directory, config=config, services=services)
        self._segments = LogSegments(services.on_damage)
        self._epochs = LeaderEpochCache(
            os.path.join(directory, paths.LEADER_EPOCH_CHECKPOINT), disk=services.disk
        )
        self._witnesses = RollWitnesses(directory, disk=services.disk)
        self._foreign = ForeignSegments(
            topic_partition,
            directory,
            disk=services.disk,
            segments=self._segments,
            witnesses=self._witnesses,
        )
        self._producers = RecordedProducers(
            topic_partition, directory, services=services, segments=self._segments
        )
        # The producers as recovery has found them, up to the log end.
        self._recovered_state: ProducerStateManager | None = None
        # As a snapshot has them, of an offset that recovery did not reach.
        self._unreached_state: ProducerStateManager | None = None

    def load(self, log_directory: LogDirectory) -> Log:
        started_ms = self._services.clock.monotonic_ms()
        if not os.path.isdir(self._directory):
            self._disk.mkdir(self._directory)
            self._disk.fsync_dir(os.path.dirname(self._directory))
        try:
            log = self._open(log_directory)
        except BaseException:
            for segment in self._segments:
                segment.close_handles()
            raise
        # One line for each of a thousand partitions would hide the lines that matter.
        elapsed_ms = self._services.clock.monotonic_ms() - started_ms
        logger.log(
            logging.INFO if elapsed_ms >= _LONG_LOAD_MS else logging.DEBUG,
            "%s: loaded %d segments, offsets %d to %d, in %d ms",
            self._topic_partition, len(self._segments), log.log_start_offset, log.log_end_offset,
            elapsed_ms,
        )  # fmt: skip
        return log

    def _open(self, log_directory: LogDirectory) -> Log:
        self._compare_with_stop()
        epochs_lost = not self._load_epochs()
        next_offset = self._load_segments()
        if epochs_lost:
            self._rebuild_epochs()
        self._epochs.truncate_from_end(next_offset)
        first = self._segments.first
        assert first is not None
        log_start_offset = max(self._log_start_offset, first.base_offset)
        self._epochs.truncate_from_start(log_start_offset)
        self._epochs.flush()
        if not self._is_clean:
            self._recovery_point = min(self._recovery_point, next_offset)
        log = Log(
            self._topic_partition,
            self._directory,
            config=self._config,
            log_directory=log_directory,
            services=self._services,
            segments=self._segments,
            leader_epochs=self._epochs,
            producer_state=self._recovered_state or self._producers.new_state(),
            witnesses=self._witnesses,
            recovery_point=next_offset if self._is_clean else self._recovery_point,
            log_start_offset=log_start_offset,
            log_end_offset=next_offset,
        )
        self._load_producer_state(log)
        return log

    # The last stop

    def _compare_with_stop(self) -> None:
        """Uses the record of a clean stop, and reports losses since then."""
        closed = self._closed
        if closed is None:
            return
        for name, found, right in (
            ("recovery point", self._recovery_point, closed.log_end_offset),
            ("log start", self._log_start_offset, closed.log_start_offset),
        ):
            if found != right:
                logger.warning(
                    "%s: the checkpointed %s is %d, although a clean stop left it at %d: the latter"
                    " counts",
                    self._topic_partition, name, found, right,
                )  # fmt: skip
        self._recovery_point = closed.log_end_offset
        self._log_start_offset = closed.log_start_offset
        report_losses(
            self._directory, self._topic_partition, closed,
            files=self._files, services=self._services,
        )  # fmt: skip

    def _is_end_recorded(self, offset: int) -> bool:
        """Whether a clean stop left the log end there, by its record or its snapshot."""
        if self._closed is not None:
            return offset == self._closed.log_end_offset
        return offset in list_snapshots(self._directory)

    # Leader epochs

    def _load_epochs(self) -> bool:
        """Reads the checkpoint; returns whether it existed and was whole."""
        if not os.path.exists(self._epochs.path):
            return False
        try:
            self._epochs.load()
        except CorruptCheckpointError as error:
            logger.warning("%s; rebuilding it from the batches", error)
            return False
        return True

    def _rebuild_epochs(self) -> None:
        self._epochs.truncate_from_end(0)  # What recovery found is but the end of it.
        for segment in self._segments:
            for _, header, _, _ in segment.walk():
                latest = self._epochs.latest_epoch
                if (
                    header.magic >= CURRENT_MAGIC
                    and header.leader_epoch >= 0
                    and (latest is None or header.leader_epoch > latest)
                ):
                    self._epochs.assign(header.leader_epoch, header.base_offset, durable=False)

    # Producers

    def _load_producer_state(self, log: Log) -> None:
        state = log.producer_state
        if self._directory.endswith(paths.DELETE_DIR_SUFFIX):
            return
        bases = [segment.base_offset for segment in log.segments]
        state.snapshots.remove_strays(bases, self._recovery_point)
        log.rebuild_producer_state()

    # Segments

    def _load_segments(self) -> int:
        self._witnesses.load(self._files.names())
        InterruptedSwaps(
            self._topic_partition,
            self._directory,
            disk=self._disk,
            witnesses=self._witnesses,
            content_of=self._files.content_of,
        ).settle()
        if self._is_doubtful:
            rewrite_unsynced(self._directory, self._recovery_point, self._disk)
        self._retry_on_overflow(self._load_segment_files)
        if self._directory.endswith(paths.DELETE_DIR_SUFFIX):
            if not len(self._segments):
                self._segments.add(self._files.create(0))
            return 0
        # After a clean stop everything is synced. A roll that was cut short has no segment.
        bases = [] if self._is_clean else [segment.base_offset for segment in self._segments]
        self._witnesses.keep_only(bases)
        return self._retry_on_overflow(self._recover_log)

    def _load_segment_files(self) -> None:
        """Pass 2."""
        for segment in self._segments:
            segment.close_handles()
        self._segments.clear()
        names = self._files.names()
        present = frozenset(names)
        for base, following in itertools.pairwise([*self._files.bases(names), NEVER_CUT]):
            segment = self._files.open(base)
            self._segments.add(segment)
            if self._is_clean or following <= self._recovery_point:
                problem = self._files.problem_of_indexes(
                    segment, present, self._closed_segments.get(base)
                )
                if problem is not None:
                    logger.warning("rebuilding the indexes of %s: %s", segment.path, problem)
                    self._rebuild_indexes(segment)

    def _retry_on_overflow(self, step: Callable[[], _T]) -> _T:
        """Runs a pass again after splitting each segment whose offsets overflow."""
        while True:
            try:
                return step()
            except SegmentOverflow as error:
                self._files.split(error.segment, self._segments, self._witnesses)

    def _rebuild_indexes(self, segment: LogSegment) -> RecoveredSegment:
        """An index-only scan: its data was synced, so it is not cut, and no snapshot is touched."""
        return recover_segment(
            segment,
            self._producers.state_at(segment.base_offset, self._log_start_offset),
            self._epochs,
            cut_from=NEVER_CUT,
            index_interval_bytes=self._config.index_interval_bytes,
        )

    # Recovery

    def _recover_log(self) -> int:
        """Pass 3; returns the log end offset."""
        if self._closed is not None:
            self._foreign.set_all_above_aside(self._closed.log_end_offset)
        if self._segments.active is None:
            return self._begin_without_segments()
        next_offset, is_tail_damaged = (
            self._check_tail() if self._is_clean else self._recover_unsynced()
        )
        if is_tail_damaged:
            return self._continue_behind_damage(next_offset)
        if next_offset < self._log_start_offset:
            return self._settle_log_start(next_offset)
        return next_offset

    def _begin_without_segments(self) -> int:
        """Begins a new log, or one whose files are lost, above the offsets of a clean stop."""
        start = self._log_start_offset
        if self._is_clean:
            snapshots = list_snapshots(self._directory) if self._closed is None else []
            start = max(start, self._recovery_point, *snapshots)
        if start > self._log_start_offset:
            logger.error(
                "%s: not one segment is left in %s, although offsets %d to %d were written: the log"
                " goes on at %d; if the files are elsewhere, stop the broker, put them back, remove"
                " the segment %020d, and start it again",
                self._topic_partition, self._directory, self._log_start_offset, start - 1, start,
                start,
            )  # fmt: skip
        self._segments.add(self._files.create(start))
        return start

    def _check_tail(self) -> tuple[int, bool]:
        """After a clean stop: where the log ends, by its last index interval."""
        if self._active().is_misnamed():
            self._foreign.set_copies_aside([self._active()])
        if not self._is_end_recorded(self._active().base_offset):
            self._foreign.set_empty_end_aside(self._recovery_point)
        active = self._active()
        recorded = self._recovery_point
        if recorded == 0 and self._closed is None:  # Lost. The stop left a snapshot at the end.
            snapshots = list_snapshots(self._directory)
            self._recovery_point = max((s for s in snapshots if s >= active.base_offset), default=0)
        tail = active.read_next_offset()
        if tail.damage is not None:
            logger.error(
                "%s: %s at position %d, although the last stop was clean",
                active.path, tail.damage.reason, tail.damage.position,
            )  # fmt: skip
            result = self._rebuild_indexes(active)
            end = self._recovery_point
            is_certain = self._closed is not None
            if (
                active.base_offset < end + is_certain
                and end < result.next_offset
                and self._is_end_recorded(end)
            ):
                # A batch that claims to lie above the recorded end is damage, too, and stays so if
                # the next segment begins there.
                active.offset_limit = end
                active.damage.forget_from(0)
                return self._rebuild_indexes(active).next_offset, True
            return result.next_offset, result.is_tail_damaged
        if tail.next_offset < self._recovery_point:
            logger.error(
                "%s: ends at offset %d, although a clean stop left it at %d; recovering it",
                active.path, tail.next_offset, self._recovery_point,
            )  # fmt: skip
            if tail.next_offset >= self._log_start_offset:
                # The last segments are lost if the stop's record, or its snapshot, confirms its
                # recovery point. The recovery point alone proves nothing: it may belong to records
                # that a truncation removed.
                is_end_lost = recorded > 0 and self._is_end_recorded(recorded)
                self._is_clean = False
                end, is_tail_damaged = self._recover_unsynced()
                return end, is_tail_damaged or (is_end_lost and end < self._recovery_point)
        return self._settle_excess(tail.next_offset)

    def _settle_excess(self, end: int) -> tuple[int, bool]:
        """Handles a log that ends above what its clean stop recorded; returns end and damage."""
        active, recorded = self._active(), self._recovery_point
        if (
            (recorded == 0 and self._closed is None)
            or not active.base_offset <= recorded < end
            or self._is_end_recorded(end)
        ):
            return end, False
        settled = settle_excess(
            active, self._directory, self._disk, recorded, is_certain=self._closed is not None
        )
        is_tail_damaged = False
        if settled != end:
            active.damage.forget_from(0)
            result = self._rebuild_indexes(active)
            settled, is_tail_damaged = max(settled, result.next_offset), result.is_tail_damaged
        return settled, is_tail_damaged or settled < recorded

    def _recover_unsynced(self) -> tuple[int, bool]:
        """After an unclean stop: scans from the recovery point on and cuts the torn tail."""
        result: RecoveredSegment | None = None
        self._foreign.set_copies_aside(self._segments.from_offset(self._recovery_point))
        segments = self._segments.from_offset(self._recovery_point)
        state = self._recovered_state = self._producers.state_at(
            segments[0].base_offset, self._log_start_offset
        )
        recorded = self._producers.recorded_state(
            max(segments[0].base_offset, self._log_start_offset), self._recovery_point
        )
        for number, segment in enumerate(segments):
            later = segments[number + 1 :]
            state.update_map_end_offset(segment.base_offset)
            if number:
                # The roll has left it, and whatever stood before it has been found.
                state.recall(segment.base_offset, self._services.clock.now_ms())
            state.take_snapshot()
            result = recover_segment(
                segment,
                state,
                self._epochs,
                cut_from=self._recovery_point,
                index_interval_bytes=self._config.index_interval_bytes,
                recorded=None if number else recorded,
                before_cut=lambda later=later: self._drop(later),  # type: ignore[misc]
            )
            if result.damage is not None:
                logger.warning(
                    "%s: %s at position %d: cut %d bytes and dropped %d later segments; the last"
                    " valid offset is %d",
                    segment.path, result.damage.reason, result.damage.position,
                    result.truncated_bytes, len(later), result.next_offset - 1,
                    extra=self._fields(
                        reason=result.damage.reason, cut_bytes=result.truncated_bytes,
                        dropped_segments=len(later), last_offset=result.next_offset - 1,
                    ),
                )  # fmt: skip
                break
            if later and self._reaches_unsynced(result, later[0]):
                logger.warning(
                    "%s: damage behind offset %d reaches over the recovery point %d: dropped %d"
                    " later segments, the log would have a hole",
                    segment.path, result.next_offset - 1, self._recovery_point, len(later),
                    extra=self._fields(
                        reason="hole", dropped_segments=len(later),
                        last_offset=result.next_offset - 1,
                    ),
                )  # fmt: skip
                self._drop(later)
                break
            if later and self._has_lost_its_end(result, later[0]):
                logger.warning(
                    "%s: ends at offset %d, but the roll to %d left it at %d: dropped %d later"
                    " segments, the log would have a hole",
                    segment.path, result.next_offset, later[0].base_offset,
                    self._witnesses.end_before(later[0].base_offset), len(later),
                    extra=self._fields(
                        reason="hole", dropped_segments=len(later),
                        last_offset=result.next_offset - 1,
                    ),
                )  # fmt: skip
                self._drop(later)
                break
        assert result is not None
        self._warn_of_jump(result)
        if recorded is not None and recorded.map_end_offset > result.next_offset:
            self._unreached_state = recorded
        state.take_snapshot()
        return result.next_offset, result.is_tail_damaged

    def _warn_of_jump(self, result: RecoveredSegment) -> None:
        if result.next_offset > self._recovery_point:
            # A compacted log has gaps.
            missing_from = None if self._config.cleanup_compact else result.missing_from
            warn_of_jump(self._topic_partition, self._segments, missing_from)

    def _fields(self, **others: object) -> dict[str, object]:
        """The fields of a log line, for programs that read the log."""
        topic, partition = self._topic_partition
        return {"topic": topic, "partition": partition, **others}

    def _reaches_unsynced(self, recovered: RecoveredSegment, following: LogSegment) -> bool:
        """Whether damage at a segment's end covers offsets below and above the recovery point.

        Those below must stay, with their damaged bytes; above it a log must have no hole.
        """
        point = self._recovery_point
        return recovered.is_tail_damaged and recovered.next_offset < point < following.base_offset

    def _has_lost_its_end(self, recovered: RecoveredSegment, following: LogSegment) -> bool:
        """Whether a crash cut a segment between two batches, below the end that its roll recorded.

        Records below the log start are not needed, and records below the recovery point were
        synced: if those are lost, that is damage, which must not cost the records behind it.
        """
        end = self._witnesses.end_before(following.base_offset)
        settled = max(self._recovery_point, self._log_start_offset)
        return end is not None and end > settled and recovered.next_offset < end

    def _drop(self, segments: list[LogSegment]) -> None:
        """Removes segments, durably, and from the end: a crash on the way must leave no hole."""
        for segment in reversed(segments):
            self._segments.remove(segment)
            segment.delete_if_exists()
            self._witnesses.remove(segment.base_offset)
        if segments:
            self._disk.fsync_dir(self._directory)

    def _settle_log_start(self, next_offset: int) -> int:
        """Handles a log that ends below its start: files were removed, or the start is wrong."""
        if self._is_clean and next_offset == self._recovery_point:
            first = self._segments.first
            assert first is not None
            logger.warning(
                "%s: the checkpointed log start %d lies beyond the log end %d that a clean stop"
                " recorded: the log starts at its first segment, %d",
                self._topic_partition, self._log_start_offset, next_offset, first.base_offset,
            )  # fmt: skip
            self._log_start_offset = first.base_offset
            return next_offset
        segments = list(self._segments)
        start = self._log_start_offset
        if self._is_clean and self._is_end_recorded(self._recovery_point):
            start = max(start, self._recovery_point)  # Offsets below it were assigned before.
        suffix = set_segments_aside(self._disk, self._directory, segments)
        logger.error(
            "%s: the log ends at %d, below its start %d: it begins anew at %d, and its %d segments"
            " are set aside in %s; if the start is wrong, stop the broker, take the suffix %s off"
            " their names, and start it again",
            self._topic_partition, next_offset, self._log_start_offset, start, len(segments),
            self._directory, suffix,
        )  # fmt: skip
        for segment in segments:
            self._segments.remove(segment)
            self._witnesses.remove(segment.base_offset)
        self._recovered_state = None
        self._segments.add(self._files.create(start))
        return start

    def _continue_behind_damage(self, next_offset: int) -> int:
        """Begins a new segment, since unreadable bytes at the end must be kept."""
        active = self._active()
        end = max(next_offset, self._log_start_offset)
        if active.base_offset < self._recovery_point <= active.base_offset + INT32_MAX:
            end = max(end, self._recovery_point)
        if end == active.base_offset:
            end += 1  # No batch is readable; the base of the segment stays taken.
        logger.error(
            "%s: offsets %d to %d cannot be read; the log goes on at %d",
            self._topic_partition, next_offset, end - 1, end,
        )  # fmt: skip
        active.on_become_inactive()
        if not self._is_clean:
            # The kept bytes are synced now: otherwise the next start would find the damage across
            # the recovery point, and would drop the records acknowledged behind it.
            for segment in self._segments.from_offset(self._recovery_point):
                segment.flush()
            self._recovery_point = end
        self._segments.add(self._files.create(end))
        if self._recovered_state is not None:
            unreached = self._unreached_state
            if unreached is not None and unreached.map_end_offset <= end:
                self._recovered_state.become(unreached)
            self._recovered_state.update_map_end_offset(end)
        return end

    def _active(self) -> LogSegment:
        active = self._segments.active
        assert active is not None
        return active
