"""The parts of a broker that handlers use, and the replies they make."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from odradek.broker.config import BrokerSettings, TopicConfigs
from odradek.broker.error_counts import count_errors
from odradek.broker.expansions import Expansions
from odradek.broker.metadata_waiter import MetadataWaiter
from odradek.broker.peers.controller_services import ControllerServices
from odradek.broker.quotas.client_quotas import MutationQuota
from odradek.broker.settings.log_levels import LogLevels
from odradek.broker.slice_turns import SliceTurns
from odradek.broker.transactions.verification import Support, VerificationErrors
from odradek.clock import PreciseClock
from odradek.coordinator.group.coordinator import GroupCoordinator
from odradek.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.errors import ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control_requests import ControlRequestHandler
from odradek.metadata.ports import ControllerApi, ControllerPort
from odradek.model import TopicPartition, TransactionMarker
from odradek.network.request import Request, SendResponse
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.headers import encode_response_header
from odradek.protocol.schema import Message, replace
from odradek.records.batch import BatchHeader
from odradek.replication import ReplicaManager
from odradek.replication.fetch_session import FetchSessionCache
from odradek.security.authorizer import ALLOW_EVERYTHING, Authorizer

__all__ = [
    "BatchVerification",
    "BrokerContext",
    "MarkerWriter",
    "ProducerIdSource",
    "RequestQuotas",
    "TopicCreator",
    "is_from_peer_listener",
    "note_local_end",
    "reply",
    "reply_throttled",
    "request_throttle_ms",
]


class MarkerWriter(Protocol):
    """Appends transaction markers to the leaders here; `LocalMarkers`."""

    def steps(
        self,
        markers: Sequence[TransactionMarker],
        respond: Callable[[list[dict[TopicPartition, ErrorCode]]], None],
    ) -> Iterator[None]:
        """Appends in small steps; responds once, with the outcome of each marker."""
        ...


class BatchVerification(Protocol):
    """Asks the coordinators of transactions; `TransactionVerification`."""

    def needed(
        self, batches: Mapping[TopicPartition, BatchHeader], support: Support
    ) -> dict[TopicPartition, BatchHeader]:
        """The transactional batches that a coordinator has to confirm."""
        ...

    def start(
        self,
        transactional_id: str,
        batches: Mapping[TopicPartition, BatchHeader],
        support: Support,
        respond: Callable[[VerificationErrors], None],
    ) -> None:
        """Asks for these batches of one producer; responds once, with the refused ones."""
        ...


class TopicCreator(Protocol):
    """Creates topics on the first request for them."""

    def would_start(self, topic: str) -> bool:
        """Whether `start_creation` would start a creation."""
        ...

    def start_creation(self, topic: str) -> None:
        """Begins to create a topic with the broker's defaults, unless that is under way."""
        ...


class ProducerIdSource(Protocol):
    """Hands out producer ids, each once in a cluster."""

    async def next_id(self) -> int:
        """The next id.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, no id is available now.
        """
        ...


class RequestQuotas(Protocol):
    """The throttle times of clients; 0 for most."""

    @property
    def limits_traffic(self) -> bool:
        """Whether any client's bytes or time are limited; otherwise nothing needs to be counted."""
        ...

    def produce_throttle_ms(self, request: Request, size: int) -> int: ...

    def fetch_throttle_ms(self, request: Request, size: int) -> int: ...

    def uncount_fetch(self, request: Request, size: int) -> None:
        """Subtracts counted bytes that are not sent after all."""
        ...

    def max_fetch_bytes(self, request: Request) -> int | None:
        """The maximum of bytes to send to a client at once; None without a quota."""
        ...

    def request_throttle_ms(self, request: Request, busy_ns: int) -> int:
        """Counts the time a request occupied the loop."""
        ...

    def mutation_quota(self, request: Request, *, is_strict: bool) -> MutationQuota:
        """The quota on a request's changes of the cluster; called once per request."""
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
    # The controller of this broker, active or not.
    controller: ControllerApi
    # Changes that any broker may make in the cluster: configs and quotas.
    controller_port: ControllerPort
    # Serves the requests of brokers, if this broker is the controller.
    controller_services: ControllerServices
    # Serves the requests of the cluster's controller.
    control: ControlRequestHandler
    # The listeners of other brokers: the inter-broker and the control plane's.
    peer_listeners: frozenset[str]
    # Park requests that wait for a publish: for topics, and for leaders.
    metadata_waiter: MetadataWaiter
    election_waiter: MetadataWaiter
    topic_configs: TopicConfigs
    # The consumer groups that this broker coordinates.
    groups: GroupCoordinator
    # The effective settings of this broker.
    broker_settings: Callable[[], BrokerSettings]
    # Checks produced batches that are too large, expanded, for the loop; None: they are refused.
    expansions: Expansions | None = None
    # Takes turns between requests that are served in slices; None: there is no loop, as in tests.
    slices: SliceTurns | None = None
    # The transactional ids that this broker coordinates; None: there are none, as in tests.
    transactions: TransactionCoordinator | None = None
    # Writes the ends of transactions to the leaders here; None: there are none, as in tests.
    markers: MarkerWriter | None = None
    # Confirms transactions before their first batch; None: they need no confirmation, as in tests.
    verification: BatchVerification | None = None
    log_levels: LogLevels = field(default_factory=LogLevels)
    authorizer: Authorizer = ALLOW_EVERYTHING
    # delete.topic.enable
    delete_topics_enabled: bool = True
    # fetch.max.bytes: records in one answer, whatever its request's limit.
    max_fetch_bytes: int = 55 << 20
    # max.request.partition.size.limit: partitions in one answer of DescribeTopicPartitions.
    max_described_partitions: int = 2_000


def is_from_peer_listener(request: Request, context: BrokerContext) -> bool:
    """Whether a request came by a listener of other brokers."""
    return request.context.listener in context.peer_listeners


def reply(request: Request, message: Message) -> SendResponse:
    """The answer to a request, in the version of the request; its errors are counted."""
    header = request.header
    if request.errors is None:
        request.errors = count_errors(message)
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return SendResponse(request, [start, *encode_message_parts(message, header.api_version)])


def note_local_end(request: Request, context: BrokerContext) -> None:
    """Notes the end of a handler's own work, before it waits."""
    request.api_local_complete_ns = context.clock.monotonic_ns()


def request_throttle_ms(request: Request, context: BrokerContext, *, other_ms: int = 0) -> int:
    """Counts a request against its client's share of the broker's time, as its answer is made.

    Returns the throttle time, for which the client's connection is not read.

    Args:
        other_ms: The throttle time of another quota; the longer one counts.
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

    It contains the throttle time, for which the client's connection is not read.

    Args:
        throttle_ms: The throttle time of another quota; the longer one counts.
    """
    throttle_ms = request_throttle_ms(request, context, other_ms=throttle_ms)
    if throttle_ms > 0:
        message = replace(message, throttle_time_ms=throttle_ms)
    return reply(request, message)
