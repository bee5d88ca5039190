"""A broker's parts in the hands of a test: requests in, answers out, metadata by hand."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from odradek.broker.config import TopicConfigs, load_broker_settings
from odradek.broker.context import BrokerContext
from odradek.broker.metadata_waiter import MetadataWaiter
from odradek.broker.peers.controller_services import ControllerServices
from odradek.broker.quotas.client_quotas import ClientQuotas
from odradek.broker.settings.log_levels import LogLevels
from odradek.broker.slice_turns import SliceTurns
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import (
    CreatePartitionsResult,
    DeletedTopic,
    ElectionOutcome,
    NewPartitions,
    NewTopic,
    ReassignmentOutcome,
    TopicResult,
)
from odradek.metadata.cache import MetadataCache
from odradek.metadata.changes import (
    AclAdded,
    AclRemoved,
    ConfigEdit,
    ConfigSet,
    FeatureSet,
    QuotaSet,
)
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.metadata.delta import ClusterDelta, ClusterMembership
from odradek.metadata.image import ConfigResource, LiveBroker, PartitionState, QuotaEntity
from odradek.metadata.isr_requests import IsrResult, WantedIsr
from odradek.metadata.ports import NO_EPOCHS, AlterIsrOutcome, IsrConflict, ProducerIds
from odradek.metrics import MetricRegistry
from odradek.model import (
    LEADER_DURING_DELETE,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from odradek.network.request import (
    ClientInformation,
    ConnectionContext,
    Request,
    RequestPlane,
    Response,
    SendResponse,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message
from odradek.protocol.enums import ConfigResourceType, ElectionType
from odradek.protocol.envelope import parse_response
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages.update_metadata import UpdateMetadataResponse
from odradek.protocol.schema import Message
from odradek.purgatory import DelayedOperationPurgatory, ManualTimer
from odradek.replication import ReplicaManager
from odradek.replication.fetch_session import FetchSessionCache
from odradek.replication.replica_manager import Purgatories, ReplicaManagerConfig
from odradek.replication.stats import ReplicationStats
from odradek.security.authorizer import AllowEverything, Authorizer
from odradek.storage.directories.log_manager import LogManager
from odradek.testing import ManualClock
from tests.support.caches import update_cache
from tests.support.logs import make_services
from tests.unit.coordinator.coordinator_fakes import Coordination

BROKER_ID = 0
LISTENER = "PLAINTEXT"
CLUSTER_ID = "abcdefghijklmnopqrstuv"
M = TypeVar("M", bound=Message)


def topic_id(number: int) -> uuid.UUID:
    return uuid.UUID(int=number)


class Answers:
    """A channel that keeps the answers to parked requests."""

    def __init__(self) -> None:
        self.sent: list[Response] = []

    def submit(self, request: Request) -> Response | None:
        raise AssertionError(f"{request} was not kept by a gate")

    def submit_again(self, request: Request) -> Response | None:
        raise AssertionError(f"{request} was not kept by a gate")

    def send_response(self, response: Response) -> None:
        self.sent.append(response)


class KeptTasks:
    """Keeps tasks until a test runs them."""

    def __init__(self) -> None:
        self.kept: list[Coroutine[Any, Any, None]] = []

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None:
        self.kept.append(work)

    async def sleep(self, delay_s: float, /) -> None:
        await asyncio.sleep(delay_s)

    async def run_all(self) -> None:
        """Runs all tasks, and those that they start, to their ends."""
        while self.kept:
            kept, self.kept = self.kept, []
            await asyncio.gather(*kept)


class FakeConnection:
    """Where requests come from."""

    processor_id = 0

    def __init__(
        self,
        *,
        listener: str = LISTENER,
        channel: RequestPlane | None = None,
        throttled: list[int] | None = None,
    ) -> None:
        self.is_closed = False
        self.channel = channel or Answers()
        self._throttled = [] if throttled is None else throttled
        self.context = ConnectionContext(
            connection_id="a:1-b:2-0",
            listener=listener,
            security_protocol=SecurityProtocol.PLAINTEXT,
            client_address="127.0.0.1",
        )

    def register_client(self, information: ClientInformation) -> None: ...

    def throttle(self, throttle_ms: int) -> None:
        self._throttled.append(throttle_ms)

    def complete(self, response: Response) -> None: ...


class FakeController:
    """Notes what it is asked for and says yes, unless told otherwise.

    Attributes:
        refusals: What to answer for a topic instead.
        error: Raised by the next calls.
        on_call: Runs before it answers, as the publish of what it made.
        deleting: Topics whose names are not free yet.
    """

    def __init__(self) -> None:
        self.is_active = True
        self.calls: list[tuple[str, Any]] = []
        self.refusals: dict[str, ErrorCode] = {}
        self.error: ErrorCode | None = None
        self.on_call: Callable[[], object] = lambda: None
        self.deleting: set[str] = set()
        self.elections: dict[TopicPartition, ElectionOutcome] = {}
        self.moves: dict[TopicPartition, ReplicaAssignment] = {}
        self.isr_results: list[IsrResult] = []
        self.deleted_ids: dict[str, uuid.UUID] = {}

    def _note(self, name: str, argument: Any) -> None:
        self.calls.append((name, argument))
        if self.error is not None:
            raise ApiError(self.error)
        self.on_call()

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicResult]:
        self._note("validate" if validate_only else "create", list(topics))
        return [self._created(topic) for topic in topics]

    def _created(self, topic: NewTopic) -> TopicResult:
        error = self.refusals.get(topic.name)
        if error is not None:
            return TopicResult(name=topic.name, error=error, message="refused")
        count = max(topic.partition_count, 1)
        return TopicResult(
            name=topic.name,
            topic_id=topic_id(len(topic.name)),
            assignment=dict.fromkeys(range(count), ReplicaAssignment((BROKER_ID,))),
            configs={name: value for name, value in topic.configs.items() if value is not None},
        )

    async def delete_topics(
        self, topics: Sequence[str], ids: Mapping[str, uuid.UUID]
    ) -> list[DeletedTopic]:
        self._note("delete", list(topics))
        self.deleted_ids = dict(ids)
        return [
            DeletedTopic(name=name, error=self.refusals.get(name, ErrorCode.NONE))
            for name in topics
        ]

    def is_deleting(self, topic: str) -> bool:
        return topic in self.deleting

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[CreatePartitionsResult]:
        self._note("validate" if validate_only else "grow", list(topics))
        return [
            CreatePartitionsResult(
                name=topic.name, error=self.refusals.get(topic.name, ErrorCode.NONE)
            )
            for topic in topics
        ]

    async def alter_isrs(
        self, broker_id: int, broker_epoch: int, wanted: Sequence[WantedIsr]
    ) -> list[IsrResult]:
        self._note("alter isrs", (broker_id, broker_epoch, list(wanted)))
        return self.isr_results

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> frozenset[TopicPartition]:
        self._note("shutdown", (broker_id, broker_epoch))
        return frozenset(self.moves)

    def check_registration(self, broker_id: int, broker_epoch: int) -> None:
        self._note("check", (broker_id, broker_epoch))

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, election_type: ElectionType
    ) -> dict[TopicPartition, ElectionOutcome]:
        self._note("elect", (partitions, election_type))
        return self.elections

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allows_other_count: bool = True,
    ) -> dict[TopicPartition, ReassignmentOutcome]:
        self._note("move" if allows_other_count else "move as many", dict(targets))
        return {
            tp: ReassignmentOutcome(self.refusals.get(tp.topic, ErrorCode.NONE)) for tp in targets
        }

    async def list_reassignments(
        self, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        self._note("list", partitions)
        return self.moves


class FakeControllerPort:
    """Notes changes as one write each; `codes` are the next answers.

    Args:
        stored: The overrides that edits are decided by.
    """

    def __init__(
        self, stored: Callable[[], Mapping[ConfigResource, Mapping[str, str]]] = dict
    ) -> None:
        self._stored = stored
        self.configs: list[ConfigSet] = []
        self.quotas: list[QuotaSet] = []
        self.features: list[FeatureSet] = []
        self.codes: list[ErrorCode] = []
        self.writes: list[int] = []  # Changes in each.
        self.on_write: Callable[[], object] = lambda: None

    def _answers(self, count: int) -> list[ErrorCode]:
        return [self.codes.pop(0) if self.codes else ErrorCode.NONE for _ in range(count)]

    def _written(self, count: int) -> list[ApiError | None]:
        self.writes.append(count)
        self.on_write()
        codes = self._answers(count)
        return [None if code is ErrorCode.NONE else ApiError(code, "not stored") for code in codes]

    async def alter_configs(self, edits: Sequence[ConfigEdit]) -> list[ApiError | None]:
        results: list[ApiError | None] = []
        for edit in edits:
            try:
                values = edit.decide(self._stored().get(edit.resource, {}))
            except ApiError as error:
                results.append(error)
            else:
                self.configs.append(ConfigSet(edit.resource, values))
                results.append(None)
        return [
            refused or failed
            for refused, failed in zip(results, self._written(len(edits)), strict=True)
        ]

    async def alter_quotas(self, changes: Sequence[QuotaSet]) -> list[ApiError | None]:
        self.quotas += changes
        return self._written(len(changes))

    async def alter_features(
        self, changes: Sequence[FeatureSet], *, is_checked_only: bool = False
    ) -> list[ApiError | None]:
        if not is_checked_only:
            self.features += changes
        return self._written(len(changes))

    async def alter_acls(self, changes: Sequence[AclAdded | AclRemoved]) -> list[ErrorCode]:
        return self._answers(len(changes))

    @property
    def broker_epoch(self) -> int:
        return 0

    async def register(self, broker: LiveBroker) -> int:
        return broker.id

    async def update_registration(self, broker: LiveBroker) -> None: ...

    async def notify_isr_changes(self, partitions: Iterable[TopicPartition]) -> None: ...

    async def alter_isr(
        self,
        tp: TopicPartition,
        state: LeaderAndIsr,
        *,
        controller_epoch: int,
        broker_epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> AlterIsrOutcome:
        return IsrConflict()

    async def allocate_producer_ids(self) -> ProducerIds:
        return ProducerIds(0, 999)

    async def report_log_dir_failure(self) -> None: ...

    async def controlled_shutdown(self, broker_epoch: int) -> frozenset[TopicPartition]:
        return frozenset()


class FakeProducerIds:
    async def next_id(self) -> int:
        return 1


class FakeTopicCreator:
    def __init__(self) -> None:
        self.started: list[str] = []

    def would_start(self, topic: str) -> bool:
        return topic not in self.started

    def start_creation(self, topic: str) -> None:
        self.started.append(topic)


class BrokerFixture:
    """A broker without sockets: `ask` a handler, `publish` metadata, `advance` time.

    Args:
        log_dirs: Data directories, for tests that need logs; they call `log_manager.startup`.
        settings: Keys of the broker.
        is_published: Whether it knows the cluster already, which is itself alone.
    """

    def __init__(
        self,
        *,
        log_dirs: Sequence[str] = ("unused",),
        settings: Mapping[str, object] | None = None,
        authorizer: Authorizer | None = None,
        delete_topics_enabled: bool = True,
        max_described_partitions: int = 2_000,
        is_published: bool = True,
    ) -> None:
        self.clock = ManualClock()
        self.timer = ManualTimer("topic")
        self.cache = MetadataCache(BROKER_ID)
        self.controller = FakeController()
        self.port = FakeControllerPort(lambda: self.cache.image.configs)
        self.settings = load_broker_settings(None, settings or {}, {})
        registry = MetricRegistry(self.clock, Random(2))
        self.quotas = ClientQuotas(self.settings.quotas, clock=self.clock, metrics=registry)
        self.log_manager = LogManager(log_dirs, services=make_services(clock=self.clock))
        self.replicas = ReplicaManager(
            ReplicaManagerConfig(broker_id=BROKER_ID),
            log_manager=self.log_manager,
            purgatories=Purgatories(
                DelayedOperationPurgatory("Produce", ManualTimer("Produce")),
                DelayedOperationPurgatory("Fetch", ManualTimer("Fetch")),
                DelayedOperationPurgatory("DeleteRecords", ManualTimer("DeleteRecords")),
            ),
            clock=self.clock,
            stats=ReplicationStats(registry),
        )
        self.replicas.use_metadata(self.cache.contains)
        self.waiter = MetadataWaiter(DelayedOperationPurgatory("topic", self.timer), self.clock)
        self.elections = DelayedOperationPurgatory[Any]("ElectLeader", self.timer)
        self.election_waiter = MetadataWaiter(self.elections, self.clock)
        self.loggers = logging.Manager(logging.RootLogger(logging.WARNING))
        self.coordination = Coordination(self.settings.groups, clock=self.clock, metrics=registry)
        answers = Answers()
        self.channel: RequestPlane = answers
        self.sent = answers.sent
        self.throttled: list[int] = []
        # The requests of the controller, and the answer to each.
        self.obeyed: list[ControlRequest] = []
        self.control_answer: ControlResponse | Exception = UpdateMetadataResponse(
            error_code=ErrorCode.NONE
        )
        self.tasks = KeptTasks()  # Of requests that are served in slices.
        self.context = BrokerContext(
            slices=SliceTurns(self.tasks),
            broker_id=BROKER_ID,
            cluster_id=CLUSTER_ID,
            clock=self.clock,
            cache=self.cache,
            replicas=self.replicas,
            fetch_sessions=FetchSessionCache(10, random=Random(1)),
            producer_ids=FakeProducerIds(),
            quotas=self.quotas,
            topic_creator=FakeTopicCreator(),
            auto_create_topics=True,
            internal_topics=frozenset({"__consumer_offsets", "__transaction_state"}),
            compression_type=lambda _topic: "producer",
            controller=self.controller,
            controller_port=self.port,
            controller_services=ControllerServices(self.controller, self._take_producer_ids),
            control=self._obey,
            peer_listeners=frozenset({LISTENER}),
            metadata_waiter=self.waiter,
            election_waiter=self.election_waiter,
            topic_configs=TopicConfigs(self.settings),
            groups=self.coordination.groups,
            broker_settings=lambda: self.settings,
            log_levels=LogLevels(self.loggers),
            authorizer=authorizer or AllowEverything(),
            delete_topics_enabled=delete_topics_enabled,
            max_described_partitions=max_described_partitions,
        )
        if is_published:
            self.publish_brokers(BROKER_ID)

    async def _take_producer_ids(self, broker_id: int) -> ProducerIds:
        return ProducerIds(broker_id * 1000, broker_id * 1000 + 999)

    async def _obey(self, request: ControlRequest) -> ControlResponse:
        self.obeyed.append(request)
        if isinstance(self.control_answer, Exception):
            raise self.control_answer
        return self.control_answer

    # Metadata

    def publish(self, delta: ClusterDelta) -> None:
        update_cache(self.cache, 0, delta)
        self.waiter.notify()
        self.election_waiter.notify()

    def publish_brokers(self, *broker_ids: int) -> None:
        brokers = tuple(
            LiveBroker(
                broker_id,
                (
                    Endpoint(f"h{broker_id}", 9092, LISTENER, SecurityProtocol.PLAINTEXT),
                    Endpoint(f"x{broker_id}", 9093, "EXTERNAL", SecurityProtocol.PLAINTEXT),
                ),
            )
            for broker_id in broker_ids
        )
        self.publish(ClusterDelta(membership=ClusterMembership(BROKER_ID, brokers)))

    def publish_topic(
        self, name: str, partition_count: int = 1, *, number: int = 1, leader: int = BROKER_ID
    ) -> uuid.UUID:
        """Shows a topic whose id is made of `number`."""
        states = tuple(
            PartitionState(
                topic=name,
                partition=partition,
                leader=leader,
                leader_epoch=0,
                isr=(BROKER_ID,),
                replicas=(BROKER_ID,),
            )
            for partition in range(partition_count)
        )
        self.publish(ClusterDelta(partitions=states, topic_ids={name: topic_id(number)}))
        return topic_id(number)

    def remove_topic(self, name: str) -> None:
        self.publish_topic(
            name, len(self.cache.image.topics[name].partitions), leader=LEADER_DURING_DELETE
        )

    def publish_configs(
        self, kind: ConfigResourceType, name: str, overrides: Mapping[str, str]
    ) -> None:
        self.publish(ClusterDelta(configs={ConfigResource(kind, name): overrides}))

    def publish_quota(self, *components: tuple[str, str | None], **values: float) -> None:
        self.publish(ClusterDelta(quotas={QuotaEntity(components): values}))
        self.quotas.update(self.cache.image.quotas)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance_clock(ms)

    # Requests

    def request(
        self,
        key: ApiKey,
        message: Message,
        version: int,
        *,
        listener: str = LISTENER,
        client_id: str = "c1",
    ) -> Request:
        header = RequestHeader(key, version, 7, client_id)
        payload = memoryview(encode_message(message, version))
        connection = FakeConnection(
            listener=listener, channel=self.channel, throttled=self.throttled
        )
        request = Request(connection, header, payload, 0, 0)
        request.dequeue_ns = self.clock.monotonic_ns()
        return request

    def call(
        self,
        handler: Callable[[Request, BrokerContext], Any],
        request: Request,
    ) -> Response | None:
        """Runs a handler; what it awaits must not wait."""
        result = handler(request, self.context)
        if isinstance(result, Coroutine):
            result = run(result)
        assert result is None or isinstance(result, Response)
        return result

    def ask(
        self,
        handler: Callable[[Request, BrokerContext], Any],
        key: ApiKey,
        message: Message,
        version: int,
        answer_type: type[M],
        *,
        listener: str = LISTENER,
    ) -> M:
        """The answer a handler gives at once."""
        response = self.call(handler, self.request(key, message, version, listener=listener))
        assert response is not None, "the request is parked"
        return parsed(response, answer_type)

    def last_sent(self, answer_type: type[M]) -> M:
        """The answer to a request that was parked."""
        return parsed(self.sent.pop(), answer_type)


def run(handling: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    try:
        handling.send(None)
    except StopIteration as stop:
        return stop.value
    handling.close()
    raise AssertionError("it waits")


def parsed(response: Response, answer_type: type[M]) -> M:
    """The message of an answer."""
    assert isinstance(response, SendResponse)
    header = response.request.header
    payload = b"".join(bytes(chunk) for chunk in response.chunks)  # type: ignore[arg-type]
    correlation_id, message = parse_response(payload, header.api_key, header.api_version)
    assert correlation_id == header.correlation_id
    assert isinstance(message, answer_type)
    return message
