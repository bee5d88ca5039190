"""Appending a set of batches to a log, as its leader or as a follower.

Steps, as in the specification of the log:

| step                                                  | leader | follower |
|-------------------------------------------------------|--------|----------|
| analyse headers, sizes, checksums (`append_analysis`) | yes    | yes      |
| validate records, assign offsets (`validation`)       | yes    |          |
| offsets increase and start at or behind the end       |        | yes      |
| leader epochs                                         | yes    | yes      |
| roll if the segment has no room                       | yes    | yes      |
| duplicates, gaps, zombies (`producers/state`)         | yes    |          |
| write, move the log end, fold producers in, flush     | yes    | yes      |

`append_single` takes a leader through the same steps in one function, for a single, plain batch of
a client or a coordinator; with a producer id, too, if its sequence continues that of the producer's
last batch. It writes and returns the same as `append_as_leader`, or returns None without a change,
so that the caller uses `append_as_leader`.
"""

import logging
from struct import Struct
from typing import TYPE_CHECKING, Final

from odradek.errors import (
    InvalidRecordError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
)
from odradek.marks import mypyc_attr
from odradek.model import AppendOrigin
from odradek.records.batch import (
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    MAX_SEQUENCE,
    BatchHeader,
    Buffer,
)
from odradek.storage.log.append_analysis import AnalyzedSet, LogAppendInfo, analyze_records
from odradek.storage.log.config import INT32_MAX, LogConfig
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.validation import BatchValidator
from odradek.storage.producers.entry import ProducerEntry
from odradek.storage.producers.replay import apply_producers, check_producers
from odradek.storage.producers.state import CachedBatch
from odradek.storage.segments.segment import LogSegment

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

__all__ = ["Appender"]

logger = logging.getLogger(__name__)

# Offset, length and leader epoch: the first fields of a header, none under its checksum.
_PACK_PLACE: Final = Struct(">qii").pack_into


@mypyc_attr(allow_interpreted_subclasses=True)
class Appender:
    """The writing side of one log; `Log` checks that it is usable and handles failures."""

    __slots__ = (
        "_clock",
        "_config",
        "_flush_messages",
        "_keeps_plain_bytes",
        "_leader_epochs",
        "_log",
        "_producer_state",
        "_segments",
        "_validator",
        "_watermarks",
    )

    def __init__(self, log: "Log", config: LogConfig) -> None:
        self._log = log
        self._segments = log.segments
        self._watermarks = log.watermarks
        self._leader_epochs = log.leader_epochs
        self._producer_state = log.producer_state
        self._clock = log.services.clock
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Uses new settings from the next append on."""
        self._config = config
        self._validator = validator = BatchValidator(config, self._log.services.inline_budget)
        self._flush_messages = config.flush_messages
        # The largest batch for `append_single`; -1 if the topic's settings change plain batches.
        self._keeps_plain_bytes = -1
        if validator.keeps_plain_batches:
            self._keeps_plain_bytes = min(config.max_message_bytes, config.segment_bytes)

    # As a leader

    def append_single(
        self, records: Buffer, leader_epoch: int, origin: AppendOrigin
    ) -> LogAppendInfo | None:
        """Appends a single, plain batch without a producer, or that continues its sequence.

        The five calls and as many containers of `append_as_leader` cost as much as the write
        itself. Returns None, without a change, for a batch of any other kind and for an invalid
        one: `append_as_leader` judges it.
        """
        size = len(records)
        if size > self._keeps_plain_bytes:
            return None
        now_ms = self._clock.now_ms()
        found = self._validator.check_plain_batch(records, now_ms)
        if found is None:
            return None
        last_delta, max_timestamp, producer_id, producer_epoch, sequence = found
        producer: ProducerEntry | None = None
        if producer_id >= 0:
            producer = self._producer_state.producers.get(producer_id)
            if (
                producer is None
                or origin is not AppendOrigin.CLIENT
                or not producer.is_continued_by(producer_epoch, sequence)
            ):
                return None
        watermarks = self._watermarks
        first_offset = watermarks.end.message_offset
        last_offset = first_offset + last_delta
        _PACK_PLACE(records, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
        self._leader_epochs.assign(leader_epoch, first_offset)
        segment = self._segments.active
        assert segment is not None
        config = self._config
        if segment.should_roll(
            size,
            last_offset,
            max_timestamp,
            now_ms,
            config.segment_bytes,
            config.roll_ms,
        ):
            segment = self._log.roll(first_offset)
        segment.append_single(records, first_offset, last_offset, max_timestamp)
        end = last_offset + 1
        watermarks.end = LogOffsetMetadata(end, segment.base_offset, segment.size)
        self._producer_state.map_end_offset = end
        if producer is not None:
            if self._producer_state.views:
                producer = self._producer_state.own(producer)
            producer.last_timestamp = max_timestamp
            producer.batches.append(
                CachedBatch(
                    (sequence + last_delta) & MAX_SEQUENCE, last_offset, last_delta, max_timestamp
                )
            )
        info = LogAppendInfo()
        info.first_offset = first_offset
        info.last_offset = last_offset
        info.max_timestamp = max_timestamp
        info.offset_of_max_timestamp = last_offset
        info.last_offset_of_first_batch = last_delta
        info.shallow_count = 1
        info.valid_bytes = size
        info.leader_epoch = leader_epoch
        info.log_start_offset = watermarks.log_start_offset
        if end - watermarks.recovery_point >= self._flush_messages:
            self._log.flush()
        return info

    def append_as_leader(
        self, records: Buffer, leader_epoch: int, origin: AppendOrigin
    ) -> LogAppendInfo:
        """Assigns offsets to any set of batches and appends it."""
        config = self._config
        analyzed = analyze_records(records, origin, max_message_bytes=config.max_message_bytes)
        info, batches, _ = analyzed
        info.log_start_offset = self._watermarks.log_start_offset
        if not batches:
            return info
        if isinstance(records, bytes) or (isinstance(records, memoryview) and records.readonly):
            records = bytearray(records)
        now_ms = self._clock.now_ms()
        first_offset = offset = self._watermarks.end.message_offset
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
        self._leader_epochs.assign(leader_epoch, first_offset)
        return self._write(records, analyzed, written, now_ms, origin, first_offset)

    # As a follower

    def append_as_follower(
        self, records: Buffer, fetch_leader_epoch: int | None, refuses_gaps: bool
    ) -> LogAppendInfo:
        """Appends batches that a leader sent, with the offsets that they have."""
        analyzed = analyze_records(
            records,
            AppendOrigin.REPLICATION,
            max_message_bytes=self._config.max_message_bytes,
            fetch_leader_epoch=fetch_leader_epoch,
        )
        info = analyzed.info
        info.log_start_offset = self._watermarks.log_start_offset
        if not analyzed.batches:
            return info
        self._check_offsets(analyzed)
        self._check_epochs(analyzed)
        if refuses_gaps:
            self._check_no_gaps(analyzed)
        if len(records) != info.valid_bytes:
            records = memoryview(records)[: info.valid_bytes]
        for _, header in analyzed.batches:
            self._assign_epoch_of(header)
        written = [
            (header.last_offset, header.max_timestamp, header.size)
            for _, header in analyzed.batches
        ]
        now_ms = self._clock.now_ms()
        return self._write(records, analyzed, written, now_ms, AppendOrigin.REPLICATION, -1)

    def _check_offsets(self, analyzed: AnalyzedSet) -> None:
        info, next_offset = analyzed.info, -1
        for _, header in analyzed.batches:
            # Headers of old formats have no first offset, so only their last ones are compared.
            starts_behind = header.magic < CURRENT_MAGIC or header.base_offset >= next_offset
            if header.last_offset_delta < 0 or not starts_behind or not info.offsets_monotonic:
                raise OffsetsOutOfOrderError(
                    f"{self._log.topic_partition}: the offsets of the set do not increase:"
                    f" {[(h.base_offset, h.last_offset) for _, h in analyzed.batches[:10]]}"
                )
            next_offset = header.next_offset
        first = info.first_or_last_offset_of_first_batch
        end = self._watermarks.end.message_offset
        if first < end:
            raise UnexpectedAppendOffsetError(
                f"{self._log.topic_partition}: the set starts at {first}, expected"
                f" {end} or more; first offsets:"
                f" {[header.base_offset for _, header in analyzed.batches[:10]]}",
                first_offset=first,
                last_offset=info.last_offset,
            )

    def _check_epochs(self, analyzed: AnalyzedSet) -> None:
        """Checks that leader epochs do not fall: they would erase those that the log has."""
        latest = self._leader_epochs.latest_epoch
        latest = -1 if latest is None else latest
        for _, header in analyzed.batches:
            if header.magic < CURRENT_MAGIC or header.leader_epoch < 0:
                continue
            if header.leader_epoch < latest:
                raise InvalidRecordError(
                    f"{self._log.topic_partition}: the batch at offset {header.base_offset} is of"
                    f" leader epoch {header.leader_epoch}, expected {latest} or later"
                )
            latest = header.leader_epoch

    def _check_no_gaps(self, analyzed: AnalyzedSet) -> None:
        expected = self._watermarks.end.message_offset
        for _, header in analyzed.batches:
            if header.magic >= CURRENT_MAGIC and header.base_offset != expected:
                raise OffsetsOutOfOrderError(
                    f"{self._log.topic_partition}: a batch starts at {header.base_offset},"
                    f" expected {expected}: there are no gaps in a topic that is not compacted"
                )
            expected = header.next_offset

    def _assign_epoch_of(self, header: BatchHeader) -> None:
        if header.magic >= CURRENT_MAGIC:
            if header.leader_epoch >= 0:
                self._leader_epochs.assign(header.leader_epoch, header.base_offset)
        elif self._leader_epochs.entries:
            logger.warning(
                "%s: a batch of format v%d at offset %d has no leader epoch: epochs are cleared",
                self._log.topic_partition, header.magic, header.base_offset,
            )  # fmt: skip
            self._leader_epochs.clear()

    # As either

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
        info, config, state = analyzed.info, self._config, self._producer_state
        size = len(records)
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"{self._log.topic_partition}: the set has {size} bytes,"
                f" segment.bytes allows {config.segment_bytes}"
            )
        segment = self._segments.active
        assert segment is not None
        if segment.should_roll(
            size,
            info.last_offset,
            info.max_timestamp,
            now_ms,
            config.segment_bytes,
            config.roll_ms,
        ):
            segment = self._roll_for(info)
        if analyzed.has_producers and origin is not AppendOrigin.REPLICATION:
            duplicate = check_producers(state, records, analyzed.batches, written, origin)
            if duplicate is not None:
                return self._answer_duplicate(info, duplicate)
        segment.append(
            records,
            written,
            largest_offset=info.last_offset,
            largest_timestamp=info.max_timestamp,
        )
        end = info.last_offset + 1
        # Before the transaction index, so that offsets still grow if that cannot be written.
        self._watermarks.end = LogOffsetMetadata(end, segment.base_offset, segment.size)
        if analyzed.has_producers:
            try:
                apply_producers(
                    state,
                    records,
                    analyzed.batches,
                    written,
                    first_offset=first_offset,
                    index=segment.transaction_index,
                )
            except OSError as error:
                raise self._log.fail_halfway("append to the transaction index", error) from error
        state.map_end_offset = end
        if end - self._watermarks.recovery_point >= config.flush_messages:
            self._log.flush()
        return info

    def _roll_for(self, info: LogAppendInfo) -> LogSegment:
        expected = info.first_offset
        if expected is None:  # An old format has none: the lowest it can be, given the last one.
            expected = info.last_offset - INT32_MAX
        return self._log.roll(expected)

    def _answer_duplicate(self, info: LogAppendInfo, duplicate: CachedBatch) -> LogAppendInfo:
        info.first_offset = duplicate.first_offset
        info.last_offset = duplicate.last_offset
        info.max_timestamp = duplicate.timestamp
        if self._config.log_append_time:
            info.log_append_time = duplicate.timestamp
        info.is_duplicate = True
        return info
