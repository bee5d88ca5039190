"""The broker's defaults of what each topic may set for itself.

Every field here has a twin of the same name in `odradek.broker.config.topic`, which takes kind,
checks and documentation from here: the two never disagree.
"""

from typing import Final

from odradek.config import EachOneOf, Kind, NonEmpty, Rule, Value, key, synonym
from odradek.errors import ConfigError
from odradek.storage.log.config import INT64_MAX
from odradek.values import dataclass

__all__ = ["COMPRESSION_TYPES", "TopicDefaults"]

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


def _is_gzip_level(value: Value) -> bool:
    return isinstance(value, int) and (value == -1 or 1 <= value <= 9)


def _is_retention(value: Value) -> bool:
    return isinstance(value, int) and (value == -1 or value >= 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """Defaults of topics.

    What counts for a topic that does not set the key itself.
    """

    segment_bytes: int = key(
        "log.segment.bytes",
        default=1 << 30,
        at_least=14,
        dynamic=True,
        doc="Size at which a segment is closed and the next one begun.",
    )
    segment_ms: int = key(
        "log.roll.ms",
        kind=Kind.LONG,
        default=None,
        at_least=1,
        dynamic=True,
        synonyms=(synonym("log.roll.hours", kind=Kind.INT, scale=_HOUR_MS, default=168),),
        doc="Age at which a segment is closed even if it is not full.",
    )
    segment_jitter_ms: int = key(
        "log.roll.jitter.ms",
        kind=Kind.LONG,
        default=None,
        at_least=0,
        dynamic=True,
        synonyms=(synonym("log.roll.jitter.hours", kind=Kind.INT, scale=_HOUR_MS, default=0),),
        doc="Largest random reduction of that age, so that segments do not all close at once.",
    )
    segment_index_bytes: int = key(
        "log.index.size.max.bytes",
        default=10 << 20,
        at_least=4,
        dynamic=True,
        doc="Room that is set aside for each index of a segment.",
    )
    index_interval_bytes: int = key(
        "log.index.interval.bytes",
        default=4096,
        at_least=0,
        dynamic=True,
        doc="Bytes of a log between two entries of its index.",
    )
    retention_ms: int = key(
        "log.retention.ms",
        kind=Kind.LONG,
        default=None,
        checks=(Rule("-1 or at least 1", _is_retention),),
        dynamic=True,
        synonyms=(
            synonym("log.retention.minutes", kind=Kind.INT, scale=_MINUTE_MS),
            synonym("log.retention.hours", kind=Kind.INT, scale=_HOUR_MS, default=168),
        ),
        doc="How long a segment is kept, by its largest timestamp; -1: for ever.",
    )
    retention_bytes: int = key(
        "log.retention.bytes",
        kind=Kind.LONG,
        default=-1,
        dynamic=True,
        doc="Size of a partition above which its oldest segments are deleted; -1: no limit.",
    )
    cleanup_policy: tuple[str, ...] = key(
        "log.cleanup.policy",
        default=("delete",),
        checks=(NonEmpty(), EachOneOf(("delete", "compact"))),
        dynamic=True,
        doc="What is done with old segments: delete them, keep the last value of each key, or "
        "both.",
    )
    max_message_bytes: int = key(
        "message.max.bytes",
        default=1_048_588,
        at_least=0,
        dynamic=True,
        doc="Largest batch of records that is taken, after compression.",
    )
    compression_type: str = key(
        "compression.type",
        default="producer",
        one_of=COMPRESSION_TYPES,
        dynamic=True,
        doc="Codec batches are stored with; `producer` leaves them as they come.",
    )
    compression_gzip_level: int = key(
        "compression.gzip.level",
        default=-1,
        checks=(Rule("-1 or 1 to 9", _is_gzip_level),),
        dynamic=True,
        doc="Level if `compression.type` is gzip; -1: the library's.",
    )
    compression_lz4_level: int = key(
        "compression.lz4.level",
        default=9,
        between=(1, 17),
        dynamic=True,
        doc="Level if `compression.type` is lz4.",
    )
    compression_zstd_level: int = key(
        "compression.zstd.level",
        default=3,
        between=(-131072, 22),
        dynamic=True,
        doc="Level if `compression.type` is zstd.",
    )
    timestamp_type: str = key(
        "log.message.timestamp.type",
        default="CreateTime",
        one_of=("CreateTime", "LogAppendTime"),
        dynamic=True,
        doc="Whether a record keeps the producer's timestamp or gets the broker's.",
    )
    timestamp_before_max_ms: int = key(
        "log.message.timestamp.before.max.ms",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=0,
        dynamic=True,
        synonyms=(synonym("log.message.timestamp.difference.max.ms"),),
        doc="How far a producer's timestamp may lie before the broker's time.",
    )
    timestamp_after_max_ms: int = key(
        "log.message.timestamp.after.max.ms",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=0,
        dynamic=True,
        synonyms=(synonym("log.message.timestamp.difference.max.ms"),),
        doc="How far a producer's timestamp may lie after the broker's time.",
    )
    timestamp_difference_max_ms: int | None = key(
        "log.message.timestamp.difference.max.ms",
        kind=Kind.LONG,
        default=None,
        at_least=0,
        dynamic=True,
        doc="Older name for both of the above at once; it counts where they are not set.",
    )
    local_retention_ms: int = key(
        "log.local.retention.ms",
        kind=Kind.LONG,
        default=-2,
        at_least=-2,
        dynamic=True,
        doc="Only for tiered storage; -2: as `log.retention.ms`.",
    )
    local_retention_bytes: int = key(
        "log.local.retention.bytes",
        kind=Kind.LONG,
        default=-2,
        at_least=-2,
        dynamic=True,
        doc="Only for tiered storage; -2: as `log.retention.bytes`.",
    )
    flush_messages: int = key(
        "log.flush.interval.messages",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=1,
        dynamic=True,
        doc="Records that may wait before the log is forced to disk.",
    )
    flush_ms: int = key(
        "log.flush.interval.ms",
        kind=Kind.LONG,
        default=None,
        at_least=0,
        dynamic=True,
        synonyms=(synonym("log.flush.scheduler.interval.ms", kind=Kind.LONG, default=INT64_MAX),),
        doc="How long records may wait before the log is forced to disk.",
    )
    preallocate: bool = key(
        "log.preallocate",
        default=False,
        dynamic=True,
        doc="Whether a segment's file gets its full size when it is made.",
    )
    file_delete_delay_ms: int = key(
        "log.segment.delete.delay.ms",
        kind=Kind.LONG,
        default=60_000,
        at_least=0,
        dynamic=True,
        doc="How long a file that is no longer part of a log stays on disk.",
    )
    delete_retention_ms: int = key(
        "log.cleaner.delete.retention.ms",
        kind=Kind.LONG,
        default=86_400_000,
        at_least=0,
        dynamic=True,
        doc="How long the mark of a deleted key stays in a compacted log.",
    )
    min_cleanable_dirty_ratio: float = key(
        "log.cleaner.min.cleanable.ratio",
        default=0.5,
        between=(0, 1),
        dynamic=True,
        doc="Share of a compacted log that must be new before it is compacted again.",
    )
    min_compaction_lag_ms: int = key(
        "log.cleaner.min.compaction.lag.ms",
        kind=Kind.LONG,
        default=0,
        at_least=0,
        dynamic=True,
        doc="How long a record is safe from compaction.",
    )
    max_compaction_lag_ms: int = key(
        "log.cleaner.max.compaction.lag.ms",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=1,
        dynamic=True,
        doc="How long a record may stay out of compaction.",
    )
    min_insync_replicas: int = key(
        "min.insync.replicas",
        default=1,
        at_least=1,
        dynamic=True,
        doc="In-sync replicas without which a write with acks=all is refused.",
    )
    unclean_leader_election: bool = key(
        "unclean.leader.election.enable",
        default=False,
        dynamic=True,
        doc="Whether a replica that is not in sync may lead if no other is left; records may be "
        "lost.",
    )

    def __post_init__(self) -> None:
        check_compaction_lags(
            self.min_compaction_lag_ms, self.max_compaction_lag_ms, "log.cleaner."
        )


def check_compaction_lags(minimum_ms: int, maximum_ms: int, prefix: str = "") -> None:
    """Refuse a pair of which the smaller is the larger.

    Raises:
        ConfigError: naming the key of the maximum.
    """
    if maximum_ms < minimum_ms:
        raise ConfigError(
            f"{prefix}max.compaction.lag.ms",
            maximum_ms,
            f"must not be below {prefix}min.compaction.lag.ms ({minimum_ms})",
        )
