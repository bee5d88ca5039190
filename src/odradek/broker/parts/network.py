"""The listeners of a broker, and the context of its handlers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, closing
from typing import Final

from odradek.broker.config import BrokerSettings
from odradek.broker.context import BrokerContext
from odradek.broker.dispatch import StartGate, dispatch
from odradek.broker.expansions import Expansions
from odradek.broker.parts.base import Base
from odradek.broker.parts.coordinators import offsets_topic, transactions_topic
from odradek.broker.parts.replication import INTERNAL_TOPICS
from odradek.broker.parts.state import State
from odradek.broker.peers.controller_link import ControllerLink
from odradek.broker.peers.controller_services import ControllerServices
from odradek.broker.settings.live_settings import (
    apply_network_settings,
    listener_security,
    published_by,
)
from odradek.broker.slice_turns import SliceTurns
from odradek.broker.topic_creation import AutoTopicCreator
from odradek.broker.transactions.verification import TransactionVerification
from odradek.controller import Controller
from odradek.coordinator.group.coordinator import OFFSETS_TOPIC
from odradek.coordinator.transaction.coordinator import TRANSACTIONS_TOPIC
from odradek.metadata.image import LiveBroker
from odradek.metadata.ports import MetadataEngine
from odradek.model import Endpoint
from odradek.network.endpoint import unreachable_endpoints
from odradek.network.poller import Poller
from odradek.network.socket_server import SocketServer
from odradek.purgatory import SystemTimer
from odradek.replication import register_fetch_session_metrics
from odradek.replication.fetch_session import FetchSessionCache
from odradek.tasks import Tasks

__all__ = ["Network", "build_context", "build_poller", "serve_requests"]

logger = logging.getLogger(__name__)

_STOP_GRACE_MS: Final = 5_000  # For answers that are under way when the broker stops.


def build_context(
    base: Base,
    engine: MetadataEngine,
    state: State,
    controller: Controller,
    services: ControllerServices,
    link: ControllerLink,
    verification: TransactionVerification,
    tasks: Tasks,
) -> BrokerContext:
    """Builds the context of the handlers from the parts of a broker."""
    settings, around = base.settings, base.around
    storage, replication = state.storage, state.replication

    def broker_count() -> int:
        return len(state.cache.get_alive_brokers())

    sessions = FetchSessionCache(settings.requests.fetch_session_slots, random=around.random)
    register_fetch_session_metrics(sessions, base.metrics)
    return BrokerContext(
        broker_id=settings.node.id,
        cluster_id=engine.cluster_id,
        clock=around.clock,
        cache=state.cache,
        replicas=replication.replicas,
        fetch_sessions=sessions,
        producer_ids=state.producer_ids,
        quotas=state.quotas,
        topic_creator=AutoTopicCreator(
            link.create_topics,
            tasks,
            {
                OFFSETS_TOPIC: lambda: offsets_topic(settings, broker_count()),
                TRANSACTIONS_TOPIC: lambda: transactions_topic(settings, broker_count()),
            },
        ),
        auto_create_topics=settings.topics.auto_create,
        internal_topics=INTERNAL_TOPICS,
        compression_type=lambda topic: storage.topic_configs.get(topic).compression_type,
        controller=controller,
        controller_port=engine.port,
        controller_services=services,
        control=engine.handle_remote,
        peer_listeners=settings.network.peer_listeners,
        metadata_waiter=replication.waiter,
        election_waiter=replication.election_waiter,
        topic_configs=storage.topic_configs,
        groups=state.groups,
        transactions=state.transactions,
        markers=state.markers,
        verification=verification,
        expansions=Expansions(tasks, storage.expander),
        slices=SliceTurns(tasks),
        broker_settings=lambda: state.changes.current,
        delete_topics_enabled=settings.topics.delete_enabled,
        max_fetch_bytes=settings.requests.fetch_max_bytes,
        max_described_partitions=settings.requests.max_described_partitions,
    )


class Network:
    """A server whose ports are bound, and its advertised endpoints.

    Attributes:
        server: The listeners and their connections.
        endpoints: The advertised endpoints.
        on_endpoints: Called when the endpoints have changed.
    """

    def __init__(self, server: SocketServer, settings: BrokerSettings) -> None:
        self.server = server
        self.endpoints: tuple[Endpoint, ...] = published_by(server, settings.network)
        self.on_endpoints: Callable[[], None] = lambda: None
        self._broker_id = settings.node.id
        self._rack = settings.node.rack
        _warn_of_unreachable(settings.network.endpoints, self.endpoints)

    def registration(self) -> LiveBroker:
        """The registration of this broker."""
        return LiveBroker(self._broker_id, self.endpoints, self._rack)

    def apply(self, before: BrokerSettings, after: BrokerSettings) -> None:
        """Applies changed settings."""
        apply_network_settings(self.server, before, after)
        endpoints = published_by(self.server, after.network)
        if endpoints != self.endpoints:
            self.endpoints = endpoints
            _warn_of_unreachable(after.network.endpoints, endpoints)
            self.on_endpoints()


def _warn_of_unreachable(bound: Iterable[Endpoint], published: Iterable[Endpoint]) -> None:
    for endpoint in unreachable_endpoints(bound, published):
        logger.warning(
            "Listener %s accepts clients from every interface, and tells them to connect to %s:%d,"
            " which is their own machine for all but those on this one: set"
            " advertised.listeners=%s://HOST:%d, HOST as clients find this machine",
            endpoint.listener, endpoint.host, endpoint.port, endpoint.listener, endpoint.port,
        )  # fmt: skip


def build_poller(base: Base) -> AbstractContextManager[Poller]:
    """Builds the poller of clients' sockets; it is closed on exit."""
    return closing(Poller(asyncio.get_running_loop(), base.around.streams.epoll))


@asynccontextmanager
async def serve_requests(
    base: Base, context: BrokerContext, gate: StartGate, poller: Poller
) -> AsyncIterator[Network]:
    """Binds the listeners and accepts clients, whose requests wait at the start gate.

    On exit it accepts no more clients, and waits a while for answers under way.

    Raises:
        ConfigError: An address or a certificate cannot be used.
    """
    settings, around = base.settings, base.around
    loop = asyncio.get_running_loop()
    network = settings.network
    timer = SystemTimer("network", loop=loop, clock=around.clock)
    timer.drive_with(lambda: timer.advance_clock(0))
    try:
        async with SocketServer(
            network,
            dispatch(context, gate),
            broker_id=settings.node.id,
            loop=loop,
            timer=timer,
            clock=around.clock,
            metrics=base.metrics,
            security={
                endpoint.listener: listener_security(settings, endpoint)
                for endpoint in network.endpoints
            },
            limits={
                endpoint.listener: settings.listener_limits(endpoint.listener)
                for endpoint in network.endpoints
            },
            streams=around.streams,
            threads=around.threads,
            pages=around.pages,
            poller=poller,
        ) as server:
            server.bind()
            try:
                part = Network(server, settings)
                server.start_processing()
                yield part
            finally:
                await server.shut_down(_STOP_GRACE_MS)
    finally:
        timer.shutdown()
