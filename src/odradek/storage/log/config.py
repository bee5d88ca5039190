"""Settings of a log and of all logs; resolved once at the border, replaced whole on change.

A setting of a topic's logs is declared here once: the topic's key, and the broker's key for its
default. Further settings of a topic are in `odradek.broker.config.topic`, which also derives the
broker's side from these declarations.
"""

from dataclasses import field
from typing import Final

from odradek.config import (
    AtLeast,
    EachOneOf,
    Kind,
    NonEmpty,
    Rule,
    Value,
    check_declared,
    inherited_key,
    plain_field,
    synonym,
)
from odradek.lazy_dataclass import dataclass
from odradek.storage.cleaning.config import CleanerConfig

__all__ = ["INT32_MAX", "INT64_MAX", "LogConfig", "LogManagerConfig"]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMP_DIFFERENCE: Final = (synonym("message.timestamp.difference.max.ms"),)


def _is_gzip_level(value: Value) -> bool:
    return isinstance(value, int) and (value == -1 or 1 <= value <= 9)


def _is_retention(value: Value) -> bool:
    return isinstance(value, int) and (value == -1 or value >= 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of the logs of a topic.

    Raises:
        ConfigError: A value is out of range.
    """

    segment_bytes: int = inherited_key(
        "segment.bytes",
        broker="log.segment.bytes",
        default=1 << 30,
        at_least=14,
        dynamic=True,
        doc="Size at which a segment is closed and the next one begun.",
    )
    segment_ms: int = inherited_key(
        "segment.ms",
        broker="log.roll.ms",
        kind=Kind.LONG,
        default=None,
        at_least=1,
        dynamic=True,
        synonyms=(synonym("log.roll.hours", kind=Kind.INT, scale=_HOUR_MS, default=168),),
        doc="Age at which a segment is closed even if it is not full.",
    )
    segment_jitter_ms: int = inherited_key(
        "segment.jitter.ms",
        broker="log.roll.jitter.ms",
        kind=Kind.LONG,
        default=None,
        at_least=0,
        dynamic=True,
        synonyms=(synonym("log.roll.jitter.hours", kind=Kind.INT, scale=_HOUR_MS, default=0),),
        doc="Largest random reduction of that age, so that segments do not all close at once.",
    )
    segment_index_bytes: int = inherited_key(
        "segment.index.bytes",
        broker="log.index.size.max.bytes",
        default=10 << 20,
        at_least=4,
        dynamic=True,
        doc="Space that is preallocated for each index of a segment.",
    )
    index_interval_bytes: int = inherited_key(
        "index.interval.bytes",
        broker="log.index.interval.bytes",
        default=4096,
        at_least=0,
        dynamic=True,
        doc="Bytes of a log between two entries of its index.",
    )
    # Unlike a broker, a topic may ask for nothing to be kept.
    retention_ms: int = inherited_key(
        "retention.ms",
        broker="log.retention.ms",
        topic_checks=(AtLeast(-1),),
        kind=Kind.LONG,
        default=None,
        checks=(Rule("-1 or at least 1", _is_retention),),
        dynamic=True,
        synonyms=(
            synonym("log.retention.minutes", kind=Kind.INT, scale=_MINUTE_MS),
            synonym("log.retention.hours", kind=Kind.INT, scale=_HOUR_MS, default=168),
        ),
        agreed=True,
        doc="How long a segment is kept, by its largest timestamp; -1: for ever.",
    )
    retention_bytes: int = inherited_key(
        "retention.bytes",
        broker="log.retention.bytes",
        kind=Kind.LONG,
        default=-1,
        dynamic=True,
        agreed=True,
        doc="Size of a partition above which its oldest segments are deleted; -1: no limit.",
    )
    cleanup_policy: tuple[str, ...] = inherited_key(
        "cleanup.policy",
        broker="log.cleanup.policy",
        default=("delete",),
        checks=(NonEmpty(), EachOneOf(("delete", "compact"))),
        dynamic=True,
        agreed=True,
        doc="The treatment of old segments: delete them, keep the last value of each key, or both.",
    )
    max_message_bytes: int = inherited_key(
        "max.message.bytes",
        broker="message.max.bytes",
        default=1_048_588,
        at_least=0,
        dynamic=True,
        agreed=True,
        doc="Largest batch of records that is accepted, after compression.",
    )
    compression_type: str = inherited_key(
        "compression.type",
        broker="compression.type",
        default="producer",
        one_of=_COMPRESSION_TYPES,
        dynamic=True,
        agreed=True,
        doc="Codec in which batches are stored; `producer` keeps the codec of the producer.",
    )
    compression_gzip_level: int = inherited_key(
        "compression.gzip.level",
        broker="compression.gzip.level",
        default=-1,
        checks=(Rule("-1 or 1 to 9", _is_gzip_level),),
        dynamic=True,
        doc="Level if `compression.type` is gzip; -1: the library's.",
    )
    compression_lz4_level: int = inherited_key(
        "compression.lz4.level",
        broker="compression.lz4.level",
        default=9,
        between=(1, 17),
        dynamic=True,
        doc="Level if `compression.type` is lz4.",
    )
    compression_zstd_level: int = inherited_key(
        "compression.zstd.level",
        broker="compression.zstd.level",
        default=3,
        between=(-131072, 22),
        dynamic=True,
        doc="Level if `compression.type` is zstd.",
    )
    timestamp_type: str = inherited_key(
        "message.timestamp.type",
        broker="log.message.timestamp.type",
        default="CreateTime",
        one_of=("CreateTime", "LogAppendTime"),
        dynamic=True,
        agreed=True,
        doc="Whether a record keeps the producer's timestamp or gets the broker's.",
    )
    timestamp_before_max_ms: int = inherited_key(
        "message.timestamp.before.max.ms",
        broker="log.message.timestamp.before.max.ms",
        topic_synonyms=_TIMESTAMP_DIFFERENCE,
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=0,
        dynamic=True,
        synonyms=(synonym("log.message.timestamp.difference.max.ms"),),
        agreed=True,
        doc="How far a producer's timestamp may lie before the broker's time.",
    )
    timestamp_after_max_ms: int = inherited_key(
        "message.timestamp.after.max.ms",
        broker="log.message.timestamp.after.max.ms",
        topic_synonyms=_TIMESTAMP_DIFFERENCE,
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=0,
        dynamic=True,
        synonyms=(synonym("log.message.timestamp.difference.max.ms"),),
        agreed=True,
        doc="How far a producer's timestamp may lie after the broker's time.",
    )
    flush_messages: int = inherited_key(
        "flush.messages",
        broker="log.flush.interval.messages",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=1,
        dynamic=True,
        doc="Records that may wait before the log is forced to disk.",
    )
    flush_ms: int = inherited_key(
        "flush.ms",
        broker="log.flush.interval.ms",
        kind=Kind.LONG,
        default=None,
        at_least=0,
        dynamic=True,
        synonyms=(synonym("log.flush.scheduler.interval.ms", kind=Kind.LONG, default=INT64_MAX),),
        doc="How long records may wait before the log is forced to disk.",
    )
    preallocate: bool = inherited_key(
        "preallocate",
        broker="log.preallocate",
        default=False,
        dynamic=True,
        doc="Whether a segment's file gets its full size when it is created.",
    )
    file_delete_delay_ms: int = inherited_key(
        "file.delete.delay.ms",
        broker="log.segment.delete.delay.ms",
        kind=Kind.LONG,
        default=60_000,
        at_least=0,
        dynamic=True,
        doc="How long a file that is no longer part of a log stays on disk.",
    )
    delete_retention_ms: int = inherited_key(
        "delete.retention.ms",
        broker="log.cleaner.delete.retention.ms",
        kind=Kind.LONG,
        default=86_400_000,
        at_least=0,
        dynamic=True,
        agreed=True,
        doc="How long the tombstone of a deleted key stays in a compacted log.",
    )
    min_cleanable_dirty_ratio: float = inherited_key(
        "min.cleanable.dirty.ratio",
        broker="log.cleaner.min.cleanable.ratio",
        default=0.5,
        between=(0, 1),
        dynamic=True,
        doc="Share of a compacted log that must be new before it is compacted again.",
    )
    min_compaction_lag_ms: int = inherited_key(
        "min.compaction.lag.ms",
        broker="log.cleaner.min.compaction.lag.ms",
        kind=Kind.LONG,
        default=0,
        at_least=0,
        dynamic=True,
        doc="How long a record is safe from compaction.",
    )
    max_compaction_lag_ms: int = inherited_key(
        "max.compaction.lag.ms",
        broker="log.cleaner.max.compaction.lag.ms",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=1,
        dynamic=True,
        doc="How long a record may remain uncompacted.",
    )
    # produce.validate.compressed, a setting of the broker: whether compressed batches are walked.
    validate_compressed: bool = plain_field(True)

    # Derived from the above.
    cleanup_delete: bool = field(init=False, repr=False, compare=False)
    cleanup_compact: bool = field(init=False, repr=False, compare=False)
    log_append_time: bool = field(init=False, repr=False, compare=False)
    # A compacted log rolls early enough for its records to be compacted in time.
    roll_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_declared(self)
        is_compacted = "compact" in self.cleanup_policy
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms)
        derive = object.__setattr__
        derive(self, "cleanup_delete", "delete" in self.cleanup_policy)
        derive(self, "cleanup_compact", is_compacted)
        derive(self, "log_append_time", self.timestamp_type == "LogAppendTime")
        derive(self, "roll_ms", roll_ms if is_compacted else self.segment_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Broker-level settings; the comment gives the broker's name of each."""

    # num.recovery.threads.per.data.dir: logs opened, or closed, at once.
    recovery_threads_per_data_dir: int = 2
    # log.initial.task.delay.ms: first run of all periodic work.
    initial_task_delay_ms: int = 30_000
    # log.retention.check.interval.ms
    retention_check_interval_ms: int = 300_000
    # log.flush.scheduler.interval.ms: how often flush.ms is checked; the largest value means never.
    flush_scheduler_interval_ms: int = INT64_MAX
    # log.flush.offset.checkpoint.interval.ms
    flush_offset_checkpoint_interval_ms: int = 60_000
    # log.flush.start.offset.checkpoint.interval.ms
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    # producer.id.expiration.check.interval.ms
    producer_id_expiration_check_interval_ms: int = 600_000
    # log.cleaner.*
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
