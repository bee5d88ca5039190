"""Validation: a leader's checks and changes of a batch before it is stored.

This is the one module of the append path that reads records. In the ordinary case (same codec,
plain timestamps) it overwrites twelve bytes, offset and epoch, and leaves the producer's bytes and
their CRC alone. A batch is rebuilt only if the topic's codec differs from its own, or if its
offsets are not 0, 1, 2, …

| what                         | the header decides          | the records are walked        |
|------------------------------|-----------------------------|-------------------------------|
| counts, flags, sequences     | always                      |                               |
| sizes, offset deltas         |                             | plain batches, and compressed |
|                              |                             | ones unless switched off      |
| a key in every record        |                             | compacted topics              |
| timestamps within the window | LogAppendTime, or no window | otherwise                     |
| other codec                  |                             | always                        |
"""

from functools import partial

from odradek.errors import InvalidRecordError, InvalidTimestampError, OdradekError
from odradek.model import AppendOrigin
from odradek.records.batch import (
    APPEND_TIME_MASK,
    CODEC_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    WritableBuffer,
    iter_headers,
    patch_max_timestamp,
    patch_offset_and_epoch,
)
from odradek.records.builder import rebuild_batch
from odradek.records.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, Codec, decompress
from odradek.records.walk import (
    NULL_KEY,
    TIMESTAMP_OUT_OF_RANGE,
    PlainBatch,
    check_plain_batch,
    walk_records,
)
from odradek.storage.log.config import INT64_MAX, LogConfig
from odradek.storage.log.expansion import (
    INLINE_REBUILD_BYTES,
    ExpandedRecords,
    ExpansionDeferredError,
    InlineBudget,
    rebuilds_of,
    walks_of,
)

__all__ = ["BatchValidator"]

INT64_MIN = -(2**63)

_LAST_CODEC = int(Codec.ZSTD)
# Attribute bits that only the broker itself sets.
_NOT_FOR_CLIENTS = CONTROL_MASK | DELETE_HORIZON_MASK

_TARGET_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class BatchValidator:
    """The checks of one topic's settings; replaced when they change."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_budget",
        "_has_window",
        "_is_compacted",
        "_log_append_time",
        "_must_walk_carefully",
        "_must_walk_compressed",
        "_target",
        "_target_level",
        "keeps_plain_batches",
    )

    def __init__(self, config: LogConfig, budget: InlineBudget | None = None) -> None:
        self._budget = budget or InlineBudget()
        self._log_append_time = config.log_append_time
        self._is_compacted = config.cleanup_compact
        self._before_max_ms = config.timestamp_before_max_ms
        self._after_max_ms = config.timestamp_after_max_ms
        self._has_window = not config.log_append_time and (
            self._after_max_ms != INT64_MAX or self._before_max_ms != INT64_MAX
        )
        # None keeps the codec of each batch.
        self._target = (
            None
            if config.compression_type == "producer"
            else _TARGET_CODECS[config.compression_type]
        )
        self._target_level = _level(self._target, config)
        # Records are judged one by one, not only for their structure.
        self._must_walk_carefully = config.cleanup_compact or self._has_window
        self._must_walk_compressed = config.validate_compressed or self._must_walk_carefully
        # Whether a valid plain batch is stored with no change but its offset and epoch.
        self.keeps_plain_batches = not self._log_append_time and (
            self._target is None or self._target is Codec.NONE
        )

    def check_plain_batch(self, batch: Buffer, now_ms: int) -> PlainBatch | None:
        """Checks a plain batch that can be stored unchanged; returns None for any other batch.

        Only for a topic that keeps plain batches.
        """
        if not self._has_window:
            return check_plain_batch(batch, INT64_MIN, INT64_MAX, self._is_compacted)
        return check_plain_batch(
            batch,
            now_ms - self._before_max_ms,
            min(INT64_MAX, now_ms + self._after_max_ms),
            self._is_compacted,
        )

    def validate_and_assign(
        self,
        records: WritableBuffer,
        position: int,
        header: BatchHeader,
        *,
        base_offset: int,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
    ) -> tuple[int, bytearray | None]:
        """Checks the batch at `position`, except its CRC, and assigns its offset and epoch.

        Returns:
            The largest timestamp, and the batch's new bytes if it had to be rebuilt; otherwise it
            was patched in place.

        Raises:
            InvalidRecordError: A rule of the format or of the topic is broken.
            InvalidTimestampError: A record's time lies outside the topic's window.
        """
        _, _, _, magic, _, attributes, delta, _, max_timestamp, producer_id, _, sequence, count = (
            header
        )
        if magic != CURRENT_MAGIC:
            raise InvalidRecordError(f"the batch has format v{magic}, expected v2")
        if origin is AppendOrigin.CLIENT and (
            count <= 0
            or delta + 1 != count
            or attributes & _NOT_FOR_CLIENTS
            or (producer_id > -1 and sequence < 0)
        ):
            raise _client_error(header)
        codec = attributes & CODEC_MASK
        if codec > _LAST_CODEC:
            raise InvalidRecordError(f"codec {codec} does not exist, expected 0 to {_LAST_CODEC}")
        must_recompress = (
            self._target is not None and self._target != codec and not attributes & CONTROL_MASK
        )
        must_stamp = self._log_append_time or attributes & APPEND_TIME_MASK
        if not codec or self._must_walk_compressed or must_recompress:
            walked_timestamp, consecutive = (
                self._walk_compressed(
                    records, position, header, codec, now_ms, origin, must_recompress
                )
                if codec
                else self._walk(records, position, header, codec, now_ms)
            )
            if walked_timestamp != max_timestamp and not attributes & APPEND_TIME_MASK:
                max_timestamp = walked_timestamp
                must_stamp = True
            if must_recompress or not consecutive:
                rebuilt = rebuilds_of(records).get(position)
                if rebuilt is None:
                    if (
                        not codec
                        and origin is AppendOrigin.CLIENT
                        and header.length > INLINE_REBUILD_BYTES
                    ):
                        raise self._deferred("the batch is to be written anew", now_ms)
                    rebuilt = self._rebuild(records, position, header)
                stamped = self._stamp(rebuilt, 0, header, max_timestamp, now_ms)
                patch_offset_and_epoch(rebuilt, 0, base_offset, leader_epoch)
                return stamped, rebuilt
        if must_stamp:
            max_timestamp = self._stamp(records, position, header, max_timestamp, now_ms)
        patch_offset_and_epoch(records, position, base_offset, leader_epoch)
        return max_timestamp, None

    def _walk_compressed(
        self,
        records: WritableBuffer,
        position: int,
        header: BatchHeader,
        codec: int,
        now_ms: int,
        origin: AppendOrigin,
        must_recompress: bool,
    ) -> tuple[int, bool]:
        """As `_walk`, on the loop: expands a client's batch within the budget.

        Raises:
            ExpansionDeferredError: The batch is too large for that, or invalid: a thread decides.
        """
        known = walks_of(records)
        if known is not None and (walked := known.get(position)) is not None:
            if isinstance(walked, OdradekError):
                raise walked
            return walked
        if origin is not AppendOrigin.CLIENT:
            return self._walk(records, position, header, codec, now_ms)
        start, end = position + HEADER_SIZE, position + header.length + LOG_OVERHEAD
        budget = self._budget
        if budget.left_bytes <= 0:
            raise self._deferred("its request has expanded enough on the loop", now_ms)
        try:
            region = decompress(
                Codec(codec),
                memoryview(records)[start:end],
                max_size=min(budget.left_bytes, DEFAULT_MAX_DECOMPRESSED_SIZE),
                strict=True,
            )
        except InvalidRecordError as error:
            budget.take(budget.left_bytes)  # The attempt took as long as expanding them.
            raise self._deferred(str(error), now_ms) from None
        budget.take(len(region))
        is_small = len(region) <= INLINE_REBUILD_BYTES
        if must_recompress and not is_small:
            raise self._deferred("the batch is to be compressed anew", now_ms)
        walked = self._walk(records, position, header, codec, now_ms, region)
        if not (walked[1] or is_small):
            raise self._deferred("the batch is to be numbered anew", now_ms)
        return walked

    def _deferred(self, message: str, now_ms: int) -> ExpansionDeferredError:
        return ExpansionDeferredError(message, partial(self._expand, now_ms=now_ms))

    def _expand(self, records: ExpandedRecords, *, now_ms: int) -> None:
        """Walks all compressed batches and rebuilds those that need it, on a thread."""
        for position, header in iter_headers(records):
            codec = header.attributes & CODEC_MASK
            must_recompress = (
                self._target is not None
                and self._target != codec
                and not header.attributes & CONTROL_MASK
            )
            try:
                walked = self._walk(records, position, header, codec, now_ms)
                if must_recompress or not walked[1]:
                    records.rebuilds[position] = self._rebuild(records, position, header)
                if codec:
                    records.walks[position] = walked
            except OdradekError as error:
                records.walks[position] = error

    def _rebuild(self, records: Buffer, position: int, header: BatchHeader) -> bytearray:
        """Builds the batch in the topic's codec, its records numbered from 0 on."""
        batch = memoryview(records)[position : position + header.length + LOG_OVERHEAD]
        codec = Codec(header.attributes & CODEC_MASK) if self._target is None else self._target
        return rebuild_batch(batch, header, codec=codec, level=self._target_level)

    def _walk(
        self,
        records: WritableBuffer,
        position: int,
        header: BatchHeader,
        codec: int,
        now_ms: int,
        region: Buffer | None = None,
    ) -> tuple[int, bool]:
        """Largest timestamp of the records and whether their offsets are consecutive.

        Raises:
            InvalidRecordError: A record is malformed or lacks a key.
            InvalidTimestampError: A record lies outside the window.
        """
        earliest, latest = INT64_MIN, INT64_MAX
        if self._has_window:
            earliest = now_ms - self._before_max_ms
            latest = min(INT64_MAX, now_ms + self._after_max_ms)
            if header.attributes & APPEND_TIME_MASK:
                # Then every record has the largest timestamp, whatever its delta says.
                if not earliest <= header.max_timestamp <= latest:
                    _refuse([(0, TIMESTAMP_OUT_OF_RANGE)], earliest, latest)
                earliest, latest = INT64_MIN, INT64_MAX
        start, end = position + HEADER_SIZE, position + header.length + LOG_OVERHEAD
        if codec:
            if region is None:
                region = decompress(
                    Codec(codec),
                    memoryview(records)[start:end],
                    max_size=DEFAULT_MAX_DECOMPRESSED_SIZE,  # As for readers of stored batches.
                    strict=True,
                )
            records, start, end = memoryview(region), 0, len(region)
        max_timestamp, _, consecutive, bad = walk_records(
            records,
            start,
            end,
            header.record_count,
            header.base_timestamp,
            earliest,
            latest,
            self._is_compacted and not header.attributes & CONTROL_MASK,
        )
        if bad:
            _refuse(bad, earliest, latest)
        return max_timestamp, consecutive

    def _stamp(
        self,
        records: WritableBuffer,
        position: int,
        header: BatchHeader,
        max_timestamp: int,
        now_ms: int,
    ) -> int:
        """Sets timestamp type and largest timestamp by the topic's settings; returns the latter.

        Raises:
            InvalidTimestampError: The producer marked its batch as stamped by the broker.
        """
        if header.attributes & APPEND_TIME_MASK and (
            self._log_append_time or header.max_timestamp == NO_TIMESTAMP
        ):
            raise InvalidTimestampError("a producer must not set the timestamp type LogAppendTime")
        if self._log_append_time:
            max_timestamp = now_ms
        patch_max_timestamp(
            records, position, log_append_time=self._log_append_time, max_timestamp=max_timestamp
        )
        return max_timestamp


def _client_error(header: BatchHeader) -> InvalidRecordError:
    """The error for the rule of client batches that a header breaks."""
    count = header.record_count
    if count <= 0 or header.last_offset_delta + 1 != count:
        return InvalidRecordError(
            f"the batch says {count} records and a last offset delta of"
            f" {header.last_offset_delta}, expected at least one and a delta of count - 1"
        )
    if header.attributes & CONTROL_MASK:
        return InvalidRecordError("clients must not write control batches")
    if header.attributes & DELETE_HORIZON_MASK:
        return InvalidRecordError("only the log cleaner sets a delete horizon (attribute bit 6)")
    return InvalidRecordError(
        f"producer {header.producer_id} sent base sequence {header.base_sequence},"
        " expected 0 or more"
    )


def _refuse(bad: list[tuple[int, int]], earliest: int, latest: int) -> None:
    errors = [
        (
            index,
            "a record of a compacted topic needs a key"
            if reason == NULL_KEY
            else f"the timestamp is outside [{earliest}, {latest}]",
        )
        for index, reason in bad
    ]
    message = f"record {errors[0][0]}: {errors[0][1]}"
    if all(reason == NULL_KEY for _, reason in bad):
        raise InvalidRecordError(message, errors)
    raise InvalidTimestampError(message, errors)


def _level(codec: Codec | None, config: LogConfig) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None
