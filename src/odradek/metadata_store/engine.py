"""The store engine of one broker: its session with a coordination store, and the ports over it."""

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import NamedTuple

from odradek.clock import Clock
from odradek.coordination.embedded import EmbeddedEngine
from odradek.coordination.store import CoordinationStore
from odradek.files import Disk
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.metadata.image import ClusterImage
from odradek.metadata.ports import ControlledShutdownCall
from odradek.metadata_store.bootstrap import claim_cluster_id, create_parents
from odradek.metadata_store.broker_port import REGISTRATION_TIMEOUT_S, StoreControllerPort
from odradek.metadata_store.feed import StoreFeed
from odradek.metadata_store.persistence import StorePersistence
from odradek.protocol.inter_broker import NEWEST_NODE_FORMS, NodeForms

__all__ = ["StoreEngine", "build_engine", "open_embedded", "open_session"]


class StoreEngine(NamedTuple):
    """`MetadataEngine` over a coordination store."""

    broker_id: int
    cluster_id: str
    persistence: StorePersistence
    feed: StoreFeed
    port: StoreControllerPort

    async def handle(self, request: ControlRequest) -> ControlResponse:
        """Serves a request of the controller to this broker: it becomes an item of the feed.

        Raises:
            StoreError: The configs of a topic could not be read: send the request again.
            asyncio.CancelledError: The broker stops.
        """
        return await self.feed.handle(request)

    async def handle_remote(self, request: ControlRequest) -> ControlResponse:
        """Serves a request that came from the controller of another broker.

        Raises:
            StoreError: The configs of a topic could not be read: send the request again.
            asyncio.CancelledError: The broker stops.
        """
        return await self.feed.handle_remote(request)


@asynccontextmanager
async def open_embedded(
    directory: str,
    broker_id: int,
    *,
    clock: Clock,
    disk: Disk,
    executor: Executor,
    new_cluster_id: Callable[[], str],
    controlled_shutdown: ControlledShutdownCall,
    image: Callable[[], ClusterImage],
    nodes: NodeForms = NEWEST_NODE_FORMS,
) -> AsyncIterator[StoreEngine]:
    """Opens the embedded store of a directory; the session and then the store close at the end.

    Args:
        directory: An existing data directory.
        broker_id: This broker.
        clock: Time.
        disk: The disk seam.
        executor: Runs blocking calls.
        new_cluster_id: Makes an id for a cluster that has none.
        controlled_shutdown: Asks the active controller (broker id, broker epoch).
        image: The image that this broker has published.
        nodes: The forms of nodes to write.

    Raises:
        LogDirLockedError: Another process uses the directory.
        StoreCorruptError: The files of the store are damaged.
        BadNodeData: The stored cluster id cannot be read.
    """
    async with (
        EmbeddedEngine(directory, disk=disk, executor=executor) as embedded,
        open_session(
            embedded.connect(),
            broker_id,
            clock=clock,
            new_cluster_id=new_cluster_id,
            controlled_shutdown=controlled_shutdown,
            image=image,
            nodes=nodes,
        ) as engine,
    ):
        yield engine


@asynccontextmanager
async def open_session(
    store: CoordinationStore,
    broker_id: int,
    *,
    clock: Clock,
    new_cluster_id: Callable[[], str],
    controlled_shutdown: ControlledShutdownCall,
    image: Callable[[], ClusterImage],
    nodes: NodeForms = NEWEST_NODE_FORMS,
) -> AsyncIterator[StoreEngine]:
    """The engine over a session with an embedded store; the session is closed at the end.

    Args:
        store: The session of this broker alone.
        broker_id: This broker.
        clock: Time.
        new_cluster_id: Makes an id for a cluster that has none.
        controlled_shutdown: Asks the active controller (broker id, broker epoch).
        image: The image that this broker has published.
        nodes: The forms of nodes to write.

    Raises:
        BadNodeData: The stored cluster id cannot be read.
    """
    try:
        await create_parents(store)
        yield build_engine(
            store,
            broker_id,
            await claim_cluster_id(store, new_cluster_id),
            clock=clock,
            controlled_shutdown=controlled_shutdown,
            image=image,
            nodes=nodes,
        )
    finally:
        await store.session.close()


def build_engine(
    store: CoordinationStore,
    broker_id: int,
    cluster_id: str,
    *,
    clock: Clock,
    controlled_shutdown: ControlledShutdownCall,
    image: Callable[[], ClusterImage],
    nodes: NodeForms = NEWEST_NODE_FORMS,
    registration_timeout_s: float = REGISTRATION_TIMEOUT_S,
) -> StoreEngine:
    """Builds the ports over a session; the arguments are those of the openers."""
    port = StoreControllerPort(
        store,
        broker_id,
        clock=clock,
        controlled_shutdown=controlled_shutdown,
        registration_timeout_s=registration_timeout_s,
        nodes=nodes,
    )
    return StoreEngine(
        broker_id=broker_id,
        cluster_id=cluster_id,
        persistence=StorePersistence(
            store, broker_id, clock=clock, reregister=port.register_again, nodes=nodes
        ),
        feed=StoreFeed(store, clock=clock, broker_epoch=lambda: port.broker_epoch, image=image),
        port=port,
    )
