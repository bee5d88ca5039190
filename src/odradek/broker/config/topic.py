"""The settings of a topic, and the broker's defaults of them.

The names are Kafka's. A topic that sets nothing gets the broker's default, whose key is a synonym:
``retention.ms``, then ``log.retention.ms``, ``log.retention.minutes``, ``log.retention.hours``.
Both keys come from one declaration (`odradek.config.declaration.inherited_key`), in `LogConfig` if
a log reads the setting, else here.
"""

import re
from typing import ClassVar, Final

from odradek.config import Definition, Kind, Rule, Value, inherited_key, key, keys_of
from odradek.errors import ConfigError
from odradek.lazy_dataclass import dataclass
from odradek.storage.log.config import LogConfig

__all__ = ["TOPIC_DEFINITION", "TopicConfig", "TopicDefaults"]

_REPLICA: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}", re.ASCII)


def _names_replicas(value: Value) -> bool:
    assert isinstance(value, tuple)
    return value in ((), ("*",)) or all(_REPLICA.fullmatch(item) for item in value)


_THROTTLED_REPLICAS: Final = Rule("* or a list of partition:broker", _names_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(LogConfig):
    """Settings of a topic."""

    timestamp_difference_max_ms: int | None = inherited_key(
        "message.timestamp.difference.max.ms",
        broker="log.message.timestamp.difference.max.ms",
        kind=Kind.LONG,
        default=None,
        at_least=0,
        dynamic=True,
        doc="Older name for both of the above at once; it counts where they are not set.",
    )
    min_insync_replicas: int = inherited_key(
        "min.insync.replicas",
        broker="min.insync.replicas",
        default=1,
        at_least=1,
        dynamic=True,
        agreed=True,
        doc="In-sync replicas without which a write with acks=all is refused.",
    )
    unclean_leader_election: bool = inherited_key(
        "unclean.leader.election.enable",
        broker="unclean.leader.election.enable",
        default=False,
        dynamic=True,
        agreed=True,
        doc="Whether a replica that is not in sync may lead if no other is left; records may be "
        "lost.",
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
    local_retention_ms: int = inherited_key(
        "local.retention.ms",
        broker="log.local.retention.ms",
        kind=Kind.LONG,
        default=-2,
        at_least=-2,
        dynamic=True,
        doc="Only for tiered storage; -2: as `log.retention.ms`.",
    )
    local_retention_bytes: int = inherited_key(
        "local.retention.bytes",
        broker="log.local.retention.bytes",
        kind=Kind.LONG,
        default=-2,
        at_least=-2,
        dynamic=True,
        doc="Only for tiered storage; -2: as `log.retention.bytes`.",
    )

    def __post_init__(self) -> None:
        LogConfig.__post_init__(self)
        names = keys_of(type(self))
        if self.max_compaction_lag_ms < self.min_compaction_lag_ms:
            raise ConfigError(
                names["max_compaction_lag_ms"].name,
                self.max_compaction_lag_ms,
                f"must not be below {names['min_compaction_lag_ms'].name}"
                f" ({self.min_compaction_lag_ms})",
            )

    def log_config(self, *, validate_compressed: bool = True) -> LogConfig:
        """The settings of the topic's logs."""
        values = {name: getattr(self, name) for name in keys_of(LogConfig)}
        return LogConfig(**values, validate_compressed=validate_compressed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults(TopicConfig):
    """Defaults of topics, for a topic that does not set the key itself."""

    declares_defaults: ClassVar[bool] = True


# A topic's keys and the broker's defaults behind them. The broker's own definition leaves the
# topic's keys out: `retention.ms` in a broker's file has no effect.
TOPIC_DEFINITION: Final = Definition(TopicDefaults, TopicConfig)
