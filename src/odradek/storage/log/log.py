"""The log of one partition: append, read, watermarks, roll.

Offsets of a log, in order::

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
          |                    |                   |                  |
      first visible      read_committed        committed        next to be written

    recovery_point <= log_end_offset: records below it are on disk, not only in the page cache

A log belongs to one thread. Nothing here awaits; work that may block (syncing) is handed to
`BackgroundTasks` with descriptors of its own, and its outcome comes back as a call. Readers on
other threads get a `FileSlice`, which stays valid while the log rolls, cleans and truncates.

An I/O error takes the whole data directory offline before the method returns (`LogDirectory`);
after it, every method that touches the log raises `StorageError`. In-memory state is then as it
was before the failed write, and the torn batch is left for recovery.

`Log` is the object that other packages use: it refuses calls when it is closed, and turns an
`OSError` of its parts into the failure of the directory. The parts:

| module       | idea                              | module       | idea                      |
|--------------|-----------------------------------|--------------|---------------------------|
| `appender`   | from a set of batches to the file | `watermarks` | the offsets above         |
| `reader`     | from an offset to bytes           | `flushing`   | from page cache to disk   |
| `rolling`    | the next segment                  | `truncation` | removes records at the end|
| `removal`    | removes segments and their files  | `retention`  | removes old segments      |

`recovery.loader` opens the log in a directory.
"""

import os
from collections.abc import Callable, Sequence

from odradek.errors import (
    ApiError,
    ErrorCode,
    LogDataError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    StorageError,
)
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import Buffer
from odradek.storage import paths
from odradek.storage.directories.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log import rolling, truncation
from odradek.storage.log.append_analysis import LogAppendInfo
from odradek.storage.log.appender import Appender
from odradek.storage.log.config import LogConfig
from odradek.storage.log.flushing import Flusher
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.offsets import LogOffsetMetadata, LogOffsetSnapshot
from odradek.storage.log.reader import FetchIsolation, LogReader
from odradek.storage.log.roll_witnesses import RollWitnesses
from odradek.storage.log.services import LogServices, Steps
from odradek.storage.log.watermarks import Watermarks
from odradek.storage.producers.replay import replay, replay_start
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.segments.replacement import SegmentSwap
from odradek.storage.segments.segment import FetchDataInfo, LogSegment
from odradek.storage.segments.segments import LogSegments

__all__ = ["Log"]


class Log:
    """An open log. Made by `loader.load_log`."""

    __slots__ = (
        "_appender",
        "_config",
        "_directory",
        "_offline_reason",
        "_reader",
        "before_removal",
        "before_truncation",
        "flusher",
        "is_future",
        "is_live",
        "is_truncating",
        "leader_epochs",
        "log_directory",
        "name",
        "on_append_rejected",
        "pending_swap",
        "producer_state",
        "segments",
        "services",
        "topic_partition",
        "watermarks",
        "witnesses",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        *,
        config: LogConfig,
        log_directory: LogDirectory,
        services: LogServices,
        segments: LogSegments,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        witnesses: RollWitnesses,
        recovery_point: int,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.log_directory = log_directory
        self.services = services
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.witnesses = witnesses
        self._config = config
        # Written out: checkpoints ask all logs of a directory in one turn of the loop.
        self._directory = directory
        self.name = os.path.basename(directory)  # Name of the partition directory.
        # Whether the directory has the plain name of its partition.
        self.is_live = self.name == str(topic_partition)
        # Whether it has the name of a copy that is to replace the live one.
        self.is_future = self.name.endswith(paths.FUTURE_DIR_SUFFIX)
        self._offline_reason: str | None = None
        # Called with the size of a set that was refused as too large, for the rejected-bytes meter.
        self.on_append_rejected: Callable[[int], None] | None = None
        # Called with the offset before a truncation touches a file; it may refuse by raising.
        self.before_truncation: Callable[[Log, int], None] | None = None
        # Called with segments whose files are about to be renamed, before they leave the log.
        self.before_removal: Callable[[Log, Sequence[LogSegment]], None] | None = None
        # Whether steps of a truncation are under way: the log is neither read nor written then.
        self.is_truncating = False
        # Segments that are being put in the place of others, while the loop runs.
        self.pending_swap: SegmentSwap | None = None
        self.watermarks = Watermarks(
            topic_partition,
            segments,
            producer_state,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
        )
        self.flusher = Flusher(self)
        self._reader = LogReader(segments, self.watermarks)
        self._appender = Appender(self, config)

    def __repr__(self) -> str:
        return f"Log({self._directory}, {self.offsets()})"

    # Identity

    @property
    def directory(self) -> str:
        """The partition directory."""
        return self._directory

    @property
    def config(self) -> LogConfig:
        """The topic's settings; a change takes effect with the next append."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._appender.configure(config)

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        active = self.segments.active
        assert active is not None
        return active

    @property
    def size_in_bytes(self) -> int:
        return self.segments.size_in_bytes()

    # Being usable

    @property
    def is_usable(self) -> bool:
        """Whether the log is open and its directory online."""
        return self._offline_reason is None

    def check_usable(self) -> None:
        """Refuses to use a log that cannot be used.

        Raises:
            StorageError: The log is closed or its directory offline.
        """
        if self._offline_reason is not None:
            raise StorageError(
                self.log_directory.path, f"{self.topic_partition}: {self._offline_reason}"
            )

    def mark_offline(self, reason: str) -> None:
        """Refuses every call from now on, and closes the files without a flush."""
        self.retire(reason)
        for segment in self.segments:
            segment.close_handles()

    def retire(self, reason: str) -> None:
        """Refuses every call from now on; slices that were handed out stay readable."""
        if self._offline_reason is None:
            self._offline_reason = reason
            self.producer_state.snapshots.withdraw()

    def fail(self, what: str, error: OSError) -> Exception:
        """Takes the directory offline unless only descriptors ran out; returns the error."""
        if is_out_of_descriptors(error):
            return ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.topic_partition}: {what}: {error}; raise the limit on open files",
            )
        return self.fail_halfway(what, error)

    def fail_halfway(self, what: str, error: OSError) -> StorageError:
        """Takes the directory offline, also if descriptors ran out; returns the error.

        For work that cannot be undone: the files have changed, and the state in memory has not.
        """
        failure = self.log_directory.fail(f"{what} ({self.topic_partition})", error)
        self.mark_offline(str(failure))
        return failure

    # Offsets

    @property
    def log_start_offset(self) -> int:
        """First offset that clients may read."""
        return self.watermarks.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self.watermarks.end.message_offset

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return self.watermarks.end

    @property
    def high_watermark(self) -> int:
        """End of the committed records."""
        return self.watermarks.high_watermark.message_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        return self.watermarks.last_stable_offset

    @property
    def recovery_point(self) -> int:
        """First offset that is not known to be on disk."""
        return self.watermarks.recovery_point

    @property
    def uncommitted_count(self) -> int:
        """Offsets between high watermark and log end; gaps of compaction count too."""
        return max(0, self.log_end_offset - self.high_watermark)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def has_log_start_above_first_segment(self) -> bool:
        first = self.segments.first
        return first is not None and self.log_start_offset > first.base_offset

    def offsets(self) -> LogOffsetSnapshot:
        """The four offsets at this moment."""
        return self.watermarks.snapshot()

    def set_high_watermark(self, metadata: LogOffsetMetadata) -> None:
        """Stores the high watermark as given.

        Raises:
            ValueError: It is negative.
        """
        self.watermarks.set_high_watermark(metadata)

    def update_high_watermark(self, offset: int) -> int:
        """Sets a follower's high watermark to the leader's, within this log; returns it."""
        return self.watermarks.update_high_watermark(offset)

    def maybe_increment_high_watermark(
        self, metadata: LogOffsetMetadata
    ) -> LogOffsetMetadata | None:
        """Raises a leader's high watermark, never lowers it; returns the old one if it changed.

        Raises:
            ValueError: It lies beyond the log end.
        """
        self.check_usable()
        try:
            return self.watermarks.maybe_increment_high_watermark(metadata)
        except OSError as error:
            raise self.fail("read", error) from error

    def fetch_high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its place, which is looked up if it is not known yet."""
        self.check_usable()
        try:
            return self.watermarks.resolve_high_watermark()
        except OSError as error:
            raise self.fail("read", error) from error

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset with its place."""
        self.check_usable()
        try:
            return self.watermarks.resolve_last_stable()
        except OSError as error:
            raise self.fail("read", error) from error

    def update_log_end_offset(self, offset: int) -> None:
        """Moves the log end; high watermark and recovery point never exceed it."""
        self.watermarks.update_end(offset)

    def update_log_start_offset(self, offset: int) -> None:
        """Sets the log start, and raises the high watermark to it if that is lower."""
        self.watermarks.update_log_start_offset(offset)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Hides the records below `offset`; returns whether anything changed.

        Raises:
            OffsetOutOfRangeError: It lies above the high watermark.
        """
        self.check_usable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: log start {offset} is above the high watermark"
                f" {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.watermarks.update_log_start_offset(offset)
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset_incremented(offset)
        return True

    # Appending and rolling

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Assigns offsets and appends.

        Args:
            records: Batches; a writable buffer is patched in place, a read-only one copied.
            leader_epoch: Epoch of this leader.
            origin: The writer.

        Raises:
            ApiError: The batches are refused, by its code; nothing is written.
            StorageError: The disk failed.
        """
        if self._offline_reason is not None:
            self.check_usable()
        try:
            if origin is AppendOrigin.CLIENT or origin is AppendOrigin.COORDINATOR:
                info = self._appender.append_single(records, leader_epoch, origin)
                if info is not None:
                    return info
            return self._appender.append_as_leader(records, leader_epoch, origin)
        except RecordTooLargeError:
            if self.on_append_rejected is not None:
                self.on_append_rejected(len(records))
            raise
        except OSError as error:
            raise self.fail("append", error) from error

    def append_unreplicated(
        self, records: Buffer, leader_epoch: int, origin: AppendOrigin
    ) -> LogAppendInfo:
        """`append_as_leader` without followers: the records are committed at once."""
        info = self.append_as_leader(records, leader_epoch=leader_epoch, origin=origin)
        self.watermarks.commit_end()
        return info

    def append_as_follower(
        self,
        records: Buffer,
        *,
        fetch_leader_epoch: int | None = None,
        refuses_gaps: bool = False,
    ) -> LogAppendInfo:
        """Appends batches that a leader sent, with the offsets that they have.

        Args:
            records: Whole batches; a partial one at the end is ignored.
            fetch_leader_epoch: The epoch the follower fetched under.
            refuses_gaps: Whether each batch must continue where the one before ends.

        Raises:
            CorruptRecordError: A checksum is wrong; nothing is written.
            InvalidRecordError: Leader epochs fall.
            OffsetsOutOfOrderError: The offsets do not increase, or have a gap.
            UnexpectedAppendOffsetError: The set starts below the log end.
            StorageError: The disk failed.
        """
        self.check_usable()
        try:
            return self._appender.append_as_follower(records, fetch_leader_epoch, refuses_gaps)
        except OSError as error:
            raise self.fail("append", error) from error

    def roll(self, expected_offset: int = 0) -> LogSegment:
        """Starts a new active segment at the log end, or at `expected_offset` if that is higher.

        Raises:
            InvariantViolation: There is a segment with data at or above it.
            OSError: The disk refused.
        """
        return rolling.roll(self, expected_offset)

    def new_segment(self, base_offset: int, *, stage: str = "") -> LogSegment:
        """Creates the files of a segment; the caller adds it to the log."""
        return rolling.new_segment(self, base_offset, stage)

    # Reading

    def read(
        self,
        start_offset: int,
        max_length: int,
        isolation: FetchIsolation,
        *,
        min_one_message: bool = True,
    ) -> FetchDataInfo:
        """Finds the bytes from the batch that contains `start_offset` on.

        Raises:
            OffsetOutOfRangeError: It lies outside [log start, log end].
            StorageError: The log is closed or its disk failed.
        """
        self.check_usable()
        try:
            return self._reader.read(start_offset, max_length, isolation, min_one_message)
        except OSError as error:
            raise self.fail("read", error) from error

    def collect_aborted_transactions(
        self, start_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """Aborted transactions that touch [start_offset, upper_offset)."""
        return self._reader.collect_aborted_transactions(start_offset, upper_offset)

    # Flushing

    @property
    def last_flush_ms(self) -> int:
        """When the last flush ended."""
        return self.flusher.last_flush_ms

    def flush(self, offset: int | None = None) -> None:
        """Makes everything below `offset` (the log end) durable before it returns.

        Raises:
            StorageError: The disk failed; the recovery point did not move.
        """
        self.check_usable()
        try:
            self.flusher.flush(self.log_end_offset if offset is None else offset)
        except OSError as error:
            raise self.fail("flush", error) from error

    def schedule_flush(self, offset: int) -> None:
        """Makes everything below `offset` durable in the background."""
        self.flusher.schedule(offset)

    # Truncating

    def truncate_to(self, offset: int) -> bool:
        """Removes the records at and above `offset`; returns whether there were any.

        A batch that contains `offset` is removed as a whole.

        Raises:
            ValueError: It is negative.
            StorageError: The disk failed.
        """
        return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; the next record gets `offset`.

        Raises:
            StorageError: The disk failed.
        """
        truncation.truncate_fully_and_start_at(self, offset)

    def truncate_steps(self, offset: int) -> Steps[bool]:
        """`truncate_to` in steps, the syncs apart; see `storage.log.truncation`."""
        return truncation.truncate_steps(self, offset)

    def restart_steps(self, offset: int) -> Steps[None]:
        """`truncate_fully_and_start_at` in steps, the syncs apart."""
        return truncation.restart_steps(self, offset)

    def rebuild_producer_state(self) -> None:
        """Brings the producer state to the log end: newest snapshot, then batch headers."""
        state, end, first = self.producer_state, self.log_end_offset, self.segments.first
        assert first is not None
        state.truncate_and_reload(
            self.log_start_offset, end, self.services.clock.now_ms(), oldest=first.base_offset
        )
        if state.map_end_offset < end:
            start = replay_start(state, self.segments, self.log_start_offset)
            replay(state, self.segments.from_offset(start), start, end)
        state.on_high_watermark_updated(self.high_watermark)

    def settle(self) -> None:
        """Completes a pending swap of segments, before their files change for another reason.

        Raises:
            StorageError: The disk failed.
        """
        swap = self.pending_swap
        if swap is not None and self.is_usable:
            try:
                swap.finish()
            except OSError as error:
                raise self.fail_halfway("clean", error) from error

    # Life

    def follow_directory(self, target: str) -> None:
        """Uses the new path of a renamed partition directory, e.g. of a topic being deleted."""
        self._directory = target
        self.name = name = os.path.basename(target)
        self.is_live = name == str(self.topic_partition)
        self.is_future = name.endswith(paths.FUTURE_DIR_SUFFIX)
        for segment in self.segments:
            segment.update_directory(target)
        self.producer_state.snapshots.follow_directory(target)
        self.witnesses.directory = target
        self.leader_epochs.path = os.path.join(target, paths.LEADER_EPOCH_CHECKPOINT)

    def close(self) -> None:
        """Flushes, writes a snapshot of the producers and closes all files.

        Raises:
            StorageError: The disk failed; the log was not closed in order.
        """
        try:
            self.close_files()
        except OSError as error:
            raise self.fail("close", error) from error

    def close_files(self) -> None:
        """Does the same as `close`, but does not take the data directory offline on failure.

        So the logs of a directory can be closed on several threads; the caller of these handles
        failures.

        Raises:
            OSError: The disk failed; the log was not closed in order.
        """
        if self._offline_reason is not None:
            return
        try:
            if self.pending_swap is not None:
                self.pending_swap.finish()
            self.producer_state.take_snapshot()
            self.leader_epochs.flush()
            self.active.on_become_inactive()
            self.flusher.flush(self.log_end_offset)
            for segment in self.segments:
                segment.close()
        except LogDataError as error:
            raise OSError(str(error)) from error
        self._offline_reason = "the log is closed"
