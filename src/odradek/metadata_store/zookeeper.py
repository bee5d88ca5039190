"""The store engine of a broker on ZooKeeper; brokers without it never import this module."""

import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from odradek.clock import Clock
from odradek.coordination.journal import lock_directory
from odradek.coordination.zookeeper.client import ZooKeeperConfig, open_store
from odradek.coordination.zookeeper.saved_session import SavedSession
from odradek.coordination.zookeeper.servers import parse_connect_string
from odradek.files import Disk
from odradek.metadata.image import ClusterImage
from odradek.metadata.ports import ControlledShutdownCall
from odradek.metadata_store.bootstrap import claim_cluster_id, create_parents, draw_broker_id
from odradek.metadata_store.engine import StoreEngine, build_engine
from odradek.metrics import MetricRegistry
from odradek.protocol.inter_broker import NodeForms
from odradek.tasks import Sleep

__all__ = ["ZooKeeperConfig", "open_zookeeper", "parse_connect_string"]

# Beyond the session timeout, for the servers to end a session and to tell of it (14 section 15.5).
_REGISTRATION_GRACE_S: Final = 1.0


@asynccontextmanager
async def open_zookeeper(
    config: ZooKeeperConfig,
    directory: str,
    broker_id: int | None,
    *,
    reserved_max_id: int,
    clock: Clock,
    random: Random,
    sleep: Sleep,
    disk: Disk,
    executor: Executor,
    metrics: MetricRegistry,
    new_cluster_id: Callable[[], str],
    controlled_shutdown: ControlledShutdownCall,
    image: Callable[[], ClusterImage],
    nodes: NodeForms,
) -> AsyncIterator[StoreEngine]:
    """Opens a session for a broker, and ends that of its former life; it is closed at the end.

    Args:
        directory: An existing data directory, which keeps the session for the next life.
        broker_id: This broker; None if it has to draw an id.
        reserved_max_id: The largest id that is not drawn.
        new_cluster_id: Makes an id for a cluster that has none, or raises to refuse that.
        controlled_shutdown: Asks the active controller (broker id, broker epoch).
        image: The image that this broker has published.
        nodes: The forms of nodes to write.

    Raises:
        LogDirLockedError: Another process uses the directory.
        ConfigError: No server gave a session in time.
        BadNodeData: The stored cluster id cannot be read.
    """
    lock = lock_directory(directory)
    try:
        async with open_store(
            config,
            clock=clock,
            random=random,
            sleep=sleep,
            saved=SavedSession(directory, disk),
            executor=executor,
            metrics=metrics,
        ) as store:
            await create_parents(store)
            cluster_id = await claim_cluster_id(store, new_cluster_id)
            if broker_id is None:
                broker_id = await draw_broker_id(store, reserved_max_id)
            yield build_engine(
                store,
                broker_id,
                cluster_id,
                clock=clock,
                controlled_shutdown=controlled_shutdown,
                image=image,
                nodes=nodes,
                registration_timeout_s=store.session.timeout_ms / 1000 + _REGISTRATION_GRACE_S,
            )
    finally:
        os.close(lock)
