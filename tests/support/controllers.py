"""Controllers on an embedded store, with brokers that only write down what they are told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from odradek.controller import (
    ControlChannel,
    Controller,
    ControllerConfig,
    LocalChannel,
)
from odradek.controller.events import ControllerActivity
from odradek.coordination import EmbeddedEngine
from odradek.coordination.store import CoordinationStore
from odradek.errors import ErrorCode, NoNode
from odradek.files import Disk
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.metadata.image import LiveBroker
from odradek.metadata.ports import MetadataPersistence
from odradek.metadata_store.bootstrap import create_parents
from odradek.metadata_store.broker_port import StoreControllerPort
from odradek.metadata_store.persistence import StorePersistence
from odradek.metrics import MetricName, MetricRegistry
from odradek.model import Endpoint, SecurityProtocol, TopicPartition
from odradek.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from odradek.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from odradek.testing import ManualClock


def broker(broker_id: int, port: int | None = None) -> LiveBroker:
    endpoint = Endpoint("h", port or 9092 + broker_id, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    return LiveBroker(broker_id, (endpoint,))


class RecordingBroker:
    """Obeys every control request and keeps it; can be told to fail."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.requests: list[ControlRequest] = []
        self.delete_errors: dict[TopicPartition, ErrorCode] = {}
        self.leader_errors: dict[TopicPartition, ErrorCode] = {}
        # Cleared: StopReplica with delete is not answered.
        self.answers_deletions = asyncio.Event()
        self.answers_deletions.set()

    async def handle(self, request: ControlRequest) -> ControlResponse:
        self.requests.append(request)
        match request:
            case LeaderAndIsrRequest():
                return LeaderAndIsrResponse(topics=self._leader_results(request))
            case UpdateMetadataRequest():
                return UpdateMetadataResponse()
            case StopReplicaRequest():
                partitions = [
                    (TopicPartition(topic.topic_name, p.partition_index), p.delete_partition)
                    for topic in request.topic_states
                    for p in topic.partition_states
                ]
                if any(deletes for _, deletes in partitions):
                    await self.answers_deletions.wait()
                return StopReplicaResponse(
                    partition_errors=[
                        StopReplicaPartitionError(
                            topic_name=tp.topic,
                            partition_index=tp.partition,
                            error_code=self.delete_errors.get(tp, ErrorCode.NONE)
                            if deletes
                            else ErrorCode.NONE,
                        )
                        for tp, deletes in partitions
                    ]
                )

    def _leader_results(self, request: LeaderAndIsrRequest) -> list[LeaderAndIsrTopicError]:
        return [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=p.partition_index,
                        error_code=self.leader_errors.get(
                            TopicPartition(topic.topic_name, p.partition_index), ErrorCode.NONE
                        ),
                    )
                    for p in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ]

    def take(self) -> list[ControlRequest]:
        taken, self.requests = self.requests, []
        return taken

    def names(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.requests]

    def announced(self) -> dict[TopicPartition, int]:
        """The last leader each partition was announced with."""
        leaders = {}
        for request in self.requests:
            if isinstance(request, UpdateMetadataRequest):
                for topic in request.topic_states:
                    for p in topic.partition_states:
                        leaders[TopicPartition(topic.topic_name, p.partition_index)] = p.leader
        return leaders


class Member:
    """One broker of a cluster: session, port, controller."""

    def __init__(
        self,
        cluster: "Cluster",
        broker_id: int,
        store: CoordinationStore,
        *,
        config: ControllerConfig | None = None,
        wrap: Callable[[MetadataPersistence], MetadataPersistence] = lambda persistence: (
            persistence
        ),
        unclean_default: bool = False,
    ) -> None:
        self.broker_id = broker_id
        self.store = store
        self.metrics = MetricRegistry(cluster.clock, Random(1))
        self.port = StoreControllerPort(
            store,
            broker_id,
            clock=cluster.clock,
            controlled_shutdown=cluster.controlled_shutdown,
            registration_timeout_s=60,
        )
        self.persistence = StorePersistence(
            store,
            broker_id,
            clock=cluster.clock,
            reregister=self.port.register_again,
            sleep=cluster.sleep,
        )
        self.controller = Controller(
            broker_id,
            wrap(self.persistence),
            cluster.open_channel,
            clock=cluster.clock,
            metrics=self.metrics,
            random=Random(broker_id),
            config=config,
            unclean_default=lambda: unclean_default,
            sleep=cluster.sleep,
        )

    async def start(self, *, registers: bool = True) -> None:
        if registers:
            await self.port.register(broker(self.broker_id))
        await self.controller.start()

    async def stop(self) -> None:
        await self.controller.stop()
        await self.store.session.close()

    def gauge(self, name: str) -> float:
        gauge = self.metrics.get(MetricName("kafka.controller", "KafkaController", name))
        assert gauge is not None
        return gauge.read()  # type: ignore[union-attr]  # all of that type are gauges

    @property
    def is_busy(self) -> bool:
        controller, persistence = self.controller, self.persistence
        channels = controller._senders.channels
        senders = channels._senders.values() if channels else ()
        return bool(
            controller._events.size
            or controller.state is not ControllerActivity.IDLE
            # While it takes part in an election it does not wait for anything to happen.
            or not persistence._is_filled._waiters
            or any(sender.is_busy for sender in senders)
        )


class Cluster:
    """Several members over one embedded engine."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.clock = ManualClock()
        self.recorders: dict[int, RecordingBroker] = {}
        self.members: list[Member] = []

    async def add(self, broker_id: int, **options: object) -> Member:
        member = Member(self, broker_id, self.engine.connect(), **options)  # type: ignore[arg-type]
        self.members.append(member)
        await member.start()
        await self.settle()
        return member

    def recorder(self, broker_id: int) -> RecordingBroker:
        return self.recorders.setdefault(broker_id, RecordingBroker(broker_id))

    def open_channel(self, target: LiveBroker, _endpoint: Endpoint | None) -> ControlChannel:
        return LocalChannel(self.recorder(target.id).handle)

    async def sleep(self, _seconds: float) -> None:
        await asyncio.sleep(0.001)

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> frozenset[TopicPartition]:
        return await self.active.controller.controlled_shutdown(broker_id, broker_epoch)

    @property
    def active(self) -> Member:
        [member] = [member for member in self.members if member.controller.is_active]
        return member

    async def remove(self, member: Member) -> None:
        self.members.remove(member)
        await member.stop()
        await self.settle()

    async def settle(self) -> None:
        """Waits until nobody has anything to do: idle for several looks in a row."""
        quiet = 0
        while quiet < 5:
            is_busy = any(member.is_busy for member in self.members)
            quiet = 0 if is_busy else quiet + 1
            await asyncio.sleep(0.001)

    async def stop(self) -> None:
        for member in self.members:
            await member.stop()
        self.members.clear()


@asynccontextmanager
async def running_cluster(directory: Path, *, disk: Disk | None = None) -> AsyncIterator[Cluster]:
    """A cluster without members yet."""
    async with EmbeddedEngine(str(directory), disk=disk) as engine:
        store = engine.connect()
        await create_parents(store)
        await store.session.close()
        cluster = Cluster(engine)
        try:
            yield cluster
        finally:
            await cluster.stop()


async def tree(store: CoordinationStore, path: str = "") -> Mapping[str, bytes | None]:
    """Every node below a path with its data."""
    found: dict[str, bytes | None] = {}
    waiting = [path or "/"]
    while waiting:
        current = waiting.pop()
        try:
            data, _ = await store.get(current)
            names, _ = await store.children(current)
        except NoNode:
            continue
        found[current] = data
        waiting += [f"{current.rstrip('/')}/{name}" for name in names]
    return found
