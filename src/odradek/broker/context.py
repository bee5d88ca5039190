"""What a handler may use: the parts of a broker, as far as requests need them."""

from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from odradek.broker.config import BrokerSettings, TopicConfigs
from odradek.broker.error_counts import count_errors
from odradek.broker.expansions import Expansions
from odradek.broker.metadata_waiter import MetadataWaiter
from odradek.broker.quotas.client_quotas import MutationQuota
from odradek.broker.settings.log_levels import LogLevels
from odradek.clock import PreciseClock
from odradek.coordinator.group.coordinator import GroupCoordinator
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr
from odradek.metadata.cache import MetadataCache
from odradek.metadata.ports import ControllerApi, ControllerPort
from odradek.network.request import Request, SendResponse
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.headers import encode_response_header
from odradek.protocol.schema import Message, replace
from odradek.replication import ReplicaManager
from odradek.replication.fetch_session import FetchSessionCache
from odradek.security.authorizer import AllowEverything, Authorizer

__all__ = [
    "BrokerContext",
    "ProducerIdSource",
    "RequestQuotas",
    "TopicCreator",
    "note_local_end",
    "reply",
    "reply_throttled",
    "request_throttle_ms",
]


class TopicCreator(Protocol):
    """Creates topics that are asked for before they exist."""

    def would_start(self, topic: str) -> bool:
        """Whether `start_creation` would begin anything."""
        ...

    def start_creation(self, topic: str) -> None:
        """Begins to create a topic with the broker's defaults, unless that is under way."""
        ...


class ProducerIdSource(Protocol):
    """Hands out producer ids, each once in the life of the cluster."""

    async def next_id(self) -> int:
        """Raises:
        ApiError: COORDINATOR_LOAD_IN_PROGRESS, none can be had now.
        """
        ...


class RequestQuotas(Protocol):
    """How long a client has to keep still; 0 for most."""

    @property
    def limits_traffic(self) -> bool:
        """Whether anybody's bytes or time are limited; otherwise nothing needs to be counted."""
        ...

    def produce_throttle_ms(self, request: Request, size: int) -> int: ...

    def fetch_throttle_ms(self, request: Request, size: int) -> int: ...

    def uncount_fetch(self, request: Request, size: int) -> None:
        """Takes back what was counted for bytes that are not sent after all."""
        ...

    def max_fetch_bytes(self, request: Request) -> int | None:
        """The most a client may be sent at once; None without a quota."""
        ...

    def request_throttle_ms(self, request: Request, busy_ns: int) -> int:
        """Counts the time a request kept the loop busy."""
        ...

    def mutation_quota(self, request: Request, *, is_strict: bool) -> MutationQuota:
        """What a request may change in the cluster; asked for once per request."""
        ...


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The parts of a broker."""

    broker_id: int
    cluster_id: str
    clock: PreciseClock
    cache: MetadataCache
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIdSource
    quotas: RequestQuotas
    topic_creator: TopicCreator
    auto_create_topics: bool
    internal_topics: frozenset[str]
    # Topic -> its compression.type, for the gate of old fetch versions.
    compression_type: Callable[[str], str]
    # The controller of this broker, which need not be the active one.
    controller: ControllerApi
    # What any broker may change in the cluster: configs and quotas.
    controller_port: ControllerPort
    # Wake requests that wait for a publish: for topics, and for leaders.
    metadata_waiter: MetadataWaiter
    election_waiter: MetadataWaiter
    topic_configs: TopicConfigs
    # Consumer groups, as far as this broker coordinates them.
    groups: GroupCoordinator
    # What counts for this broker now.
    broker_settings: Callable[[], BrokerSettings]
    # Checks produced batches that are too large, expanded, for the loop; None: they are refused.
    expansions: Expansions | None = None
    log_levels: LogLevels = field(default_factory=LogLevels)
    authorizer: Authorizer = field(default_factory=AllowEverything)
    # delete.topic.enable
    delete_topics_enabled: bool = True
    # fetch.max.bytes: records in one answer, whatever its request asks for.
    max_fetch_bytes: int = 55 << 20
    # max.request.partition.size.limit: partitions in one answer of DescribeTopicPartitions.
    max_described_partitions: int = 2_000


def reply(request: Request, message: Message) -> SendResponse:
    """The answer to a request, in the version it was asked in; its errors are counted."""
    header = request.header
    if request.errors is None:
        request.errors = count_errors(message)
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return SendResponse(request, [start, *encode_message_parts(message, header.api_version)])


def note_local_end(request: Request, context: BrokerContext) -> None:
    """Stamps the end of a handler's own work, before it waits for others."""
    request.api_local_complete_ns = context.clock.monotonic_ns()


def request_throttle_ms(request: Request, context: BrokerContext, *, other_ms: int = 0) -> int:
    """Counts a request against its client's share of the broker's time, as its answer is made.

    Returns how long the client has to keep still; its connection is not read for as long.

    Args:
        other_ms: What another quota demands; the longer one counts.
    """
    throttle_ms = other_ms
    if context.quotas.limits_traffic:
        end_ns = request.api_local_complete_ns
        if end_ns < 0:
            end_ns = context.clock.monotonic_ns()
        busy_ns = end_ns - request.dequeue_ns
        throttle_ms = max(other_ms, context.quotas.request_throttle_ms(request, busy_ns))
    if throttle_ms > 0:
        request.throttle(throttle_ms)
    return throttle_ms


def reply_throttled(
    request: Request, message: Message, context: BrokerContext, *, throttle_ms: int = 0
) -> SendResponse:
    """The answer to a request that counts against its client's share of the broker's time.

    The client reads in it how long to keep still, and is not heard for as long.

    Args:
        throttle_ms: What another quota demands; the longer one counts.
    """
    throttle_ms = request_throttle_ms(request, context, other_ms=throttle_ms)
    if throttle_ms > 0:
        message = replace(message, throttle_time_ms=throttle_ms)
    return reply(request, message)
