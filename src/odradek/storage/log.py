"""The log of one partition: append, read, watermarks, roll.

Offsets of a log, in order::

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
          |                    |                   |                  |
      first visible      read_committed        committed        next to be written

    recovery_point <= log_end_offset: what lies below is on disk, not only in the page cache

A log belongs to one thread. Nothing here awaits; what may block (syncing) is handed to
`BackgroundTasks` with descriptors of its own, and its outcome comes back as a call. Readers on
other threads get a `FileSlice`, which stays valid while the log rolls, cleans and truncates.

An I/O error takes the whole data directory offline before the method returns (`LogDirectory`);
after it, every method that touches the log raises `StorageError`. In-memory state is then as it
was before the failed write, and the torn batch is left for recovery.

Retention is in `retention`, replacement of segments in `replacement`, loading in `loader`.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import NamedTuple

from crc32c import crc32c

from odradek.clock import Clock
from odradek.errors import (
    ApiError,
    ErrorCode,
    InvariantViolation,
    LogDataError,
    OffsetOutOfRangeError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from odradek.files import Disk
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    patch_offset_and_epoch,
)
from odradek.storage import paths
from odradek.storage.appends import AnalyzedSet, LogAppendInfo, analyze_records
from odradek.storage.background import BackgroundTasks
from odradek.storage.config import INT32_MAX, LogConfig
from odradek.storage.leader_epochs import LeaderEpochCache
from odradek.storage.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.offsets import LogOffsetMetadata, LogOffsetSnapshot
from odradek.storage.producer_replay import complete_transaction, marker_of, replay
from odradek.storage.producer_state import CachedBatch, ProducerStateManager
from odradek.storage.segment import FileSlice, LogSegment
from odradek.storage.segments import LogSegments
from odradek.storage.transaction_index import AbortedTransaction
from odradek.storage.validation import BatchValidator

__all__ = ["FetchDataInfo", "FetchIsolation", "Log", "LogServices"]

logger = logging.getLogger(__name__)


class FetchIsolation(Enum):
    """How far a reader may see; limits are exclusive."""

    LOG_END = "log-end"  # Followers.
    HIGH_WATERMARK = "high-watermark"  # Ordinary consumers.
    TXN_COMMITTED = "txn-committed"  # read_committed consumers; aborted transactions are listed.


class FetchDataInfo(NamedTuple):
    """What a read found."""

    offset_metadata: LogOffsetMetadata
    records: FileSlice | None  # None: nothing to read there now.
    first_entry_incomplete: bool = False
    aborted_transactions: list[AbortedTransaction] | None = None  # None unless TXN_COMMITTED.

    def read(self) -> bytes:
        """The bytes of the batches."""
        return b"" if self.records is None else self.records.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """What every log of a process shares."""

    disk: Disk
    clock: Clock
    random: Random
    tasks: BackgroundTasks
    producer_id_expiration_ms: int = 86_400_000


class _PendingFlush:
    """A flush that runs elsewhere."""

    __slots__ = ("upto",)

    def __init__(self, upto: int) -> None:
        # Recovery point once it is done. Lowered by truncations meanwhile.
        self.upto = upto


class Log:
    """An open log. Made by `loader.load_log`."""

    __slots__ = (
        "_config",
        "_directory",
        "_end",
        "_high_watermark",
        "_log_start_offset",
        "_offline_reason",
        "_pending_flushes",
        "_recovery_point",
        "_services",
        "_stable_place",
        "_validator",
        "last_flush_ms",
        "leader_epochs",
        "log_directory",
        "on_append_rejected",
        "producer_state",
        "segments",
        "topic_partition",
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
        recovery_point: int,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.topic_partition = topic_partition
        self._config = config
        self._validator = BatchValidator(config)
        self.log_directory = log_directory
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self._directory = directory
        self._services = services
        self._offline_reason: str | None = None
        self._pending_flushes: list[_PendingFlush] = []
        self.last_flush_ms = services.clock.now_ms()
        # Called with the size of a set that was refused as too large, for the rejected-bytes meter.
        self.on_append_rejected: Callable[[int], None] | None = None
        active = self.active
        self._end = LogOffsetMetadata(log_end_offset, active.base_offset, active.size)
        self._recovery_point = min(recovery_point, log_end_offset)
        self._log_start_offset = log_start_offset
        self._high_watermark = LogOffsetMetadata(log_start_offset)
        # Place of the last stable offset while a transaction holds it back; resolved on demand.
        self._stable_place: LogOffsetMetadata | None = None
        self.update_log_start_offset(log_start_offset)

    def __repr__(self) -> str:
        return f"Log({self._directory}, {self.offsets()})"

    # Identity and state

    @property
    def directory(self) -> str:
        """The partition directory."""
        return self._directory

    @property
    def name(self) -> str:
        """Name of the partition directory."""
        return os.path.basename(self._directory)

    @property
    def is_live(self) -> bool:
        """Whether the directory bears the plain name of its partition."""
        return self.name == str(self.topic_partition)

    @property
    def config(self) -> LogConfig:
        """The topic's settings; a change holds from the next append on."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._validator = BatchValidator(config)

    @property
    def active(self) -> LogSegment:
        """The segment that is appended to."""
        active = self.segments.active
        assert active is not None
        return active

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""
        return self._end.message_offset

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return self._end

    @property
    def log_start_offset(self) -> int:
        """First offset that clients may read."""
        return self._log_start_offset

    @property
    def has_log_start_above_first_segment(self) -> bool:
        first = self.segments.first
        return first is not None and self._log_start_offset > first.base_offset

    @property
    def recovery_point(self) -> int:
        """First offset that is not known to be on disk."""
        return self._recovery_point

    @property
    def size_in_bytes(self) -> int:
        return self.segments.size_in_bytes()

    @property
    def services(self) -> LogServices:
        return self._services

    def offsets(self) -> LogOffsetSnapshot:
        """The four offsets at this moment."""
        return LogOffsetSnapshot(
            self._log_start_offset,
            self._end.message_offset,
            self._high_watermark.message_offset,
            self.last_stable_offset,
        )

    def mark_offline(self, reason: str) -> None:
        """Refuses everything from now on; the files are given up as they are."""
        self.retire(reason)
        for segment in self.segments:
            segment.close_handles()

    def retire(self, reason: str) -> None:
        """Refuses everything from now on; who holds a slice may still read it."""
        if self._offline_reason is None:
            self._offline_reason = reason

    def check_usable(self) -> None:
        """Raises:
        StorageError: The log is closed or its directory offline.
        """
        if self._offline_reason is not None:
            raise StorageError(
                self.log_directory.path, f"{self.topic_partition}: {self._offline_reason}"
            )

    def fail(self, what: str, error: OSError) -> Exception:
        """Takes the directory offline, unless only descriptors ran out; returns what to raise."""
        if is_out_of_descriptors(error):
            return ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.topic_partition}: {what}: {error}; raise the limit on open files",
            )
        return self.fail_halfway(what, error)

    def fail_halfway(self, what: str, error: OSError) -> StorageError:
        """Takes the directory offline, whatever ran out; returns what to raise.

        For work that cannot be left undone: the files have changed, and memory could not follow.
        """
        failure = self.log_directory.fail(f"{what} ({self.topic_partition})", error)
        self.mark_offline(str(failure))
        return failure

    # High watermark

    @property
    def high_watermark(self) -> int:
        """End of what is committed."""
        return self._high_watermark.message_offset

    @property
    def uncommitted_count(self) -> int:
        """Offsets between high watermark and log end; gaps of compaction count too."""
        return max(0, self._end.message_offset - self._high_watermark.message_offset)

    def set_high_watermark(self, metadata: LogOffsetMetadata) -> None:
        """Stores the high watermark as given.

        Raises:
            ValueError: It is negative.
        """
        if metadata.message_offset < 0:
            raise ValueError(f"high watermark {metadata.message_offset} is negative")
        self._high_watermark = metadata
        self.producer_state.on_high_watermark_updated(metadata.message_offset)

    def update_high_watermark(self, offset: int) -> int:
        """A follower's way: takes what the leader says, within this log; returns what was set."""
        if offset >= self._end.message_offset:
            self.set_high_watermark(self._end)
        else:
            self.set_high_watermark(LogOffsetMetadata(max(offset, self._log_start_offset)))
        return self._high_watermark.message_offset

    def maybe_increment_high_watermark(
        self, metadata: LogOffsetMetadata
    ) -> LogOffsetMetadata | None:
        """A leader's way: only upwards; returns the old one if it changed.

        Raises:
            ValueError: It lies beyond the log end.
        """
        if metadata.message_offset > self._end.message_offset:
            raise ValueError(
                f"high watermark {metadata.message_offset} is beyond the log end"
                f" {self._end.message_offset} of {self.topic_partition}"
            )
        old = self.fetch_high_watermark_metadata()
        if old.message_offset < metadata.message_offset or (
            # Same offset on a newer segment: the log rolled, and the position with it.
            old.message_offset == metadata.message_offset and old.is_on_older_segment(metadata)
        ):
            self.set_high_watermark(metadata)
            return old
        return None

    def fetch_high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its place, which is looked up once if it is not known."""
        self.check_usable()
        if self._high_watermark.is_message_offset_only:
            self._high_watermark = self._resolve(self._high_watermark.message_offset)
        return self._high_watermark

    def _resolve(self, offset: int) -> LogOffsetMetadata:
        found = self.read(offset, 1, FetchIsolation.LOG_END, min_one_message=False).offset_metadata
        # In a gap at the end the log end answers: the place is right, but no offset was passed.
        return found._replace(message_offset=offset)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        unstable = self.producer_state.first_unstable_offset
        high_watermark = self._high_watermark.message_offset
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self._log_start_offset)

    def fetch_last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset with its place."""
        offset = self.last_stable_offset
        if offset == self._high_watermark.message_offset:
            return self.fetch_high_watermark_metadata()
        if self._stable_place is None or self._stable_place.message_offset != offset:
            self._stable_place = self._resolve(offset)
        return self._stable_place

    # Log start and log end

    def update_log_end_offset(self, offset: int) -> None:
        """Moves the log end; high watermark and recovery point never exceed it."""
        active = self.active
        self._end = end = LogOffsetMetadata(offset, active.base_offset, active.size)
        if self._high_watermark.message_offset >= offset:
            self.set_high_watermark(end)
        if self._recovery_point > offset:
            self._recovery_point = offset

    def update_log_start_offset(self, offset: int) -> None:
        """Sets the log start, and takes high watermark and recovery point along."""
        self._log_start_offset = offset
        if self._high_watermark.message_offset < offset:
            self.update_high_watermark(offset)
        if self._recovery_point < offset:
            self._recovery_point = offset

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Hides the records below `offset`; returns whether anything changed.

        Raises:
            OffsetOutOfRangeError: It lies above the high watermark.
        """
        self.check_usable()
        if offset > self._high_watermark.message_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: log start {offset} is above the high watermark"
                f" {self._high_watermark.message_offset}"
            )
        if offset <= self._log_start_offset:
            return False
        self.update_log_start_offset(offset)
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset_incremented(offset)
        return True

    # Appending

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Assigns offsets and appends.

        Args:
            records: Batches; a writable buffer is patched where it is, another one copied.
            leader_epoch: Epoch of this leader.
            origin: Who writes.

        Raises:
            ApiError: The batches are refused, by its code; nothing is written.
            StorageError: The disk failed.
        """
        if self._offline_reason is not None:
            self.check_usable()
        try:
            if origin is AppendOrigin.CLIENT:
                info = self._append_plain_batch(records, leader_epoch)
                if info is not None:
                    return info
            return self._append_as_leader(records, leader_epoch, origin)
        except RecordTooLargeError:
            if self.on_append_rejected is not None:
                self.on_append_rejected(len(records))
            raise
        except OSError as error:
            raise self.fail("append", error) from error

    def _append_plain_batch(self, records: Buffer, leader_epoch: int) -> LogAppendInfo | None:
        """The everyday append in one go: a single, plain batch without a producer id.

        What the general way does in five calls and as many containers costs as much as the write
        itself. Returns None, with nothing touched, for any batch that is not of this kind or that
        has anything wrong with it: the general way judges it.
        """
        size = len(records)
        config = self._config
        validator = self._validator
        if (
            size < HEADER_SIZE
            or size > config.max_message_bytes
            or size > config.segment_bytes
            or not validator.checks_structure_only
            or isinstance(records, bytes)
            or (isinstance(records, memoryview) and records.readonly)
        ):
            return None
        (
            base_offset, length, _, magic, crc, attributes, last_delta,
            base_timestamp, max_timestamp, producer_id, _, _, count,
        ) = HEADER.unpack_from(records)  # fmt: skip
        if (
            magic != CURRENT_MAGIC
            or length + LOG_OVERHEAD != size
            or base_offset
            or attributes
            or producer_id >= 0
            or count <= 0
            or last_delta + 1 != count
            or crc32c(memoryview(records)[ATTRIBUTES_POSITION:]) != crc
            or not validator.has_plain_structure(records, count, base_timestamp, max_timestamp)
        ):
            return None
        first_offset = self._end.message_offset
        last_offset = first_offset + last_delta
        patch_offset_and_epoch(records, 0, first_offset, leader_epoch)
        self.leader_epochs.assign(leader_epoch, first_offset)
        segment = self.segments.active
        assert segment is not None
        if segment.should_roll(
            size,
            last_offset,
            max_timestamp,
            self._services.clock.now_ms(),
            config.segment_bytes,
            config.segment_ms,
        ):
            segment = self.roll(first_offset)
        segment.append_batch(records, last_offset, max_timestamp)
        self._end = LogOffsetMetadata(last_offset + 1, segment.base_offset, segment.size)
        self.producer_state.map_end_offset = last_offset + 1
        info = LogAppendInfo()
        info.first_offset = first_offset
        info.last_offset = last_offset
        info.max_timestamp = max_timestamp
        info.offset_of_max_timestamp = last_offset
        info.last_offset_of_first_batch = last_delta
        info.shallow_count = 1
        info.valid_bytes = size
        info.leader_epoch = leader_epoch
        info.log_start_offset = self._log_start_offset
        if last_offset + 1 - self._recovery_point >= config.flush_messages:
            self.flush()
        return info

    def _append_as_leader(
        self, records: Buffer, leader_epoch: int, origin: AppendOrigin
    ) -> LogAppendInfo:
        config = self._config
        analyzed = analyze_records(records, origin, max_message_bytes=config.max_message_bytes)
        info, batches, _ = analyzed
        info.log_start_offset = self._log_start_offset
        if not batches:
            return info
        if isinstance(records, bytes) or (isinstance(records, memoryview) and records.readonly):
            records = bytearray(records)
        now_ms = self._services.clock.now_ms()
        first_offset = offset = self._end.message_offset
        max_timestamp = offset_of_max_timestamp = -1
        rebuilt: list[Buffer] | None = None
        written: list[tuple[int, int, int]] = []  # (last offset, max timestamp, size)
        for position, header in batches:
            size = header.length + LOG_OVERHEAD
            batch_max_timestamp, new_bytes = self._validator.validate_and_assign(
                records,
                position,
                header,
                base_offset=offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                origin=origin,
            )
            if new_bytes is not None:
                if rebuilt is None:
                    rebuilt = [memoryview(records)[:position]]
                rebuilt.append(new_bytes)
                size = len(new_bytes)
                if size > config.max_message_bytes:
                    raise RecordTooLargeError(
                        f"a batch has {size} bytes after recompression,"
                        f" max.message.bytes allows {config.max_message_bytes}"
                    )
            elif rebuilt is not None:
                rebuilt.append(memoryview(records)[position : position + size])
            offset += header.last_offset_delta + 1
            if batch_max_timestamp > max_timestamp:
                max_timestamp = batch_max_timestamp
                offset_of_max_timestamp = offset - 1
            written.append((offset - 1, batch_max_timestamp, size))
        if rebuilt is not None:
            records = b"".join(rebuilt)
        elif len(records) != info.valid_bytes:
            records = memoryview(records)[: info.valid_bytes]
        info.first_offset = first_offset
        info.last_offset = offset - 1
        info.max_timestamp = max_timestamp
        info.offset_of_max_timestamp = offset_of_max_timestamp
        info.leader_epoch = leader_epoch
        if config.log_append_time:
            info.log_append_time = now_ms
        self.leader_epochs.assign(leader_epoch, first_offset)
        return self._write(records, analyzed, written, now_ms, origin, first_offset)

    def append_as_follower(
        self, records: Buffer, *, fetch_leader_epoch: int | None = None
    ) -> LogAppendInfo:
        """Appends what a leader sent, offsets and all.

        Args:
            records: Whole batches; a torn one at the end is left out.
            fetch_leader_epoch: The epoch the follower fetched under.

        Raises:
            CorruptRecordError: A checksum is wrong; nothing is written.
            OffsetsOutOfOrderError: The offsets do not increase.
            UnexpectedAppendOffsetError: The set starts below the log end.
            StorageError: The disk failed.
        """
        self.check_usable()
        try:
            return self._append_as_follower(records, fetch_leader_epoch)
        except OSError as error:
            raise self.fail("append", error) from error

    def _append_as_follower(self, records: Buffer, fetch_leader_epoch: int | None) -> LogAppendInfo:
        analyzed = analyze_records(
            records,
            AppendOrigin.REPLICATION,
            max_message_bytes=self.config.max_message_bytes,
            fetch_leader_epoch=fetch_leader_epoch,
        )
        info = analyzed.info
        info.log_start_offset = self._log_start_offset
        if not analyzed.batches:
            return info
        self._check_follower_offsets(analyzed)
        if len(records) != info.valid_bytes:
            records = memoryview(records)[: info.valid_bytes]
        for _, header in analyzed.batches:
            self._assign_epoch_of(header)
        written = [
            (header.last_offset, header.max_timestamp, header.size)
            for _, header in analyzed.batches
        ]
        now_ms = self._services.clock.now_ms()
        return self._write(records, analyzed, written, now_ms, AppendOrigin.REPLICATION, -1)

    def _check_follower_offsets(self, analyzed: AnalyzedSet) -> None:
        info, next_offset = analyzed.info, -1
        for _, header in analyzed.batches:
            # Old formats do not say where a batch starts, so only their ends can be compared.
            starts_behind = header.magic < CURRENT_MAGIC or header.base_offset >= next_offset
            if header.last_offset_delta < 0 or not starts_behind or not info.offsets_monotonic:
                raise OffsetsOutOfOrderError(
                    f"{self.topic_partition}: the offsets of the set do not increase:"
                    f" {[(h.base_offset, h.last_offset) for _, h in analyzed.batches[:10]]}"
                )
            next_offset = header.next_offset
        first = info.first_or_last_offset_of_first_batch
        if first < self._end.message_offset:
            raise UnexpectedAppendOffsetError(
                f"{self.topic_partition}: the set starts at {first}, expected"
                f" {self._end.message_offset} or more; first offsets:"
                f" {[header.base_offset for _, header in analyzed.batches[:10]]}",
                first_offset=first,
                last_offset=info.last_offset,
            )

    def _assign_epoch_of(self, header: BatchHeader) -> None:
        if header.magic >= CURRENT_MAGIC:
            if header.leader_epoch >= 0:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)
        elif self.leader_epochs.entries:
            logger.warning(
                "%s: a batch of format v%d at offset %d ends the leader epochs known here",
                self.topic_partition, header.magic, header.base_offset,
            )  # fmt: skip
            self.leader_epochs.clear()

    def _write(
        self,
        records: Buffer,
        analyzed: AnalyzedSet,
        written: list[tuple[int, int, int]],
        now_ms: int,
        origin: AppendOrigin,
        first_offset: int,
    ) -> LogAppendInfo:
        """Steps 6 to 12 of an append: the same for leaders and followers."""
        info, config = analyzed.info, self._config
        size = len(records)
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"{self.topic_partition}: the set has {size} bytes,"
                f" segment.bytes allows {config.segment_bytes}"
            )
        segment = self.segments.active
        assert segment is not None
        if segment.should_roll(
            size,
            info.last_offset,
            info.max_timestamp,
            now_ms,
            config.segment_bytes,
            config.segment_ms,
        ):
            segment = self._roll_for(info)
        if analyzed.has_producers and origin is not AppendOrigin.REPLICATION:
            duplicate = self._check_producers(records, analyzed, written, origin)
            if duplicate is not None:
                return self._answer_duplicate(info, duplicate)
        segment.append(
            records,
            written,
            largest_offset=info.last_offset,
            largest_timestamp=info.max_timestamp,
        )
        end = info.last_offset + 1
        # At once, so that offsets still grow if the transaction index cannot be written.
        self._end = LogOffsetMetadata(end, segment.base_offset, segment.size)
        if analyzed.has_producers:
            try:
                self._update_producers(records, segment, analyzed, written, first_offset)
            except OSError as error:
                raise self.fail_halfway("append to the transaction index", error) from error
        self.producer_state.map_end_offset = end
        if end - self._recovery_point >= config.flush_messages:
            self.flush()
        return info

    def _check_producers(
        self,
        records: Buffer,
        analyzed: AnalyzedSet,
        written: list[tuple[int, int, int]],
        origin: AppendOrigin,
    ) -> CachedBatch | None:
        """Whether the producers may write this; returns the batch that a retry repeats."""
        position = 0
        for (_, header), (_, _, size) in zip(analyzed.batches, written, strict=True):
            if header.producer_id >= 0:
                if not header.is_control:
                    duplicate = self.producer_state.check_append(header, origin)
                    if duplicate is not None:
                        return duplicate
                elif (marker := marker_of(memoryview(records)[position:], header)) is not None:
                    self.producer_state.check_marker(header, marker, origin)
            position += size
        return None

    def _answer_duplicate(self, info: LogAppendInfo, duplicate: CachedBatch) -> LogAppendInfo:
        info.first_offset = duplicate.first_offset
        info.last_offset = duplicate.last_offset
        info.max_timestamp = duplicate.timestamp
        if self._config.log_append_time:
            info.log_append_time = duplicate.timestamp
        info.is_duplicate = True
        return info

    def _update_producers(
        self,
        records: Buffer,
        segment: LogSegment,
        analyzed: AnalyzedSet,
        written: list[tuple[int, int, int]],
        first_offset: int,
    ) -> None:
        """Folds the batches that are in the segment now into the producer state.

        `first_offset` is the leader's first assigned offset; -1 means the headers have their own.
        """
        state = self.producer_state
        position = 0
        for (_, header), (last_offset, max_timestamp, size) in zip(
            analyzed.batches, written, strict=True
        ):
            if header.producer_id >= 0:
                if header.max_timestamp != max_timestamp:
                    header = header._replace(max_timestamp=max_timestamp)
                completed = state.apply_append(
                    header,
                    first_offset=header.base_offset if first_offset < 0 else first_offset,
                    last_offset=last_offset,
                    marker=marker_of(memoryview(records)[position : position + size], header)
                    if header.is_control
                    else None,
                )
                if completed is not None:
                    complete_transaction(state, completed, segment.transaction_index)
            position += size
            if first_offset >= 0:
                first_offset = last_offset + 1

    # Rolling

    def _roll_for(self, info: LogAppendInfo) -> LogSegment:
        expected = info.first_offset
        if expected is None:  # An old format does not say; this much at most lies before its last.
            expected = info.last_offset - INT32_MAX
        return self.roll(expected)

    def roll(self, expected_offset: int = 0) -> LogSegment:
        """Starts a new active segment at the log end, or at `expected_offset` if that is higher.

        Raises:
            InvariantViolation: There is a segment with data at or above it.
            OSError: The disk refused.
        """
        base = max(expected_offset, self._end.message_offset)
        active = self.active
        if self.segments.get(base) is not None:
            if active.base_offset != base or active.size > 0:
                raise InvariantViolation(
                    f"{self.topic_partition}: cannot roll to {base}: a segment with data is there"
                )
            # An index without room for one entry reports full while its segment is empty.
            self.segments.remove(active)
            active.delete_if_exists()
        elif base < active.base_offset:
            raise InvariantViolation(
                f"{self.topic_partition}: cannot roll to {base}, below the active segment"
                f" {active.base_offset}"
            )
        else:
            self._remove_stray_files(base)
            active.on_become_inactive()
        self.producer_state.update_map_end_offset(base)
        self.producer_state.take_snapshot(sync=False)
        segment = self.new_segment(base)
        self.segments.add(segment)
        self.update_log_end_offset(self._end.message_offset)
        self.schedule_flush(base)
        return segment

    def new_segment(self, base_offset: int, *, stage: str = "") -> LogSegment:
        """Creates the files of a segment; the caller puts it in its place."""
        config, services = self.config, self._services
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        return LogSegment(
            self._directory,
            base_offset,
            config=config,
            disk=services.disk,
            now_ms=services.clock.now_ms(),
            roll_jitter_ms=services.random.randrange(jitter) if jitter > 0 else 0,
            stage=stage,
            create=True,
        )

    def _remove_stray_files(self, base_offset: int) -> None:
        for suffix in (paths.LOG_SUFFIX, *paths.INDEX_SUFFIXES):
            path = paths.segment_path(self._directory, base_offset, suffix)
            if os.path.exists(path):
                logger.warning("%s: removing the stray file %s", self.topic_partition, path)
                self._services.disk.unlink(path)

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
            return self._read(start_offset, max_length, isolation, min_one_message)
        except OSError as error:
            raise self.fail("read", error) from error

    def _read(
        self, start_offset: int, max_length: int, isolation: FetchIsolation, min_one_message: bool
    ) -> FetchDataInfo:
        end = self._end
        committed = isolation is FetchIsolation.TXN_COMMITTED
        if start_offset == end.message_offset:
            return FetchDataInfo(end, None, aborted_transactions=[] if committed else None)
        segment = self.segments.floor(start_offset)
        if start_offset > end.message_offset or start_offset < self._log_start_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: offset {start_offset} is outside"
                f" [{self._log_start_offset}, {end.message_offset}]"
            )
        if segment is None:
            segment = self.segments.first
        if isolation is FetchIsolation.LOG_END:
            limit = end
        elif committed:
            limit = self.fetch_last_stable_offset_metadata()
        else:
            limit = self.fetch_high_watermark_metadata()
        if start_offset >= limit.message_offset:
            place = limit if start_offset == limit.message_offset else self._resolve(start_offset)
            return FetchDataInfo(place, None, aborted_transactions=[] if committed else None)
        while segment is not None:
            if limit.segment_base_offset == segment.base_offset:
                # A cleaner pass may have made the file shorter than it was when this was noted.
                max_position = min(limit.relative_position, segment.size)
            elif limit.segment_base_offset > segment.base_offset:
                max_position = segment.size
            else:
                break
            found = segment.read(
                start_offset,
                max_length,
                max_position=max_position,
                min_one_message=min_one_message,
            )
            if found is not None:
                if found.records.length == 0 and found.offset_metadata.relative_position >= (
                    max_position
                ):
                    break  # The next batch lies at or beyond the limit.
                return FetchDataInfo(
                    found.offset_metadata,
                    found.records,
                    found.first_entry_incomplete,
                    self._aborted_in(start_offset, segment, found.records) if committed else None,
                )
            segment = self.segments.higher(segment.base_offset)
        place = end if segment is None else limit
        return FetchDataInfo(place, None, aborted_transactions=[] if committed else None)

    def _aborted_in(
        self, start_offset: int, segment: LogSegment, records: FileSlice
    ) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the fetched range."""
        upper = None
        if segment.offset_index.is_loaded:
            upper = segment.offset_index.get().fetch_upper_bound_offset(
                records.position, records.length
            )
        following = self.segments.higher(segment.base_offset)
        if upper is None:
            upper = following.base_offset if following else self._end.message_offset
        return self.collect_aborted_transactions(start_offset, upper)

    def collect_aborted_transactions(
        self, start_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """Aborted transactions that touch [start_offset, upper_offset)."""
        aborted: list[AbortedTransaction] = []
        for segment in self.segments.from_offset(start_offset):
            found, complete = segment.transaction_index.collect_aborted(start_offset, upper_offset)
            aborted.extend(found)
            if complete:
                break
        return aborted

    # Flushing

    @property
    def unflushed_messages(self) -> int:
        return self._end.message_offset - self._recovery_point

    def flush(self, offset: int | None = None) -> None:
        """Makes everything below `offset` (the log end) durable before it returns.

        Raises:
            StorageError: The disk failed; the recovery point did not move.
        """
        self.check_usable()
        upto = self._end.message_offset if offset is None else offset
        if upto <= self._recovery_point:
            return
        try:
            self._flush_work(upto)()
        except OSError as error:
            raise self.fail("flush", error) from error
        self._flushed(upto)

    def schedule_flush(self, offset: int) -> None:
        """Makes everything below `offset` durable in the background."""
        if offset <= self._recovery_point:
            return
        directory = self._directory
        work = self._flush_work(offset)
        flush = _PendingFlush(offset)
        self._pending_flushes.append(flush)

        def done(error: BaseException | None) -> None:
            self._pending_flushes.remove(flush)
            if isinstance(error, FileNotFoundError) and self._directory != directory:
                logger.info("%s: renamed during a flush, which counts for nothing", directory)
            elif isinstance(error, OSError):
                self.fail("flush", error)
            elif error is None and self._offline_reason is None:
                self._flushed(flush.upto)

        self._services.tasks.submit(work, done)

    def _flush_work(self, offset: int) -> Callable[[], None]:
        """What has to be synced, as work that touches nothing but descriptors of its own.

        The log may roll, truncate or delete these very segments while the work runs elsewhere.
        """
        disk = self._services.disk
        directory, recovery_point = self._directory, self._recovery_point
        segments = self.segments.between(recovery_point, offset)
        # Snapshots come with the segments that were rolled to, this one possibly just now.
        bases = {offset, *(s.base_offset for s in segments if s.base_offset > recovery_point)}
        names = [
            path
            for base in sorted(bases)
            if os.path.exists(path := paths.segment_path(directory, base, paths.SNAPSHOT_SUFFIX))
        ]
        # The name of a transaction index may be younger than its segment.
        has_new_names = bool(names) or any(
            s.base_offset >= recovery_point or s.transaction_index.file_exists() for s in segments
        )
        descriptors: list[int] = []
        try:
            for segment in segments:
                names.extend(segment.files())
            descriptors.extend(disk.open(name, os.O_RDONLY) for name in names)
        except OSError:
            for fd in descriptors:
                disk.close(fd)
            raise

        def work() -> None:
            try:
                for fd in descriptors:
                    disk.fsync(fd)
            finally:
                for fd in descriptors:
                    disk.close(fd)
            if has_new_names:
                disk.fsync_dir(directory)

        return work

    def _flushed(self, offset: int) -> None:
        # Never beyond the end as it is now: a truncation may have come between.
        self._recovery_point = max(self._recovery_point, min(offset, self._end.message_offset))
        self.last_flush_ms = self._services.clock.now_ms()

    # Truncation

    def truncate_to(self, offset: int) -> bool:
        """Removes the records at and above `offset`; returns whether there were any.

        The batch that contains it goes as a whole.

        Raises:
            ValueError: It is negative.
            StorageError: The disk failed.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to {offset}")
        self.check_usable()
        try:
            if offset >= self._end.message_offset:
                # An epoch that never got a record must go all the same (KAFKA-10706).
                self.leader_epochs.truncate_from_end(self._end.message_offset)
                self.leader_epochs.flush()
                return False
            first = self.segments.first
            assert first is not None
            if first.base_offset > offset:
                self.truncate_fully_and_start_at(offset)
                return True
            # From the end, so that a crash on the way leaves a log without holes.
            later = [s for s in self.segments if s.base_offset > offset][::-1]
            self.remove_segments(later)
            if later:  # Durably: a crash must not bring them back behind a file that was cut.
                self._services.disk.fsync_dir(self._directory)
            self.active.truncate_to(offset, now_ms=self._services.clock.now_ms())
            self._stable_place = None
            self._limit_pending_flushes(offset)
            self.update_log_end_offset(offset)
            is_start_lowered = offset < self._log_start_offset
            self._log_start_offset = min(offset, self._log_start_offset)
            self.leader_epochs.truncate_from_end(offset)
            self.leader_epochs.flush()
            self.rebuild_producer_state()
        except OSError as error:
            raise self.fail_halfway("truncate", error) from error
        self._checkpoint_truncation(is_start_lowered)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; the next record gets `offset`.

        Raises:
            StorageError: The disk failed.
        """
        self.check_usable()
        try:
            self.remove_segments(list(self.segments)[::-1])
            self.segments.add(self.new_segment(offset))
            # Old names that came back after a crash would stand below the recovery point.
            self._services.disk.fsync_dir(self._directory)
            self._stable_place = None
            self._limit_pending_flushes(offset)
            self.update_log_end_offset(offset)
            self.leader_epochs.clear()
            self.producer_state.truncate_fully_and_start_at(offset)
            is_start_lowered = offset < self._log_start_offset
            self._log_start_offset = offset
            self.set_high_watermark(self._end)
            self._recovery_point = offset
        except OSError as error:
            raise self.fail_halfway("truncate", error) from error
        self._checkpoint_truncation(is_start_lowered)

    def _checkpoint_truncation(self, is_start_lowered: bool) -> None:
        """Before the next append: a start after a crash must not take the old ends for true."""
        self.log_directory.checkpoint_recovery_points()
        if is_start_lowered:  # A log that ends below its checkpointed start would be emptied.
            self.log_directory.checkpoint_log_starts()

    def _limit_pending_flushes(self, offset: int) -> None:
        """What is appended from `offset` on is not what the flushes under way have seen."""
        for flush in self._pending_flushes:
            flush.upto = min(flush.upto, offset)

    def rebuild_producer_state(self) -> None:
        """Brings the producer state to the log end: newest snapshot, then batch headers."""
        end = self._end.message_offset
        self.producer_state.truncate_and_reload(
            self._log_start_offset, end, self._services.clock.now_ms()
        )
        start = self.producer_state.map_end_offset
        if start < end:
            replay(self.producer_state, self.segments.from_offset(start), start, end)
        self.producer_state.on_high_watermark_updated(self._high_watermark.message_offset)

    # Removing segments

    def remove_segments(self, segments: list[LogSegment]) -> None:
        """Takes segments out of the log; their files vanish after the delete delay."""
        for segment in segments:
            self.segments.remove(segment)
            self.delete_segment_later(segment)

    def delete_segment_later(self, segment: LogSegment) -> None:
        """Renames a segment's files and removes them once no reader can hold them any more."""
        segment.change_stage(paths.DELETED_SUFFIX)
        state, base = self.producer_state, segment.base_offset
        state.rename_snapshot_deleted(base)

        def delete() -> None:
            try:
                segment.delete_if_exists()
                state.delete_snapshot(base, renamed=True)
            except OSError as error:
                self.fail("delete segment", error)

        self._services.tasks.call_later(self.config.file_delete_delay_ms, delete)

    # Life

    def rename_directory(self, name: str) -> None:
        """Renames the partition directory, e.g. when its topic is deleted.

        Raises:
            StorageError: The disk failed.
        """
        self.check_usable()
        target = os.path.join(self.log_directory.path, name)
        try:
            self._services.disk.rename(self._directory, target)
            self._services.disk.fsync_dir(self.log_directory.path)
        except OSError as error:
            raise self.fail("rename directory", error) from error
        self._directory = target
        for segment in self.segments:
            segment.update_directory(target)
        self.producer_state.directory = target
        self.leader_epochs.path = os.path.join(target, paths.LEADER_EPOCH_CHECKPOINT)

    def close(self) -> None:
        """Flushes, takes a snapshot of the producers and closes all files.

        Raises:
            StorageError: The disk failed; the log was not closed in order.
        """
        try:
            self.close_files()
        except OSError as error:
            raise self.fail("close", error) from error

    def close_files(self) -> None:
        """Does what `close` does, and leaves the data directory alone if the disk fails.

        Logs of one directory may so be closed on several threads; who waits for them judges.

        Raises:
            OSError: The disk failed; the log was not closed in order.
        """
        if self._offline_reason is not None:
            return
        try:
            self.producer_state.take_snapshot()
            self.leader_epochs.flush()
            self.active.on_become_inactive()
            end = self._end.message_offset
            if end > self._recovery_point:
                self._flush_work(end)()
                self._flushed(end)
            for segment in self.segments:
                segment.close()
        except LogDataError as error:
            raise OSError(str(error)) from error
        self._offline_reason = "the log is closed"
