"""Settings of the group coordinator, under Kafka's names.

Those of the offsets topic are the broker's, which creates the topic.
"""

from dataclasses import dataclass
from typing import Final

from odradek.config import Kind, key
from odradek.errors import ConfigError

__all__ = ["GroupCoordinatorConfig"]

_INT32_MAX: Final = (1 << 31) - 1
_MS_PER_MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig:
    """Consumer groups and their offsets."""

    min_session_timeout_ms: int = key(
        "group.min.session.timeout.ms",
        default=6_000,
        at_least=1,
        agreed=True,
        doc="The shortest session timeout a member may ask for.",
    )
    max_session_timeout_ms: int = key(
        "group.max.session.timeout.ms",
        default=1_800_000,
        at_least=1,
        agreed=True,
        doc="The longest session timeout a member may ask for.",
    )
    max_size: int = key(
        "group.max.size",
        default=_INT32_MAX,
        at_least=1,
        agreed=True,
        doc="The most members a group may have.",
    )
    initial_rebalance_delay_ms: int = key(
        "group.initial.rebalance.delay.ms",
        default=3_000,
        at_least=0,
        doc="How long an empty group waits for further members before its first generation.",
    )
    max_metadata_size: int = key(
        "offset.metadata.max.bytes",
        default=4_096,
        at_least=0,
        agreed=True,
        doc="The longest metadata text of a committed offset.",
    )
    retention_minutes: int = key(
        "offsets.retention.minutes",
        default=10_080,
        at_least=1,
        agreed=True,
        doc="How long the offsets of a group without members are kept, and those of a topic that "
        "no member of the group is subscribed to.",
    )
    retention_check_interval_ms: int = key(
        "offsets.retention.check.interval.ms",
        kind=Kind.LONG,
        default=600_000,
        at_least=1,
        doc="How often groups are searched for expired offsets.",
    )
    load_buffer_bytes: int = key(
        "offsets.load.buffer.size",
        default=5 << 20,
        at_least=1,
        doc="How much of an offsets partition is read at a time, when this broker begins to lead "
        "it; a larger batch is read whole nevertheless, and more than 1 MB is never read at once.",
    )
    commit_timeout_ms: int = key(
        "offsets.commit.timeout.ms",
        default=5_000,
        at_least=1,
        doc="How long a commit waits for the replicas of its offsets partition.",
    )
    commit_required_acks: int = key(
        "offsets.commit.required.acks",
        kind=Kind.SHORT,
        default=-1,
        between=(-1, 1),
        doc="What a commit waits for, as a producer's acks. Anything but -1 can lose commits.",
    )
    compression_codec: int = key(
        "offsets.topic.compression.codec",
        default=0,
        between=(0, 4),
        doc="What commits are compressed with: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    )

    def __post_init__(self) -> None:
        """Checks the limits of session timeouts.

        Raises:
            ConfigError: The shortest session timeout is longer than the longest.
        """
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            raise ConfigError(
                "group.min.session.timeout.ms",
                self.min_session_timeout_ms,
                f"expected at most group.max.session.timeout.ms, {self.max_session_timeout_ms}",
            )

    @property
    def retention_ms(self) -> int:
        return self.retention_minutes * _MS_PER_MINUTE
