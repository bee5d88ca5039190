"""Several brokers on one store: they elect, announce, fence and fail over, through sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.aio import Admin, Producer
from odradek.client.admin import ElectionType, NewTopic
from odradek.client.cluster import PartitionView
from odradek.errors import ApiError, DisconnectedError, ErrorCode
from odradek.model import TopicPartition
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.alter_partition import AlterPartitionRequest
from odradek.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.protocol.messages.stop_replica import StopReplicaRequest
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from odradek.protocol.schema import Message
from odradek.testing import AsyncEmbeddedCluster, EmbeddedCluster

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - brokers have no event for it
            await asyncio.sleep(0.02)


@asynccontextmanager
async def admin_of(servers: str) -> AsyncIterator[Admin]:
    async with Admin({"bootstrap.servers": servers}) as admin:
        yield admin


@asynccontextmanager
async def connected(server: str) -> AsyncIterator[OutboundConnection]:
    host, _, port = server.rpartition(":")
    connection = await OutboundConnection.open(host, int(port))
    try:
        yield connection
    finally:
        connection.close()


def controls(**fields: Any) -> list[tuple[ApiKey, Message, int]]:
    """A request of each kind that a controller sends."""
    return [
        (ApiKey.LEADER_AND_ISR, LeaderAndIsrRequest(**fields), 7),
        (ApiKey.STOP_REPLICA, StopReplicaRequest(**fields), 4),
        (ApiKey.UPDATE_METADATA, UpdateMetadataRequest(**fields), 8),
    ]


async def error_of(server: str, key: ApiKey, request: Message, version: int) -> int:
    """The error that answers a request as a whole."""
    async with connected(server) as connection:
        answer: Any = await connection.request(key, request, version)
    code: int = answer.error_code
    return code


async def partitions(cluster: AsyncEmbeddedCluster, broker_id: int) -> list[PartitionView]:
    """Topic `t` as one broker shows it; empty before it knows the topic."""
    async with admin_of(cluster.bootstrap_server(broker_id)) as admin:
        found = (await admin.describe_topics(["t"]))["t"]
    return [] if isinstance(found, ApiError) else list(found.partitions)


async def led_by(cluster: AsyncEmbeddedCluster, told: int, *leaders: int) -> None:
    """Waits until a broker shows these leaders of the partitions of topic `t`."""

    async def knows() -> bool:
        return [view.leader for view in await partitions(cluster, told)] == list(leaders)

    await until(knows)


def test_a_partition_is_led_by_each_of_its_replicas_in_turn() -> None:
    """08:K-4, 03b:T4.3: the next live member of the ISR leads, and all brokers are told."""

    async def scenario() -> None:
        async with AsyncEmbeddedCluster(brokers=3) as cluster:
            async with admin_of(cluster.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(name="t", assignments={0: [0, 1, 2]})])
            epochs = []
            for leader in (0, 1, 2):
                alive = [each for each in (0, 1, 2) if each >= leader]
                for broker_id in alive:
                    await led_by(cluster, broker_id, leader)
                [view] = await partitions(cluster, 2)
                assert set(view.isr) == set(alive)
                epochs.append(view.leader_epoch)
                if leader < 2:
                    await cluster.kill(leader)
            assert epochs == sorted(set(epochs))

    asyncio.run(scenario())


def test_a_broker_that_returns_is_told_everything() -> None:
    """03b:T4.2: it gets all partitions; the others learn its address."""

    async def scenario() -> None:
        async with AsyncEmbeddedCluster(brokers=2) as cluster:
            async with admin_of(cluster.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(name="t", assignments={0: [0, 1], 1: [1, 0]})])
            address = cluster.bootstrap_server(0)
            await cluster.restart(0)
            assert cluster.bootstrap_server(0) == address
            await led_by(cluster, 0, 1, 1)

            async def returned() -> bool:
                views = await partitions(cluster, 1)
                return all(view.offline_replicas == () for view in views)

            await until(returned)

    asyncio.run(scenario())


def test_a_deposed_controller_is_refused() -> None:
    """15:R1: requests of an older controller epoch change nothing."""

    async def scenario() -> None:
        async with AsyncEmbeddedCluster(brokers=3) as cluster:
            await cluster.kill(0)  # The first to start was the controller, of epoch 1.

            async def elected() -> bool:
                async with admin_of(cluster.bootstrap_server(2)) as admin:
                    controller = (await admin.describe_cluster()).controller
                    return controller is not None and controller.id in (1, 2)

            await until(elected)
            for key, request, version in controls(controller_id=0, controller_epoch=1):
                error = await error_of(cluster.bootstrap_server(2), key, request, version)
                assert error == ErrorCode.STALE_CONTROLLER_EPOCH, key

    asyncio.run(scenario())


def test_a_request_for_a_former_life_of_a_broker_is_refused() -> None:
    """15:KAFKA-7165: a broker epoch before its last registration."""

    async def scenario() -> None:
        async with AsyncEmbeddedCluster(brokers=2) as cluster:
            async with admin_of(cluster.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(name="t", assignments={0: [1, 0]})])
            await led_by(cluster, 1, 1)
            stale = controls(controller_id=0, controller_epoch=1, broker_epoch=0)
            for key, request, version in stale:
                error = await error_of(cluster.bootstrap_server(1), key, request, version)
                assert error == ErrorCode.STALE_BROKER_EPOCH, key
            await led_by(cluster, 1, 1)

    asyncio.run(scenario())


@pytest.mark.parametrize(("controller_id", "epoch"), [(0, 99), (1, 1), (7, 2)])
def test_a_controller_that_the_store_does_not_name_is_not_obeyed(
    controller_id: int, epoch: int
) -> None:
    """15:R1: a forged epoch would make the broker refuse the real controller from then on."""

    async def scenario() -> None:
        async with AsyncEmbeddedCluster(brokers=2) as cluster:
            forged = UpdateMetadataRequest(controller_id=controller_id, controller_epoch=epoch)
            async with connected(cluster.bootstrap_server(1)) as connection:
                try:
                    answer = await connection.request(ApiKey.UPDATE_METADATA, forged, 8)
                except DisconnectedError:
                    pass  # A controller that was just elected would send it again.
                else:
                    assert isinstance(answer, UpdateMetadataResponse)
                    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            async with admin_of(cluster.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(name="t", assignments={0: [1, 0]})])
            await led_by(cluster, 1, 1)

    asyncio.run(scenario())


def test_clients_cannot_play_the_controller() -> None:
    """11 section 11: a listener of clients neither names nor obeys control requests."""

    async def scenario() -> None:
        settings = {
            "listeners": "INTERNAL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENTS:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
        async with AsyncEmbeddedCluster(brokers=2, settings=settings) as cluster:
            internal, clients = cluster.listeners(1).split(",")
            address = clients.removeprefix("CLIENTS://")
            requests: list[tuple[ApiKey, Message, int]] = [
                *controls(controller_id=7, controller_epoch=99),
                (ApiKey.ALTER_PARTITION, AlterPartitionRequest(broker_id=0), 3),
                (ApiKey.CONTROLLED_SHUTDOWN, ControlledShutdownRequest(broker_id=0), 3),
                (ApiKey.ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(broker_id=0), 0),
            ]
            for key, request, version in requests:
                async with connected(address) as connection:
                    assert not connection.versions(key)
                error = await error_of(address, key, request, version)
                assert error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, key
            async with connected(internal.removeprefix("INTERNAL://")) as connection:
                assert connection.version_for(ApiKey.UPDATE_METADATA) == 8

    asyncio.run(scenario())


def test_the_controller_has_a_listener_of_its_own() -> None:
    """02: control requests do not wait behind those of clients and followers."""

    async def scenario() -> None:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
            "control.plane.listener.name": "CONTROL",
        }
        async with AsyncEmbeddedCluster(brokers=2, settings=settings) as cluster:
            async with admin_of(cluster.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(name="t", assignments={0: [1, 0]})])
            await led_by(cluster, 1, 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["2.4", "2.6", "2.8", "3.3"])
def test_brokers_speak_an_older_protocol_version(version: str) -> None:
    """11 section 11: `inter.broker.protocol.version` picks the versions of what is sent."""

    async def scenario() -> None:
        settings = {"inter.broker.protocol.version": version}
        async with (
            AsyncEmbeddedCluster(brokers=2, settings=settings) as cluster,
            admin_of(cluster.bootstrap_servers) as admin,
        ):
            await admin.create_topics([NewTopic(name="t", assignments={0: [1, 0]})])
            await led_by(cluster, 1, 1)
            async with Producer(
                {"bootstrap.servers": cluster.bootstrap_servers, "acks": 1}
            ) as producer:
                await producer.send("t", b"it leads")
            await admin.delete_topics(["t"])
            await admin.create_topics([NewTopic(name="t", assignments={0: [1]})])

    asyncio.run(scenario())


def test_a_cluster_for_ordinary_tests() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        assert cluster.broker_ids == [0, 1]
        cluster.kill(1)
        assert cluster.bootstrap_servers == cluster.bootstrap_server(0)
        cluster.start(1)
        cluster.restart(0)
        assert cluster.broker_ids == [0, 1]
        with pytest.raises(RuntimeError, match="broker 1 is running already"):
            cluster.start(1)
    with pytest.raises(RuntimeError, match="not running"):
        cluster.stop(0)


def test_replicas_move_to_one_broker_and_their_order_changes() -> None:
    """Three replicas become one, and the brokers that lost theirs delete the log."""

    async def scenario() -> None:
        async with (
            AsyncEmbeddedCluster(3) as cluster,
            admin_of(cluster.bootstrap_servers) as admin,
        ):
            t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
            replicas = {0: [0, 1, 2], 1: [0, 1, 2]}
            await admin.create_topics([NewTopic(name="t", assignments=replicas)])
            results = await admin.alter_partition_reassignments({t0: [1], t1: [1, 0, 2]})
            assert results == {t0: None, t1: None}

            async def has_moved() -> bool:
                found = await partitions(cluster, 2)
                return [(p.leader, p.replicas) for p in found] == [(1, (1,)), (0, (1, 0, 2))]

            await until(has_moved)
            assert await admin.list_partition_reassignments() == {}

            async def is_deleted() -> bool:
                hosts = []
                for broker_id, directories in (await admin.describe_log_dirs()).items():
                    assert not isinstance(directories, ApiError)
                    for directory in directories.values():
                        assert not isinstance(directory, ApiError)
                        if t0 in directory.replicas:
                            hosts.append(broker_id)
                return hosts == [1]

            await until(is_deleted)
            refused = await admin.alter_partition_reassignments(
                {t0: [9], t1: None, TopicPartition("t", 7): [0]}
            )
            assert [error.code for error in refused.values() if error] == [
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            elected = await admin.elect_leaders(ElectionType.PREFERRED, [t1])
            assert elected == {t1: None}
            await led_by(cluster, 2, 1, 1)

    asyncio.run(scenario())
