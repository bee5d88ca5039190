"""Settings of consumers, under Kafka's names. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from odradek.client.config import ClientConfig
from odradek.config import Definition, Kind, NonEmpty, key
from odradek.errors import ConfigError
from odradek.protocol.enums import IsolationLevel

__all__ = ["CONSUMER_DEFINITION", "ConsumerConfig", "ResetPolicy", "parse_duration_ms"]

_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII
)
_BY_DURATION: Final = "by_duration:"


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """Where to begin without an offset: auto.offset.reset."""

    # earliest, latest, none or by_duration.
    kind: str
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> "ResetPolicy":
        """Reads `earliest`, `latest`, `none` or `by_duration:PT1H`.

        Raises:
            ValueError: It has another form.
        """
        if text in ("earliest", "latest", "none"):
            return cls(text)
        if text.startswith(_BY_DURATION):
            return cls("by_duration", parse_duration_ms(text.removeprefix(_BY_DURATION)))
        raise ValueError("expected earliest, latest, none or by_duration:PT1H")


def parse_duration_ms(text: str) -> int:
    """Reads a duration as ISO 8601 has it, `P1DT2H3M4.5S`.

    Raises:
        ValueError: It has another form.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is no duration such as PT1H or P1DT12H")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The settings of a consumer besides those of all clients."""

    group_id: str | None = key(
        "group.id",
        kind=Kind.STRING,
        default=None,
        checks=(NonEmpty(),),
        doc="The group. Without it partitions are assigned by hand and nothing is committed.",
    )
    group_instance_id: str | None = key(
        "group.instance.id",
        kind=Kind.STRING,
        default=None,
        checks=(NonEmpty(),),
        doc="Name of a static member, which may restart without a rebalance; unique in its group.",
    )
    group_protocol: str = key(
        "group.protocol",
        default="classic",
        one_of=("classic",),
        doc="How the group is formed.",
    )
    auto_offset_reset: str = key(
        "auto.offset.reset",
        default="latest",
        doc="Where to begin without a committed offset, or when that offset was deleted: earliest, "
        "latest, none (an error), by_duration:PT1H (so long ago).",
    )
    enable_auto_commit: bool = key(
        "enable.auto.commit",
        default=True,
        doc="Whether positions are committed in the background, by poll and close.",
    )
    auto_commit_interval_ms: int = key(
        "auto.commit.interval.ms", default=5_000, at_least=0, doc="How often."
    )
    isolation_level: str = key(
        "isolation.level",
        default="read_uncommitted",
        one_of=("read_uncommitted", "read_committed"),
        doc="Whether records of open and aborted transactions are read.",
    )
    check_crcs: bool = key(
        "check.crcs", default=True, doc="Whether the checksum of each batch is verified."
    )
    fetch_min_bytes: int = key(
        "fetch.min.bytes", default=1, at_least=0, doc="Bytes a broker waits for before it answers."
    )
    fetch_max_wait_ms: int = key(
        "fetch.max.wait.ms", default=500, at_least=0, doc="How long it waits at most."
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes",
        default=52_428_800,
        at_least=0,
        doc="Most bytes of one answer; a first batch that is larger comes all the same.",
    )
    max_partition_fetch_bytes: int = key(
        "max.partition.fetch.bytes",
        default=1_048_576,
        at_least=0,
        doc="Most bytes per partition of one answer; likewise.",
    )
    max_poll_records: int = key(
        "max.poll.records", default=500, at_least=1, doc="Most records that one poll returns."
    )
    max_poll_interval_ms: int = key(
        "max.poll.interval.ms",
        default=300_000,
        at_least=1,
        doc="Longest time between two polls; then the member leaves its group.",
    )
    session_timeout_ms: int = key(
        "session.timeout.ms",
        default=45_000,
        at_least=1,
        doc="Time without a heartbeat after which the group removes this member.",
    )
    heartbeat_interval_ms: int = key(
        "heartbeat.interval.ms",
        default=3_000,
        at_least=1,
        doc="How often the member sends a heartbeat; a third of the session timeout is usual.",
    )
    partition_assignment_strategy: tuple[str, ...] = key(
        "partition.assignment.strategy",
        kind=Kind.LIST,
        default=("range", "cooperative-sticky"),
        doc="Strategies in order of preference: range, roundrobin, sticky, cooperative-sticky. "
        "Own ones are given as objects: Consumer(assignors=[…]).",
    )
    client_rack: str = key(
        "client.rack", default="", doc="Where this consumer is, to read from a near replica."
    )
    exclude_internal_topics: bool = key(
        "exclude.internal.topics",
        default=True,
        doc="Whether a pattern leaves internal topics out.",
    )
    allow_auto_create_topics: bool = key(
        "allow.auto.create.topics",
        default=True,
        doc="Whether subscribing may create a topic, if the brokers do so at all.",
    )

    def __post_init__(self) -> None:
        try:
            ResetPolicy.parse(self.auto_offset_reset)
        except ValueError as error:
            raise ConfigError("auto.offset.reset", self.auto_offset_reset, str(error)) from None
        if self.group_id is not None and self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                "heartbeat.interval.ms",
                self.heartbeat_interval_ms,
                f"must be below session.timeout.ms, which is {self.session_timeout_ms}",
            )

    @property
    def reset_policy(self) -> ResetPolicy:
        return ResetPolicy.parse(self.auto_offset_reset)

    @property
    def is_read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def isolation(self) -> IsolationLevel:
        """The isolation level of requests."""
        return IsolationLevel[self.isolation_level.upper()]


CONSUMER_DEFINITION: Final = Definition(ClientConfig, ConsumerConfig)
