"""What a topic may set for itself, and what a log reads of it.

The names are Kafka's. A topic that sets nothing gets the broker's default, whose key is a synonym:
``retention.ms``, then ``log.retention.ms``, ``log.retention.minutes``, ``log.retention.hours``.
"""

import re
from typing import Any, Final

from odradek.broker.config.topic_defaults import TopicDefaults, check_compaction_lags
from odradek.config import (
    REQUIRED,
    AtLeast,
    Check,
    Definition,
    Rule,
    Synonym,
    Value,
    key,
    synonym,
)
from odradek.storage.log.config import LogConfig
from odradek.values import dataclass

__all__ = ["TOPIC_DEFINITION", "TopicConfig"]

_DEFAULTS: Final = Definition(TopicDefaults).fields[TopicDefaults]
_REPLICA: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}", re.ASCII)
_TIMESTAMP_DIFFERENCE: Final = (synonym("message.timestamp.difference.max.ms"),)


def _inherited(
    name: str,
    field_name: str,
    *,
    aliases: tuple[Synonym, ...] = (),
    checks: tuple[Check, ...] | None = None,
) -> Any:  # A dataclass field, as `key` returns.
    """A topic's key with kind, checks and documentation of the broker's default for it.

    Args:
        aliases: Other names a topic may use, stronger than the broker's.
        checks: Instead of those of the broker's key.
    """
    broker = _DEFAULTS[field_name]
    assert broker.default is not REQUIRED, "a topic can do without any setting"
    default: Any = broker.default
    synonyms = broker.synonyms
    if name != broker.name:
        # The default belongs to the broker's key, so that DescribeConfigs shows it there.
        synonyms = (*aliases, synonym(broker.name, default=default), *synonyms)
        default = None
    return key(
        name,
        kind=broker.kind,
        default=default,
        checks=broker.checks if checks is None else checks,
        dynamic=broker.update,
        synonyms=synonyms,
        doc=broker.doc,
    )


def _names_replicas(value: Value) -> bool:
    assert isinstance(value, tuple)
    return value in ((), ("*",)) or all(_REPLICA.fullmatch(item) for item in value)


_THROTTLED_REPLICAS: Final = Rule("* or a list of partition:broker", _names_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Settings of a topic."""

    segment_bytes: int = _inherited("segment.bytes", "segment_bytes")
    segment_ms: int = _inherited("segment.ms", "segment_ms")
    segment_jitter_ms: int = _inherited("segment.jitter.ms", "segment_jitter_ms")
    segment_index_bytes: int = _inherited("segment.index.bytes", "segment_index_bytes")
    index_interval_bytes: int = _inherited("index.interval.bytes", "index_interval_bytes")
    # Unlike a broker, a topic may ask for nothing to be kept.
    retention_ms: int = _inherited("retention.ms", "retention_ms", checks=(AtLeast(-1),))
    retention_bytes: int = _inherited("retention.bytes", "retention_bytes")
    cleanup_policy: tuple[str, ...] = _inherited("cleanup.policy", "cleanup_policy")
    max_message_bytes: int = _inherited("max.message.bytes", "max_message_bytes")
    compression_type: str = _inherited("compression.type", "compression_type")
    compression_gzip_level: int = _inherited("compression.gzip.level", "compression_gzip_level")
    compression_lz4_level: int = _inherited("compression.lz4.level", "compression_lz4_level")
    compression_zstd_level: int = _inherited("compression.zstd.level", "compression_zstd_level")
    timestamp_type: str = _inherited("message.timestamp.type", "timestamp_type")
    timestamp_before_max_ms: int = _inherited(
        "message.timestamp.before.max.ms",
        "timestamp_before_max_ms",
        aliases=_TIMESTAMP_DIFFERENCE,
    )
    timestamp_after_max_ms: int = _inherited(
        "message.timestamp.after.max.ms", "timestamp_after_max_ms", aliases=_TIMESTAMP_DIFFERENCE
    )
    timestamp_difference_max_ms: int | None = _inherited(
        "message.timestamp.difference.max.ms", "timestamp_difference_max_ms"
    )
    flush_messages: int = _inherited("flush.messages", "flush_messages")
    flush_ms: int = _inherited("flush.ms", "flush_ms")
    preallocate: bool = _inherited("preallocate", "preallocate")
    file_delete_delay_ms: int = _inherited("file.delete.delay.ms", "file_delete_delay_ms")
    delete_retention_ms: int = _inherited("delete.retention.ms", "delete_retention_ms")
    min_cleanable_dirty_ratio: float = _inherited(
        "min.cleanable.dirty.ratio", "min_cleanable_dirty_ratio"
    )
    min_compaction_lag_ms: int = _inherited("min.compaction.lag.ms", "min_compaction_lag_ms")
    max_compaction_lag_ms: int = _inherited("max.compaction.lag.ms", "max_compaction_lag_ms")
    min_insync_replicas: int = _inherited("min.insync.replicas", "min_insync_replicas")
    unclean_leader_election: bool = _inherited(
        "unclean.leader.election.enable", "unclean_leader_election"
    )
    leader_throttled_replicas: tuple[str, ...] = key(
        "leader.replication.throttled.replicas",
        default=(),
        checks=(_THROTTLED_REPLICAS,),
        dynamic=True,
        doc="Replicas whose leader sends no faster than `leader.replication.throttled.rate`.",
    )
    follower_throttled_replicas: tuple[str, ...] = key(
        "follower.replication.throttled.replicas",
        default=(),
        checks=(_THROTTLED_REPLICAS,),
        dynamic=True,
        doc="Replicas that fetch no faster than `follower.replication.throttled.rate`.",
    )
    remote_storage: bool = key(
        "remote.storage.enable",
        default=False,
        checks=(Rule("false: there is no tiered storage here", lambda value: value is False),),
        dynamic=True,
        doc="Tiered storage, which is not offered.",
    )
    remote_copy_disabled: bool = key(
        "remote.log.copy.disable",
        default=False,
        dynamic=True,
        doc="Only for tiered storage.",
    )
    remote_delete_on_disable: bool = key(
        "remote.log.delete.on.disable",
        default=False,
        dynamic=True,
        doc="Only for tiered storage.",
    )
    local_retention_ms: int = _inherited("local.retention.ms", "local_retention_ms")
    local_retention_bytes: int = _inherited("local.retention.bytes", "local_retention_bytes")

    def __post_init__(self) -> None:
        check_compaction_lags(self.min_compaction_lag_ms, self.max_compaction_lag_ms)

    def log_config(self, *, validate_compressed: bool = True) -> LogConfig:
        """What the topic's logs read."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self._roll_ms,
            segment_jitter_ms=self.segment_jitter_ms,
            segment_index_bytes=self.segment_index_bytes,
            index_interval_bytes=self.index_interval_bytes,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            cleanup_delete="delete" in self.cleanup_policy,
            cleanup_compact="compact" in self.cleanup_policy,
            max_message_bytes=self.max_message_bytes,
            compression_type=self.compression_type,
            compression_gzip_level=self.compression_gzip_level,
            compression_lz4_level=self.compression_lz4_level,
            compression_zstd_level=self.compression_zstd_level,
            log_append_time=self.timestamp_type == "LogAppendTime",
            timestamp_before_max_ms=self.timestamp_before_max_ms,
            timestamp_after_max_ms=self.timestamp_after_max_ms,
            flush_messages=self.flush_messages,
            flush_ms=self.flush_ms,
            preallocate=self.preallocate,
            file_delete_delay_ms=self.file_delete_delay_ms,
            validate_compressed=validate_compressed,
            delete_retention_ms=self.delete_retention_ms,
            min_cleanable_dirty_ratio=self.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=self.min_compaction_lag_ms,
            max_compaction_lag_ms=self.max_compaction_lag_ms,
        )

    @property
    def _roll_ms(self) -> int:
        """A compacted log rolls early enough for its records to be compacted in time."""
        if "compact" in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms


# A topic's keys and the broker's defaults behind them. The broker's own definition leaves the
# topic's keys out: `retention.ms` in a broker's file means nothing.
TOPIC_DEFINITION: Final = Definition(TopicDefaults, TopicConfig)
