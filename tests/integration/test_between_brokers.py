"""Requests of brokers to the controller, and through it: ISRs, producer ids, shutdowns, topics."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.aio import Admin, Producer
from odradek.broker.config import load_broker_settings
from odradek.client.admin import NewTopic
from odradek.coordination.paths import PRODUCER_ID_BLOCK, broker_path, partition_state_path
from odradek.errors import ConfigError, ErrorCode
from odradek.model import TopicPartition
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.messages.alter_partition import (
    AlterPartitionBrokerState,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
)
from odradek.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.testing import AsyncEmbeddedCluster
from tests.integration.test_embedded_cluster import admin_of, connected, led_by, partitions, until
from tests.support.network import make_certificate

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def cluster_with_topic(
    brokers: int = 3, settings: Mapping[str, object] | None = None
) -> AsyncIterator[AsyncEmbeddedCluster]:
    """Broker 0 is the controller; topic `t` is led by broker 1, and every broker knows it."""
    async with AsyncEmbeddedCluster(brokers, settings) as cluster:
        async with admin_of(cluster.bootstrap_servers) as admin:
            replicas = [1, *(each for each in range(brokers) if each != 1)]
            await admin.create_topics([NewTopic(name="t", assignments={0: replicas})])
        for broker_id in range(brokers):
            await led_by(cluster, broker_id, 1)
        yield cluster


class Stored:
    """The store behind a cluster."""

    def __init__(self, cluster: AsyncEmbeddedCluster) -> None:
        self._store = cluster.store()

    async def partition(self) -> dict[str, Any]:
        data, stat = await self._store.get(partition_state_path(T0))
        found: dict[str, Any] = json.loads(data or b"")
        return {**found, "version": stat.version}

    async def broker_epoch(self, broker_id: int) -> int:
        stat = await self._store.exists(broker_path(broker_id))
        assert stat is not None
        return stat.czxid

    async def producer_id_block(self) -> dict[str, Any]:
        data, _ = await self._store.get(PRODUCER_ID_BLOCK)
        block: dict[str, Any] = json.loads(data or b"")
        return block

    async def close(self) -> None:
        await self._store.session.close()


@asynccontextmanager
async def stored(cluster: AsyncEmbeddedCluster) -> AsyncIterator[Stored]:
    opened = Stored(cluster)
    try:
        yield opened
    finally:
        await opened.close()


async def alter_partition(
    connection: OutboundConnection,
    *,
    broker_epoch: int,
    topic_id: bytes,
    state: Mapping[str, Any],
    members: Mapping[int, int],
) -> AlterPartitionResponse:
    """Asks for an ISR as broker 1, by the epochs of its members."""
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=broker_epoch,
        topics=[
            AlterPartitionTopic(
                topic_id=topic_id,
                partitions=[
                    AlterPartitionPartition(
                        partition_index=0,
                        leader_epoch=state["leader_epoch"],
                        partition_epoch=state["version"],
                        new_isr_with_epochs=[
                            AlterPartitionBrokerState(broker_id=member, broker_epoch=epoch)
                            for member, epoch in members.items()
                        ],
                    )
                ],
            )
        ],
    )
    answer = await connection.request(ApiKey.ALTER_PARTITION, request, 3)
    assert isinstance(answer, AlterPartitionResponse)
    return answer


async def topic_id_of(cluster: AsyncEmbeddedCluster) -> bytes:
    async with admin_of(cluster.bootstrap_servers) as admin:
        found = (await admin.describe_topics(["t"]))["t"]
        assert not isinstance(found, Exception)
        return found.topic_id


def test_the_controller_stores_the_isr_that_a_leader_wants() -> None:
    """08:K-3, 15:KAFKA-15221: as asked, in the same leader epoch; never with a former life."""

    async def scenario() -> None:
        async with (
            cluster_with_topic() as cluster,
            stored(cluster) as store,
            connected(cluster.bootstrap_server(0)) as controller,
        ):
            topic_id, state = await topic_id_of(cluster), await store.partition()
            epochs = {each: await store.broker_epoch(each) for each in (0, 1, 2)}
            answer = await alter_partition(
                controller,
                broker_epoch=epochs[1],
                topic_id=topic_id,
                state=state,
                members={1: epochs[1], 2: epochs[2] - 1},
            )
            [row] = answer.topics[0].partitions
            assert row.error_code == ErrorCode.INELIGIBLE_REPLICA
            assert await store.partition() == state
            answer = await alter_partition(
                controller,
                broker_epoch=epochs[1],
                topic_id=topic_id,
                state=state,
                members={1: epochs[1], 2: epochs[2]},
            )
            [row] = answer.topics[0].partitions
            assert (row.error_code, list(row.isr)) == (ErrorCode.NONE, [1, 2])
            after = await store.partition()
            assert after["isr"] == [1, 2]
            assert after["leader_epoch"] == row.leader_epoch == state["leader_epoch"]
            assert after["version"] == row.partition_epoch == state["version"] + 1

            async def announced() -> bool:
                return [view.isr for view in await partitions(cluster, 2)] == [(1, 2)]

            await until(announced)

    asyncio.run(scenario())


def test_only_the_controller_answers_and_only_a_registered_broker_asks() -> None:
    async def scenario() -> None:
        async with cluster_with_topic() as cluster, stored(cluster) as store:
            topic_id, state = await topic_id_of(cluster), await store.partition()
            epoch = await store.broker_epoch(1)
            for broker_id, broker_epoch, error in (
                (0, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
                (2, epoch, ErrorCode.NOT_CONTROLLER),
            ):
                async with connected(cluster.bootstrap_server(broker_id)) as connection:
                    answer = await alter_partition(
                        connection,
                        broker_epoch=broker_epoch,
                        topic_id=topic_id,
                        state=state,
                        members={1: epoch},
                    )
                    assert (answer.error_code, answer.topics) == (error, ())
            assert await store.partition() == state

    asyncio.run(scenario())


def test_a_broker_that_stops_hands_over_its_leaderships() -> None:
    """03b:T5: the leader moves before the broker is gone; its replica leaves the ISR."""

    async def scenario() -> None:
        async with cluster_with_topic() as cluster, stored(cluster) as store:
            await cluster.stop(1)
            state = await store.partition()
            assert state["leader"] in (0, 2)
            assert 1 not in state["isr"]
            await led_by(cluster, 2, state["leader"])

    asyncio.run(scenario())


def test_shutdown_requests_are_checked() -> None:
    async def scenario() -> None:
        async with cluster_with_topic() as cluster, stored(cluster) as store:
            epoch = await store.broker_epoch(1)
            for target, asker, asker_epoch, error in (
                (0, 1, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
                (0, 9, epoch, ErrorCode.BROKER_NOT_AVAILABLE),
                (2, 1, epoch, ErrorCode.NOT_CONTROLLER),
            ):
                async with connected(cluster.bootstrap_server(target)) as connection:
                    request = ControlledShutdownRequest(broker_id=asker, broker_epoch=asker_epoch)
                    answer = await connection.request(ApiKey.CONTROLLED_SHUTDOWN, request, 3)
                    assert isinstance(answer, ControlledShutdownResponse)
                    assert answer.error_code == error
            assert (await store.partition())["leader"] == 1

    asyncio.run(scenario())


def test_producer_ids_are_for_registered_brokers() -> None:
    async def scenario() -> None:
        async with cluster_with_topic() as cluster, stored(cluster) as store:
            epoch = await store.broker_epoch(1)
            for target, asker, asker_epoch, error in (
                (0, 1, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
                (0, 9, epoch, ErrorCode.STALE_BROKER_EPOCH),
                (2, 1, epoch, ErrorCode.NOT_CONTROLLER),
            ):
                async with connected(cluster.bootstrap_server(target)) as connection:
                    request = AllocateProducerIdsRequest(broker_id=asker, broker_epoch=asker_epoch)
                    answer = await connection.request(ApiKey.ALLOCATE_PRODUCER_IDS, request, 0)
                    assert isinstance(answer, AllocateProducerIdsResponse)
                    assert (answer.error_code, answer.producer_id_len) == (error, 0)

    asyncio.run(scenario())


async def fetched(
    connection: OutboundConnection, version: int, topic_id: bytes, replica_id: int
) -> tuple[int, bool]:
    """The error, and whether there are records."""
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    is_by_id, has_state = version >= 13, version >= 15
    named = FetchTopic(topic="t", partitions=[row])
    request = FetchRequest(
        replica_id=-1 if has_state else replica_id,
        replica_state=ReplicaState(replica_id=replica_id) if has_state else ReplicaState(),
        max_wait_ms=0,
        topics=[FetchTopic(topic_id=topic_id, partitions=[row]) if is_by_id else named],
    )
    answer = await connection.request(ApiKey.FETCH, request, version)
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == ErrorCode.NONE
    [topic] = answer.responses
    [found] = topic.partitions
    return found.error_code, bool(found.records)


@pytest.mark.parametrize("version", [11, 13, 17])
def test_a_fetch_of_a_broker_that_is_no_replica(version: int) -> None:
    """15:KAFKA-5758: it gets no records, and is not taken for a follower; consumers go on."""

    async def scenario() -> None:
        async with AsyncEmbeddedCluster(2) as cluster, stored(cluster) as store:
            async with admin_of(cluster.bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(name="t", assignments={0: [1]})])
            await led_by(cluster, 1, 1)
            async with Producer({"bootstrap.servers": cluster.bootstrap_server(1)}) as producer:
                await (await producer.send("t", b"x", partition=0))
            topic_id, state = await topic_id_of(cluster), await store.partition()
            async with connected(cluster.bootstrap_server(1)) as connection:
                for foreign in (0, 7, (1 << 31) - 1):
                    found = await fetched(connection, version, topic_id, foreign)
                    assert found == (ErrorCode.NONE, False)
                assert await fetched(connection, version, topic_id, -1) == (ErrorCode.NONE, True)
            assert await store.partition() == state

    asyncio.run(scenario())


def test_a_follower_serves_no_consumer_by_default() -> None:
    """08:F-5, without a `replica.selector.class`: the leader alone serves clients."""

    async def scenario() -> None:
        async with cluster_with_topic() as cluster:
            async with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
                await (await producer.send("t", b"x", partition=0))
            topic_id = await topic_id_of(cluster)
            for broker_id, expected in (
                (0, (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)),
                (1, (ErrorCode.NONE, True)),
                (2, (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)),
            ):
                async with connected(cluster.bootstrap_server(broker_id)) as connection:
                    assert await fetched(connection, 13, topic_id, -1) == expected

    asyncio.run(scenario())


@pytest.mark.parametrize("protocol", ["2.8", "3.9"], ids=["from the store", "by request"])
def test_each_broker_hands_out_producer_ids_of_its_own(protocol: str) -> None:
    """11 section 11: by AllocateProducerIds from 3.0 on; the block in the store names its owner."""

    async def scenario() -> None:
        settings = {"inter.broker.protocol.version": protocol}
        async with AsyncEmbeddedCluster(3, settings) as cluster, stored(cluster) as store:
            taken = []
            for broker_id in (2, 0, 1):
                async with connected(cluster.bootstrap_server(broker_id)) as connection:
                    request = InitProducerIdRequest(transactional_id=None)
                    answer = await connection.request(ApiKey.INIT_PRODUCER_ID, request, 4)
                    assert isinstance(answer, InitProducerIdResponse)
                    assert answer.error_code == ErrorCode.NONE
                    taken.append(answer.producer_id)
                    assert (await store.producer_id_block())["broker"] == broker_id
            assert taken == [0, 1000, 2000]

    asyncio.run(scenario())


async def shown(connection: OutboundConnection, topic: str) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer = await connection.request(ApiKey.METADATA, request, 9)
    assert isinstance(answer, MetadataResponse)
    return answer


def test_topics_are_created_from_any_broker() -> None:
    """Auto-created ones with the defaults, the offsets topic with a replica on each broker."""

    async def scenario() -> None:
        async with (
            AsyncEmbeddedCluster(3) as cluster,
            connected(cluster.bootstrap_server(2)) as connection,
        ):

            async def replicas_of(topic: str) -> list[list[int]]:
                [found] = (await shown(connection, topic)).topics
                return [sorted(each.replica_nodes) for each in found.partitions]

            async def is_created() -> bool:
                return (
                    len(await replicas_of("made")) == 1 and len((await replicas_of("made"))[0]) == 1
                )

            await until(is_created)

            async def is_coordinated() -> bool:
                request = FindCoordinatorRequest(key="g")
                await connection.request(ApiKey.FIND_COORDINATOR, request, 2)
                return await replicas_of("__consumer_offsets") == [[0, 1, 2]]

            await until(is_coordinated)

    asyncio.run(scenario())


def test_administrators_are_sent_to_the_controller() -> None:
    """08:K-1: another broker answers NOT_CONTROLLER, and names the controller."""

    async def scenario() -> None:
        async with (
            AsyncEmbeddedCluster(2) as cluster,
            connected(cluster.bootstrap_server(1)) as connection,
        ):
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
            answer = await connection.request(ApiKey.CREATE_TOPICS, request, 7)
            assert isinstance(answer, CreateTopicsResponse)
            assert [row.error_code for row in answer.topics] == [ErrorCode.NOT_CONTROLLER]
            assert (await shown(connection, "x")).controller_id == 0

    asyncio.run(scenario())


def test_brokers_speak_tls_with_each_other(tmp_path: Path) -> None:
    """13: the inter-broker listener requires certificates, and brokers show theirs."""
    certificate, key = make_certificate(tmp_path)
    keystore = tmp_path / "keystore.pem"
    keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
    settings = {
        "listeners": "SECURE://localhost:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SECURE:SSL,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "SECURE",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.location": str(certificate),
        "ssl.client.auth": "required",
    }

    async def scenario() -> None:
        async with AsyncEmbeddedCluster(2, settings) as cluster:
            plain = cluster.listeners(0).split(",")[1].removeprefix("PLAINTEXT://")
            async with Admin({"bootstrap.servers": plain}) as admin:
                await admin.create_topics([NewTopic(name="t", assignments={0: [1, 0]})])

                async def is_led() -> bool:
                    other = cluster.listeners(1).split(",")[1].removeprefix("PLAINTEXT://")
                    async with connected(other) as connection:
                        [topic] = (await shown(connection, "t")).topics
                        return [each.leader_id for each in topic.partitions] == [1]

                await until(is_led)

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["4.0", "2.3", "next"])
def test_an_unknown_protocol_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(ConfigError, match=r"inter\.broker\.protocol\.version") as refusal:
        load_broker_settings(None, {"inter.broker.protocol.version": version}, {})
    assert "must be one of" in str(refusal.value)
    assert "3.9" in str(refusal.value)
