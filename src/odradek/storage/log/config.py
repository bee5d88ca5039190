"""Settings of a log and of all logs; resolved once at the border, replaced whole on change."""

from dataclasses import field

from odradek.storage.cleaning.config import CleanerConfig
from odradek.values import dataclass

__all__ = ["INT32_MAX", "INT64_MAX", "LogConfig", "LogManagerConfig"]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Topic-level settings; the comment gives the topic's name of each.

    Raises:
        ValueError: a value that no log could honour.
    """

    segment_bytes: int = 1 << 30  # segment.bytes: roll size. Invariant: positions fit in int32.
    segment_ms: int = 604_800_000  # segment.ms: roll age.
    segment_jitter_ms: int = 0  # segment.jitter.ms: largest random reduction of the roll age.
    segment_index_bytes: int = 10 << 20  # segment.index.bytes: preallocated size of an index.
    index_interval_bytes: int = 4096  # index.interval.bytes: log bytes between index entries.
    retention_ms: int = 604_800_000  # retention.ms: -1 keeps for ever.
    retention_bytes: int = -1  # retention.bytes: -1 means no limit.
    cleanup_delete: bool = True  # cleanup.policy contains "delete".
    cleanup_compact: bool = False  # cleanup.policy contains "compact".
    max_message_bytes: int = 1_048_588  # max.message.bytes: largest batch a client may append.
    compression_type: str = "producer"  # compression.type: codec to store with.
    compression_gzip_level: int = -1  # compression.gzip.level
    compression_lz4_level: int = 9  # compression.lz4.level
    compression_zstd_level: int = 3  # compression.zstd.level
    log_append_time: bool = False  # message.timestamp.type is LogAppendTime.
    timestamp_before_max_ms: int = INT64_MAX  # message.timestamp.before.max.ms
    timestamp_after_max_ms: int = INT64_MAX  # message.timestamp.after.max.ms
    flush_messages: int = INT64_MAX  # flush.messages: unflushed records that force a flush.
    flush_ms: int = INT64_MAX  # flush.ms: age of unflushed data that forces a flush.
    preallocate: bool = False  # preallocate: size the segment file in advance.
    file_delete_delay_ms: int = 60_000  # file.delete.delay.ms: from `.deleted` to removal.
    validate_compressed: bool = True  # produce.validate.compressed: walk compressed batches too.
    delete_retention_ms: int = 86_400_000  # delete.retention.ms: how long a tombstone stays.
    min_cleanable_dirty_ratio: float = 0.5  # min.cleanable.dirty.ratio: compact above it.
    min_compaction_lag_ms: int = 0  # min.compaction.lag.ms: younger records are left alone.
    max_compaction_lag_ms: int = INT64_MAX  # max.compaction.lag.ms: older ones are compacted.

    def __post_init__(self) -> None:
        if not 14 <= self.segment_bytes <= INT32_MAX:
            raise ValueError(f"segment.bytes={self.segment_bytes}: must be 14..{INT32_MAX}")
        if self.segment_index_bytes < 4:
            raise ValueError(f"segment.index.bytes={self.segment_index_bytes}: must be at least 4")
        if self.index_interval_bytes < 0:
            raise ValueError(f"index.interval.bytes={self.index_interval_bytes}: is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Broker-level settings; the comment gives the broker's name of each."""

    # num.recovery.threads.per.data.dir: logs opened, or closed, at once.
    recovery_threads_per_data_dir: int = 2
    # log.initial.task.delay.ms: first run of all periodic work.
    initial_task_delay_ms: int = 30_000
    # log.retention.check.interval.ms
    retention_check_interval_ms: int = 300_000
    # log.flush.scheduler.interval.ms: how often flush.ms is looked at; the largest means never.
    flush_scheduler_interval_ms: int = INT64_MAX
    # log.flush.offset.checkpoint.interval.ms
    flush_offset_checkpoint_interval_ms: int = 60_000
    # log.flush.start.offset.checkpoint.interval.ms
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    # producer.id.expiration.check.interval.ms
    producer_id_expiration_check_interval_ms: int = 600_000
    # log.cleaner.*
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
