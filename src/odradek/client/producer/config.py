"""Settings of a producer, and the values that follow from several of them. Pure."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.config import ClientConfig, read_settings
from odradek.client.producer.ticket import TransactionTicket
from odradek.config import HIDDEN, Definition, Kind, Settings, SettingSource, key
from odradek.errors import ConfigError
from odradek.records.compression import Codec

__all__ = ["ACKS_ALL", "ACKS_NONE", "ProducerConfig", "ProducerOptions", "read_producer_settings"]

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0

_MAX_INT32: Final = 2**31 - 1
# Brokers recognise the last five batches of a producer as repetitions, not more.
_MAX_IN_FLIGHT_IN_ORDER: Final = 5
# Far below the default limit of topics (max.message.bytes, 1 MB), and a request takes at least so
# many of them: larger batches save nothing more.
_MAX_GROWN_BYTES: Final = 256 * 1024
_GROWN_PER_REQUEST: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of a producer besides those of every client."""

    acks: str = key(
        "acks",
        default="all",
        one_of=("all", "-1", "0", "1"),
        doc="Replicas that must have a record before it counts as sent: all in-sync ones, none, "
        "or the leader.",
    )
    enable_idempotence: bool = key(
        "enable.idempotence",
        default=True,
        doc="Whether a repeated request leaves one copy, in order. Needs acks=all, retries and at "
        "most five requests in flight.",
    )
    retries: int = key(
        "retries",
        default=_MAX_INT32,
        at_least=0,
        doc="How often a batch is sent again; delivery.timeout.ms bounds it in any case.",
    )
    max_in_flight_requests_per_connection: int = key(
        "max.in.flight.requests.per.connection",
        default=5,
        at_least=1,
        doc="Requests without an answer that one broker may have.",
    )
    delivery_timeout_ms: int = key(
        "delivery.timeout.ms",
        default=120_000,
        at_least=0,
        doc="Time from `send` until a record has arrived or failed.",
    )
    max_block_ms: int = key(
        "max.block.ms",
        kind=Kind.LONG,
        default=60_000,
        at_least=0,
        doc="How long `send` waits for metadata and for room in the buffer.",
    )
    batch_size: int = key(
        "batch.size",
        default=16_384,
        at_least=0,
        doc="Bytes at which a batch is full and leaves. Unless the setting is given, a full batch "
        "that has to wait goes on taking records.",
    )
    linger_ms: int = key(
        "linger.ms",
        kind=Kind.LONG,
        default=5,
        at_least=0,
        doc="How long a batch waits for more records.",
    )
    buffer_memory: int = key(
        "buffer.memory",
        kind=Kind.LONG,
        default=32 * 1024 * 1024,
        at_least=0,
        doc="Bytes of batches that wait for their answer or to be sent; then `send` waits.",
    )
    max_request_size: int = key(
        "max.request.size",
        default=1_048_576,
        at_least=0,
        doc="The largest request, and the largest record.",
    )
    compression_type: str = key(
        "compression.type",
        default="none",
        one_of=("none", "gzip", "snappy", "lz4", "zstd"),
        doc="How batches are compressed.",
    )
    compression_gzip_level: int = key(
        "compression.gzip.level", default=-1, doc="Level of gzip, 1 to 9; -1 is its default."
    )
    compression_lz4_level: int = key(
        "compression.lz4.level", default=9, at_least=1, doc="Level of lz4, 1 to 17."
    )
    compression_zstd_level: int = key(
        "compression.zstd.level", default=3, doc="Level of zstd, up to 22."
    )
    partitioner_ignore_keys: bool = key(
        "partitioner.ignore.keys",
        default=False,
        doc="Whether records with a key are spread like those without.",
    )
    partitioner_adaptive_partitioning_enable: bool = key(
        "partitioner.adaptive.partitioning.enable",
        default=True,
        doc="Whether partitions that lag get fewer of the records without a key.",
    )
    partitioner_availability_timeout_ms: int = key(
        "partitioner.availability.timeout.ms",
        kind=Kind.LONG,
        default=0,
        at_least=0,
        doc="A partition whose broker has taken nothing for so long gets none of them; 0: it does.",
    )
    transactional_id: str | None = key(
        "transactional.id",
        kind=Kind.STRING,
        default=None,
        doc="Name under which the producer writes in transactions. A second producer of the name "
        "ends what the first has left open, and the first.",
    )
    transaction_timeout_ms: int = key(
        "transaction.timeout.ms",
        default=60_000,
        at_least=1,
        doc="How long a transaction may be open before its coordinator aborts it; brokers have a "
        "limit (transaction.max.timeout.ms).",
    )
    metadata_max_idle_ms: int = key(
        "metadata.max.idle.ms",
        kind=Kind.LONG,
        default=300_000,
        at_least=5_000,
        doc="A topic that nothing was sent to for so long is no longer asked about.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The same, resolved, for the parts of a producer."""

    acks: int
    is_idempotent: bool
    retries: int
    max_in_flight: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_block_ms: int
    batch_size: int
    max_batch_bytes: int  # The size up to which a full batch that has to wait may grow.
    linger_ms: int
    buffer_memory: int
    max_request_size: int
    codec: Codec
    level: int | None
    ignores_keys: bool
    is_adaptive: bool
    availability_timeout_ms: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int


_DEFINITION: Final = Definition(ClientConfig, ProducerConfig)


def read_producer_settings(
    config: Mapping[str, object] | None,
    keywords: Mapping[str, object],
    ticket: TransactionTicket | None = None,
) -> tuple[ClientConfig, ProducerOptions]:
    """The options of a producer, from its settings.

    Args:
        ticket: If it writes in the transaction of another producer: stands for `transactional.id`.

    Raises:
        ConfigError: A setting is unknown or cannot be used, or two contradict each other.
    """
    config = config or {}
    if ticket is not None:
        if "transactional.id" in config or "transactional_id" in keywords:
            raise ConfigError("transactional.id", HIDDEN, "a producer with a ticket has none")
        keywords = {**keywords, "transactional_id": ticket.transactional_id}
    settings = read_settings(_DEFINITION, _with_text_acks(config), _with_text_acks(keywords))
    common, own = settings.build(ClientConfig), settings.build(ProducerConfig)
    if own.transactional_id == "":
        raise ConfigError("transactional.id", "", "expected at least one character")
    codec = Codec[own.compression_type.upper()]
    return common, ProducerOptions(
        acks=ACKS_ALL if own.acks == "all" else int(own.acks),
        is_idempotent=_is_idempotent(settings, own),
        retries=own.retries,
        max_in_flight=own.max_in_flight_requests_per_connection,
        delivery_timeout_ms=_delivery_timeout_ms(settings, common, own),
        request_timeout_ms=common.request_timeout_ms,
        max_block_ms=own.max_block_ms,
        batch_size=own.batch_size,
        max_batch_bytes=_max_batch_bytes(settings, own),
        linger_ms=own.linger_ms,
        buffer_memory=own.buffer_memory,
        max_request_size=own.max_request_size,
        codec=codec,
        level=_level(settings, codec),
        ignores_keys=own.partitioner_ignore_keys,
        is_adaptive=own.partitioner_adaptive_partitioning_enable,
        availability_timeout_ms=own.partitioner_availability_timeout_ms,
        # With an age of 0 it would ask all the time.
        metadata_max_age_ms=max(common.metadata_max_age_ms, common.retry_backoff_ms),
        metadata_max_idle_ms=own.metadata_max_idle_ms,
        retry_backoff_ms=common.retry_backoff_ms,
        retry_backoff_max_ms=max(common.retry_backoff_ms, common.retry_backoff_max_ms),
        transactional_id=own.transactional_id,
        transaction_timeout_ms=own.transaction_timeout_ms,
    )


def _with_text_acks(given: Mapping[str, object]) -> dict[str, object]:
    """Takes ``acks=1`` as well as ``acks="1"``."""
    acks = given.get("acks")
    is_number = isinstance(acks, int) and not isinstance(acks, bool)
    return {**given, "acks": str(acks)} if is_number else dict(given)


def _is_asked_for(settings: Settings, name: str) -> bool:
    return settings.get(name).source is not SettingSource.DEFAULT


def _is_idempotent(settings: Settings, own: ProducerConfig) -> bool:
    if not own.enable_idempotence:
        if own.transactional_id is not None:
            raise ConfigError("enable.idempotence", False, "transactional.id needs true")
        return False
    obstacles = [
        (own.acks not in ("all", "-1"), "acks", own.acks, "all"),
        (own.retries == 0, "retries", own.retries, "more than 0"),
        (
            own.max_in_flight_requests_per_connection > _MAX_IN_FLIGHT_IN_ORDER,
            "max.in.flight.requests.per.connection",
            own.max_in_flight_requests_per_connection,
            f"at most {_MAX_IN_FLIGHT_IN_ORDER}",
        ),
    ]
    for is_in_the_way, name, value, needed in obstacles:
        if is_in_the_way:
            if own.transactional_id is not None:
                raise ConfigError(name, value, f"transactional.id needs {needed}")
            if _is_asked_for(settings, "enable.idempotence"):
                raise ConfigError(name, value, f"enable.idempotence=true needs {needed}")
            logger.info("enable.idempotence is off, because %s=%s", name, value)
            return False
    return True


def _delivery_timeout_ms(settings: Settings, common: ClientConfig, own: ProducerConfig) -> int:
    least = min(own.linger_ms + common.request_timeout_ms, _MAX_INT32)
    if own.delivery_timeout_ms >= least:
        return own.delivery_timeout_ms
    if _is_asked_for(settings, "delivery.timeout.ms"):
        raise ConfigError(
            "delivery.timeout.ms",
            own.delivery_timeout_ms,
            f"must be at least linger.ms + request.timeout.ms = {least}",
        )
    logger.info("delivery.timeout.ms is %d, as linger.ms + request.timeout.ms are", least)
    return least


def _max_batch_bytes(settings: Settings, own: ProducerConfig) -> int:
    """The size up to which a full batch grows; a batch.size that was configured is kept."""
    if _is_asked_for(settings, "batch.size"):
        return own.batch_size
    return max(own.batch_size, min(_MAX_GROWN_BYTES, own.max_request_size // _GROWN_PER_REQUEST))


def _level(settings: Settings, codec: Codec) -> int | None:
    """The level of compression, if one is configured: the codecs have good defaults."""
    name = f"compression.{codec.name.lower()}.level"
    if name not in settings.definition.keys or not _is_asked_for(settings, name):
        return None
    level = settings.get(name).value
    assert isinstance(level, int)
    return None if codec is Codec.GZIP and level == -1 else level
