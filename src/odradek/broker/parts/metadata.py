"""The cluster's metadata in a broker: the engine behind the ports, its feed, the controller."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager

from odradek.broker.config.zookeeper_login import zookeeper_login
from odradek.broker.identity import check_owner, find_owner
from odradek.broker.parts.base import Base
from odradek.broker.parts.state import State
from odradek.broker.peers.connections import PeerConnections
from odradek.broker.peers.control_channel import NamedTopicsChannel, WireChannel
from odradek.broker.peers.control_messages import FIRST_LEADER_AND_ISR_BY_ID
from odradek.broker.publisher import Publisher
from odradek.broker.tls import zookeeper_context
from odradek.controller import ControlChannel, Controller, ControllerConfig, LocalChannel
from odradek.files import make_directories
from odradek.metadata.image import ClusterImage, LiveBroker
from odradek.metadata.ports import ControlledShutdownCall, MetadataEngine, MetadataFeed
from odradek.model import Endpoint, uuid_text
from odradek.tasks import Tasks

__all__ = ["build_controller", "follow_metadata", "open_metadata"]


@asynccontextmanager
async def open_metadata(
    base: Base,
    executor: Executor,
    *,
    controlled_shutdown: ControlledShutdownCall,
    image: Callable[[], ClusterImage],
) -> AsyncIterator[MetadataEngine]:
    """Opens the engine of the settings: on ZooKeeper, or in the first data directory.

    It is closed on exit.

    Args:
        executor: Runs blocking calls.
        controlled_shutdown: Asks the active controller (broker id, broker epoch).
        image: The image that this broker has published.

    Raises:
        LogDirLockedError: Another process uses the directory.
        ConfigError: ZooKeeper cannot be reached, or has another cluster.
        OdradekError: The files of the engine are damaged.
    """
    around = base.around
    directory = base.settings.log.log_dirs[0]
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(executor, make_directories, around.disk, directory)
    if base.settings.zookeeper.connect is not None:
        async with _on_zookeeper(
            base, executor, controlled_shutdown=controlled_shutdown, image=image
        ) as engine:
            yield engine
        return
    async with around.open_store(
        directory,
        base.settings.node.id,
        clock=around.clock,
        disk=around.disk,
        executor=executor,
        new_cluster_id=lambda: uuid_text(around.new_uuid()),
        controlled_shutdown=controlled_shutdown,
        image=image,
        nodes=base.settings.inter_broker.versions.nodes,
    ) as engine:
        yield engine


@asynccontextmanager
async def _on_zookeeper(
    base: Base,
    executor: Executor,
    *,
    controlled_shutdown: ControlledShutdownCall,
    image: Callable[[], ClusterImage],
) -> AsyncIterator[MetadataEngine]:
    # Brokers without ZooKeeper do not import its client.
    from odradek.metadata_store.zookeeper import (
        ZooKeeperConfig,
        open_zookeeper,
        parse_connect_string,
    )

    settings, around = base.settings, base.around
    ensemble = parse_connect_string(settings.zookeeper.connect or "")
    directories = settings.log.log_dirs
    owner = await asyncio.get_running_loop().run_in_executor(
        executor, find_owner, directories, around.disk
    )

    def new_cluster_id() -> str:
        # An ensemble that has lost its nodes, or another one, must not get a second cluster.
        check_owner(owner, None, str(ensemble))
        return uuid_text(around.new_uuid())

    broker_id: int | None = settings.node.broker_id
    if settings.node.broker_id < 0:
        broker_id = None if owner is None else owner.broker_id
    async with open_zookeeper(
        ZooKeeperConfig(
            ensemble=ensemble,
            session_timeout_ms=settings.zookeeper.session_timeout_ms,
            connection_timeout_ms=settings.zookeeper.first_link_timeout_ms,
            max_in_flight=settings.zookeeper.max_in_flight,
            has_acl=settings.zookeeper.set_acl,
            tls=zookeeper_context(settings.zookeeper),
            login=zookeeper_login(settings.zookeeper),
        ),
        directories[0],
        broker_id,
        reserved_max_id=settings.node.reserved_max_id,
        clock=around.clock,
        random=around.random,
        sleep=around.sleep,
        disk=around.disk,
        executor=executor,
        metrics=base.metrics,
        new_cluster_id=new_cluster_id,
        controlled_shutdown=controlled_shutdown,
        image=image,
        nodes=settings.inter_broker.versions.nodes,
    ) as engine:
        check_owner(owner, engine.cluster_id, str(ensemble))
        yield engine


async def follow_metadata(feed: MetadataFeed, publisher: Publisher, tasks: Tasks) -> None:
    """Publishes the cluster's present settings; further deltas follow in the background."""
    tasks.spawn(publisher.run(feed))
    await publisher.has_settings.wait()


def build_controller(
    base: Base, engine: MetadataEngine, state: State, peers: PeerConnections
) -> Controller:
    """Builds the controller of this broker, a candidate in elections once it is started."""
    settings, around = base.settings, base.around
    topic_configs = state.storage.topic_configs
    control = settings.network.planes.control

    def check_configs(_topic: str, configs: Mapping[str, str | None]) -> Mapping[str, str]:
        topic_configs.check(configs)
        return {name: value for name, value in configs.items() if value is not None}

    def open_channel(broker: LiveBroker, endpoint: Endpoint | None) -> ControlChannel:
        versions = settings.inter_broker.versions
        if broker.id != settings.node.id:
            return WireChannel(peers.to_endpoint(broker.id, endpoint, "controller"), versions)
        if versions.leader_and_isr < FIRST_LEADER_AND_ISR_BY_ID:
            return NamedTopicsChannel(engine.handle)
        return LocalChannel(engine.handle)

    return Controller(
        settings.node.id,
        engine.persistence,
        open_channel,
        clock=around.clock,
        metrics=base.metrics,
        random=around.random,
        config=ControllerConfig(
            delete_topic_enable=settings.topics.delete_enabled,
            default_partition_count=settings.topics.num_partitions,
            default_replication_factor=settings.topics.default_replication_factor,
            inter_broker_listener=settings.network.inter_broker_listener,
            control_plane_listener=control.listener if control is not None else None,
            leader_balance=settings.leader_balance,
        ),
        check_configs=check_configs,
        unclean_default=lambda: topic_configs.default.unclean_leader_election,
        sleep=around.sleep,
    )
