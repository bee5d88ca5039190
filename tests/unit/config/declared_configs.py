"""Declarations the tests of this package use: a small broker and a topic."""

from dataclasses import dataclass

from odradek.config import REQUIRED, Kind, Password, Rule, Update, key, synonym
from odradek.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Logs.

    Segments and how long
    they are kept.
    """

    segment_bytes: int = key(
        "log.segment.bytes", default=1 << 30, at_least=14, dynamic=True, doc="Size of a segment."
    )
    retention_ms: int = key(
        "log.retention.ms",
        kind=Kind.LONG,
        default=None,
        dynamic=True,
        checks=(
            Rule("-1 or at least 1", lambda value: value == -1 or (value or 0) >= 1),  # type: ignore[operator]  # a number by its kind
        ),
        synonyms=(
            synonym("log.retention.minutes", kind=Kind.INT, scale=60_000),
            synonym("log.retention.hours", kind=Kind.INT, scale=3_600_000, default=168),
        ),
        doc="Age at which a segment is deleted; -1: never.",
    )
    roll_ms: int = key(
        "log.roll.ms",
        kind=Kind.LONG,
        default=None,
        at_least=1,
        synonyms=(synonym("log.roll.hours", kind=Kind.INT, scale=3_600_000, default=168),),
        doc="Age at which a segment is closed.",
    )
    directories: tuple[str, ...] = key(
        "log.dirs",
        kind=Kind.LIST,
        default=None,
        non_empty=True,
        synonyms=(synonym("log.dir", default=("/tmp/kafka-logs",), doc="One directory."),),
        doc="Where logs are kept.",
    )
    cleanup_policy: str = key(
        "log.cleanup.policy", default="delete", one_of=("delete", "compact"), doc="a | b"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketConfig:
    """Sockets."""

    broker_id: int = key("broker.id", kind=Kind.INT, default=REQUIRED, doc="Identity.")
    threads: int = key(
        "num.network.threads", default=3, between=(1, 100), dynamic=True, doc="Processors."
    )
    listeners: str = key(
        "listeners", default="PLAINTEXT://:9092", dynamic=Update.PER_BROKER, doc="Sockets."
    )
    keystore_password: Password | None = key(  # noqa: RUF009 - declares a field, as field() does
        "ssl.keystore.password",
        kind=Kind.PASSWORD,
        default=None,
        dynamic=Update.PER_BROKER,
        per_listener=True,
        checks=(Rule("longer than three", lambda value: len(value.reveal()) > 3),),  # type: ignore[union-attr]  # a Password by its kind
        doc="Opens the key store.",
    )
    idle_ratio: float = key("idle.ratio", default=0.5, doc="A share.")
    auto_create: bool = key("auto.create.topics.enable", default=True, doc="Create on use.")
    request_bytes: int = key("socket.request.max.bytes", default=1000, doc="Largest request.")
    queued_bytes: int = key("queued.max.request.bytes", kind=Kind.LONG, default=-1, doc="Memory.")

    def __post_init__(self) -> None:
        if 0 < self.queued_bytes < self.request_bytes:
            raise ConfigError(
                "queued.max.request.bytes",
                self.queued_bytes,
                f"must be at least socket.request.max.bytes, {self.request_bytes}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Topics."""

    retention_ms: int = key(
        "retention.ms",
        kind=Kind.LONG,
        default=None,
        synonyms=(
            synonym("log.retention.ms"),
            synonym("log.retention.minutes", scale=60_000),
            synonym("log.retention.hours", scale=3_600_000),
        ),
        doc="Age at which a segment is deleted.",
    )
    segment_bytes: int = key(
        "segment.bytes",
        kind=Kind.INT,
        default=None,
        at_least=14,
        synonyms=(synonym("log.segment.bytes"),),
        doc="Size of a segment.",
    )
