"""The settings of the broker's parts, one small class for each part that reads them.

Those of the network are declared there, in `odradek.network.config`; those a topic may set for
itself in `odradek.broker.config.topic`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from odradek.config import Kind, Rule, Value, key, synonym
from odradek.errors import ConfigError
from odradek.lazy_dataclass import dataclass
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.log.config import INT64_MAX, LogManagerConfig

__all__ = [
    "InternalTopicsSettings",
    "LogSettings",
    "NodeSettings",
    "ObservabilitySettings",
    "QuotaSettings",
    "ReplicationSettings",
    "RequestSettings",
    "TopicSettings",
]

# The name of a broker's data directory, relative to the working directory of its process.
_DEFAULT_LOG_DIR: Final = "odradek-data"
# The selectors that Kafka has; their names are those of its classes.
_LEADER_SELECTOR: Final = "org.apache.kafka.common.replica.LeaderSelector"
_RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class _NotOffered:
    """Check of a known key that requires a feature this broker lacks."""

    what: str

    def why_not(self, _value: Value) -> str | None:
        return f"{self.what}; remove the key"

    def __str__(self) -> str:
        return "none: must not be set"


def _is_distinct(value: Value) -> bool:
    return isinstance(value, tuple) and len(set(value)) == len(value) and all(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The broker itself."""

    broker_id: int = key(
        "broker.id",
        default=-1,
        at_least=-1,
        synonyms=(synonym("node.id"),),
        doc="The broker's number in its cluster; -1: chosen, which is 0 for a single broker, and a "
        "number above `reserved.broker.max.id` on ZooKeeper.",
    )
    rack: str | None = key(
        "broker.rack",
        kind=Kind.STRING,
        default=None,
        doc="The broker's rack; replicas of a partition are spread over racks.",
    )
    id_generation_enabled: bool = key(
        "broker.id.generation.enable",
        default=True,
        doc="Whether a broker on ZooKeeper that has no `broker.id` draws one.",
    )
    reserved_max_id: int = key(
        "reserved.broker.max.id",
        default=1000,
        at_least=0,
        doc="The largest `broker.id` on ZooKeeper; larger ones are drawn by brokers without one.",
    )
    process_roles: tuple[str, ...] | None = key(
        "process.roles",
        kind=Kind.LIST,
        default=None,
        checks=(
            _NotOffered(
                "a metadata quorum is not supported yet, ZooKeeper is: take the CONTROLLER"
                " listener out of listeners and advertised.listeners, and set zookeeper.connect"
                " for a cluster of several brokers"
            ),
        ),
        doc="There is no metadata quorum; a broker with this key refuses to start.",
    )

    @property
    def id(self) -> int:
        """The broker's number on the embedded store."""
        return max(self.broker_id, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Logs on disk."""

    log_dirs: tuple[str, ...] = key(
        "log.dirs",
        kind=Kind.LIST,
        default=None,
        checks=(Rule("a list of different directories", _is_distinct),),
        synonyms=(synonym("log.dir", kind=Kind.LIST, default=(_DEFAULT_LOG_DIR,)),),
        doc="Directories of the logs, separated by commas. The first one also holds the metadata.",
    )
    recovery_threads: int = key(
        "num.recovery.threads.per.data.dir",
        default=2,
        at_least=1,
        dynamic=True,
        doc="Logs of a directory that are opened, or closed, at once.",
    )
    initial_task_delay_ms: int = key(
        "log.initial.task.delay.ms",
        kind=Kind.LONG,
        default=30_000,
        at_least=0,
        doc="How long after the start retention, flushing and checkpoints begin.",
    )
    retention_check_interval_ms: int = key(
        "log.retention.check.interval.ms",
        kind=Kind.LONG,
        default=300_000,
        at_least=1,
        doc="How often logs are searched for segments to delete.",
    )
    flush_scheduler_interval_ms: int = key(
        "log.flush.scheduler.interval.ms",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=1,
        doc="How often logs are searched for records that waited too long for the disk.",
    )
    flush_offset_checkpoint_interval_ms: int = key(
        "log.flush.offset.checkpoint.interval.ms",
        default=60_000,
        at_least=1,
        doc="How often the durable end of each log is noted, which shortens recovery.",
    )
    flush_start_offset_checkpoint_interval_ms: int = key(
        "log.flush.start.offset.checkpoint.interval.ms",
        default=60_000,
        at_least=1,
        doc="How often the start of each log is noted.",
    )
    producer_id_expiration_ms: int = key(
        "producer.id.expiration.ms",
        default=86_400_000,
        at_least=1,
        agreed=True,
        doc="How long a producer that writes nothing is remembered, to recognise its repetitions.",
    )
    transaction_verification_enabled: bool = key(
        "transaction.partition.verification.enable",
        default=True,
        dynamic=True,
        doc="Whether a partition's leader asks the coordinator of a transaction before it appends "
        "the first batch. Without it a late batch can open a transaction that is never ended.",
    )
    producer_id_expiration_check_interval_ms: int = key(
        "producer.id.expiration.check.interval.ms",
        default=600_000,
        at_least=1,
        doc="How often forgotten producers are looked for.",
    )
    validate_compressed: bool = key(
        "produce.validate.compressed",
        default=True,
        doc="Whether compressed batches are opened and checked record by record before they are "
        "stored. Kafka has no such key; it always does.",
    )

    def log_manager_config(self, cleaner: CleanerConfig) -> LogManagerConfig:
        return LogManagerConfig(
            cleaner=cleaner,
            recovery_threads_per_data_dir=self.recovery_threads,
            initial_task_delay_ms=self.initial_task_delay_ms,
            retention_check_interval_ms=self.retention_check_interval_ms,
            flush_scheduler_interval_ms=self.flush_scheduler_interval_ms,
            flush_offset_checkpoint_interval_ms=self.flush_offset_checkpoint_interval_ms,
            flush_start_offset_checkpoint_interval_ms=(
                self.flush_start_offset_checkpoint_interval_ms
            ),
            producer_id_expiration_check_interval_ms=(
                self.producer_id_expiration_check_interval_ms
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """Creation and deletion of topics."""

    num_partitions: int = key(
        "num.partitions",
        default=1,
        at_least=1,
        agreed=True,
        doc="Partitions of a topic that is created without a number.",
    )
    default_replication_factor: int = key(
        "default.replication.factor",
        default=1,
        between=(1, 32_767),
        agreed=True,
        doc="Replicas of a topic that is created without a number.",
    )
    auto_create: bool = key(
        "auto.create.topics.enable",
        default=True,
        agreed=True,
        doc="Whether a topic is created when a client requests its metadata and allows it.",
    )
    delete_enabled: bool = key(
        "delete.topic.enable",
        default=True,
        agreed=True,
        doc="Whether topics can be deleted.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """Replication."""

    lag_time_max_ms: int = key(
        "replica.lag.time.max.ms",
        kind=Kind.LONG,
        default=30_000,
        at_least=1,
        agreed=True,
        doc="How long a follower may lag behind its leader before it is no longer in sync.",
    )
    high_watermark_checkpoint_interval_ms: int = key(
        "replica.high.watermark.checkpoint.interval.ms",
        kind=Kind.LONG,
        default=5_000,
        at_least=1,
        doc="How often high watermarks are noted on disk.",
    )
    fetchers: int = key(
        "num.replica.fetchers",
        default=1,
        at_least=1,
        dynamic=True,
        doc="Connections by which followers here fetch from one other broker.",
    )
    fetch_backoff_ms: int = key(
        "replica.fetch.backoff.ms",
        default=1_000,
        at_least=0,
        doc="Pause of a follower after an error.",
    )
    fetch_wait_max_ms: int = key(
        "replica.fetch.wait.max.ms",
        default=500,
        at_least=0,
        doc="How long a leader may let a follower wait for records.",
    )
    fetch_min_bytes: int = key(
        "replica.fetch.min.bytes",
        default=1,
        at_least=0,
        doc="Bytes a follower waits for.",
    )
    fetch_response_max_bytes: int = key(
        "replica.fetch.response.max.bytes",
        default=10 << 20,
        at_least=0,
        doc="Bytes a follower takes at once; a larger first batch comes whole.",
    )
    fetch_max_bytes: int = key(
        "replica.fetch.max.bytes",
        default=1 << 20,
        at_least=0,
        doc="Bytes a follower takes at once of one partition; a larger first batch comes whole.",
    )
    socket_timeout_ms: int = key(
        "replica.socket.timeout.ms",
        default=30_000,
        at_least=1,
        doc="How long a follower waits for an answer.",
    )
    socket_receive_buffer_bytes: int = key(
        "replica.socket.receive.buffer.bytes",
        default=65_536,
        at_least=-1,
        doc="SO_RCVBUF of a follower's connection; -1: what the system chooses.",
    )
    directory_moves: int | None = key(
        "num.replica.alter.log.dirs.threads",
        kind=Kind.INT,
        default=None,
        at_least=1,
        doc="Replicas that move between data directories at the same time; as many as there are"
        " directories without it.",
    )
    directory_move_max_bytes_per_second: int = key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=1,
        dynamic=True,
        doc="Most bytes that all replicas that move between data directories copy in a second.",
    )
    leader_max_bytes_per_second: int = key(
        "leader.replication.throttled.rate",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=0,
        dynamic=True,
        doc="Most bytes per second that leaders here send to followers that are not in sync, of "
        "replicas that a topic names in `leader.replication.throttled.replicas`.",
    )
    follower_max_bytes_per_second: int = key(
        "follower.replication.throttled.rate",
        kind=Kind.LONG,
        default=INT64_MAX,
        at_least=0,
        dynamic=True,
        doc="Most bytes per second that followers here fetch while they are not in sync, of "
        "replicas that a topic names in `follower.replication.throttled.replicas`.",
    )
    throttle_sample_count: int = key(
        "replication.quota.window.num",
        default=11,
        at_least=1,
        doc="Samples over which the rates of throttled replication are computed.",
    )
    throttle_sample_s: int = key(
        "replication.quota.window.size.seconds",
        default=1,
        at_least=1,
        doc="Length of a sample of the rates of throttled replication.",
    )
    selector_class: str | None = key(
        "replica.selector.class",
        kind=Kind.STRING,
        default=None,
        one_of=("", _LEADER_SELECTOR, _RACK_AWARE_SELECTOR),
        doc="Where consumers read. With `RackAwareReplicaSelector`, one that has a `client.rack` "
        "is sent to an in-sync follower whose `broker.rack` is the same, if the leader's is not; "
        "otherwise all read from leaders.",
    )

    @property
    def is_rack_aware(self) -> bool:
        """Whether consumers are sent to replicas in their racks."""
        return self.selector_class == _RACK_AWARE_SELECTOR

    def __post_init__(self) -> None:
        for limit_key, limit_ms in (
            ("replica.lag.time.max.ms", self.lag_time_max_ms),
            ("replica.socket.timeout.ms", self.socket_timeout_ms),
        ):
            if self.fetch_wait_max_ms > limit_ms:
                raise ConfigError(
                    "replica.fetch.wait.max.ms",
                    self.fetch_wait_max_ms,
                    f"must not be above {limit_key} ({limit_ms})",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """Limits of requests, and of requests that wait."""

    fetch_max_bytes: int = key(
        "fetch.max.bytes",
        default=55 << 20,
        at_least=1024,
        doc="Bytes a fetch returns at most, whatever the client asks for; a larger first batch "
        "comes whole.",
    )
    fetch_session_slots: int = key(
        "max.incremental.fetch.session.cache.slots",
        default=1_000,
        at_least=0,
        doc="Incremental fetch sessions that are kept at a time.",
    )
    max_described_partitions: int = key(
        "max.request.partition.size.limit",
        default=2_000,
        at_least=1,
        doc="Partitions that one answer to DescribeTopicPartitions holds at most.",
    )
    produce_purge_interval: int = key(
        "producer.purgatory.purge.interval.requests",
        default=1_000,
        at_least=1,
        doc="Answered produce requests that may linger among the waiting ones.",
    )
    fetch_purge_interval: int = key(
        "fetch.purgatory.purge.interval.requests",
        default=1_000,
        at_least=1,
        doc="Answered fetch requests that may linger among the waiting ones.",
    )
    delete_records_purge_interval: int = key(
        "delete.records.purgatory.purge.interval.requests",
        default=1,
        at_least=1,
        doc="Answered delete-records requests that may linger among the waiting ones.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """Measuring for client quotas.

    The quotas themselves are set with `kafka-configs` or AlterClientQuotas.
    """

    window_count: int = key(
        "quota.window.num",
        default=11,
        at_least=1,
        doc="Samples that are kept of what each client does.",
    )
    window_size_s: int = key(
        "quota.window.size.seconds",
        default=1,
        at_least=1,
        doc="Length of a sample.",
    )
    controller_window_count: int = key(
        "controller.quota.window.num",
        default=11,
        at_least=1,
        doc="Samples' worth of topic changes a client may save up.",
    )
    controller_window_size_s: int = key(
        "controller.quota.window.size.seconds",
        default=1,
        at_least=1,
        doc="Length of such a sample.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopicsSettings:
    """The broker's internal topics."""

    offsets_partitions: int = key(
        "offsets.topic.num.partitions",
        default=50,
        at_least=1,
        agreed=True,
        doc="Partitions of `__consumer_offsets`.",
    )
    offsets_replication_factor: int = key(
        "offsets.topic.replication.factor",
        kind=Kind.SHORT,
        default=3,
        at_least=1,
        doc="Replicas of `__consumer_offsets`. If it is not set, a cluster on the embedded store "
        "uses as many as it has brokers.",
    )
    offsets_segment_bytes: int = key(
        "offsets.topic.segment.bytes",
        default=100 << 20,
        at_least=14,
        doc="Segment size of `__consumer_offsets`.",
    )
    transactions_partitions: int = key(
        "transaction.state.log.num.partitions",
        default=50,
        at_least=1,
        agreed=True,
        doc="Partitions of `__transaction_state`.",
    )
    transactions_replication_factor: int = key(
        "transaction.state.log.replication.factor",
        kind=Kind.SHORT,
        default=3,
        at_least=1,
        doc="Replicas of `__transaction_state`; if it is not set, as for `__consumer_offsets`.",
    )
    transactions_min_isr: int = key(
        "transaction.state.log.min.isr",
        default=2,
        at_least=1,
        doc="In-sync replicas `__transaction_state` needs; if it is not set, at most as many as "
        "there are brokers.",
    )
    transactions_segment_bytes: int = key(
        "transaction.state.log.segment.bytes",
        default=100 << 20,
        at_least=14,
        doc="Segment size of `__transaction_state`.",
    )

    def lowered(self, field_names: Sequence[str], broker_count: int) -> "InternalTopicsSettings":
        """The settings with these fields limited to the number of brokers."""
        return replace(
            self, **{name: min(getattr(self, name), broker_count) for name in field_names}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilitySettings:
    """Metrics and health over HTTP."""

    host: str = key(
        "odradek.metrics.host",
        default="127.0.0.1",
        doc="The address of `/metrics` and `/healthz`. There is no login: do not open it to "
        "untrusted networks.",
    )
    port: int = key(
        "odradek.metrics.port",
        default=-1,
        between=(-1, 65_535),
        doc="Port of `/metrics` and `/healthz`; 0: any free one, -1: neither is served.",
    )
