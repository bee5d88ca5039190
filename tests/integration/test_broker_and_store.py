"""A whole broker, seen from the wire and from its store at the same time."""

import asyncio
import socket
import struct
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.broker.surroundings import Surroundings
from odradek.coordination.nodes import TopicNode, encode_config_change
from odradek.coordination.paths import (
    CONFIG_CHANGE_PREFIX,
    ConfigNodeType,
    config_entity,
    config_path,
    delete_topic_path,
    partition_state_path,
    topic_path,
)
from odradek.coordination.store import ANY_VERSION, CoordinationStore, Create, Delete
from odradek.errors import ErrorCode
from odradek.metadata.admin_requests import NewTopic
from odradek.metadata.delta import HostedPartition, ImageDelta, LocalDelta
from odradek.metadata.image import PartitionState
from odradek.model import ReplicaAssignment, TopicPartition
from odradek.network.sockets import SystemStreams
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.schema import Message
from tests.support.broker_stores import store_of
from tests.support.held_disk import HeldDisk
from tests.support.logs import batch
from tests.support.network import Client, eventually, request_frame

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)


def make_broker(path: Path, around: Surroundings | None = None) -> Broker:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(path),
        "replica.lag.time.max.ms": "600000",
    }
    return Broker(load_broker_settings(None, settings, {}), around)


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Client]:
    """A connection to the broker, once it serves."""
    await broker.start()
    try:
        async with await connection_to(broker) as client:
            yield client
    finally:
        await broker.stop()


async def connection_to(broker: Broker) -> Client:
    return await Client.connect(int(broker.bootstrap_server.rpartition(":")[2]))


def ask(
    client: Client, key: ApiKey, message: Message, version: int, correlation_id: int = 1
) -> None:
    body = encode_message(message, version)
    client.send(request_frame(correlation_id, body, api_key=key, version=version))


async def receive(client: Client, key: ApiKey, version: int, correlation_id: int = 1) -> Message:
    (length,) = struct.unpack(">i", await client.reader.readexactly(4))
    answered, message = parse_response(await client.reader.readexactly(length), key, version)
    assert answered == correlation_id
    return message


def ask_to_produce(
    client: Client, records: bytes, *, partition: int = 0, correlation_id: int = 1
) -> None:
    row = PartitionProduceData(index=partition, records=records)
    topic = TopicProduceData(name="t", partition_data=[row])
    message = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=[topic])
    ask(client, ApiKey.PRODUCE, message, 8, correlation_id)


async def produced(client: Client, correlation_id: int = 1) -> PartitionProduceResponse:
    answer = await receive(client, ApiKey.PRODUCE, 8, correlation_id)
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0]


async def produce(client: Client, records: bytes) -> PartitionProduceResponse:
    ask_to_produce(client, records)
    return await produced(client)


async def fetch(
    client: Client, *, partition: int = 0, offset: int = 0, replica_id: int = -1, epoch: int = -1
) -> FetchResponse:
    row = FetchPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
    )
    topic = FetchTopic(topic="t", partitions=[row])
    message = FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=0, topics=[topic])
    ask(client, ApiKey.FETCH, message, 11)
    answer = await receive(client, ApiKey.FETCH, 11)
    assert isinstance(answer, FetchResponse)
    return answer


async def create(broker: Broker, partition_count: int = 1, **configs: str) -> uuid.UUID:
    """Topic t, as far as this broker's own metadata."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    new = NewTopic(name="t", partition_count=partition_count, replication_factor=1, configs=named)
    [result] = await broker._controller.create_topics([new])
    assert result.error is ErrorCode.NONE
    assert result.topic_id is not None
    await eventually(lambda: broker._state.cache.contains(T0), "the topic's metadata")
    return result.topic_id


class HoldingStreams(SystemStreams):
    """A broker that has bound its listener does not get further until the disk is let go."""

    def __init__(self, disk: HeldDisk) -> None:
        self._disk = disk

    def listen(
        self, host: str, port: int, *, backlog: int, receive_buffer_bytes: int = -1
    ) -> socket.socket:
        self._disk.is_free.clear()
        return super().listen(
            host, port, backlog=backlog, receive_buffer_bytes=receive_buffer_bytes
        )


def test_who_comes_during_start_up_is_answered_from_the_first_metadata(tmp_path: Path) -> None:
    """14:SM-8: complete, and nothing is made by itself, asked for all topics or for one."""

    async def scenario() -> None:
        first = make_broker(tmp_path)
        async with running(first):
            topic_id = await create(first)

        disk = HeldDisk()
        around = replace(Surroundings.system(disk), streams=HoldingStreams(disk))
        broker = make_broker(tmp_path, around)
        starting = asyncio.create_task(broker.start())
        try:
            await eventually(lambda: not disk.is_free.is_set(), "bound, not registered")
            async with await connection_to(broker) as one, await connection_to(broker) as all_:
                named = [MetadataRequestTopic(name="t")]
                ask(one, ApiKey.METADATA, MetadataRequest(topics=named), 8)
                ask(all_, ApiKey.METADATA, MetadataRequest(topics=None), 8)
                await eventually(lambda: broker._gate.parked_count == 2, "both are kept")
                assert not starting.done()
                disk.is_free.set()
                for client in (one, all_):
                    answer = await receive(client, ApiKey.METADATA, 8)
                    assert isinstance(answer, MetadataResponse)
                    [topic] = answer.topics
                    assert (topic.name, topic.error_code) == ("t", 0)
                    assert [row.leader_id for row in topic.partitions] == [0]
                    assert [row.node_id for row in answer.brokers] == [0]
            await starting
            assert broker._controller.context.topic_ids == {"t": topic_id}
        finally:
            disk.is_free.set()
            await asyncio.wait([starting])
            await broker.stop()

    asyncio.run(scenario())


def test_a_log_has_its_settings_before_its_first_append(tmp_path: Path) -> None:
    """14:SM-6: nobody is notified of a creation, yet no record without a key gets in."""

    async def scenario() -> None:
        broker = make_broker(tmp_path)
        async with running(broker) as client:
            await create(broker, cleanup_policy="compact")
            refused = await produce(client, bytes(batch(1, key=None)))
            assert refused.error_code == ErrorCode.INVALID_RECORD
            assert (await produce(client, bytes(batch(1)))).base_offset == 0

    asyncio.run(scenario())


def test_no_record_of_a_topic_is_in_the_one_made_anew(tmp_path: Path) -> None:
    """14:SM-10: deleted and made again in one transaction, so that nobody reads in between."""

    async def scenario() -> None:
        broker = make_broker(tmp_path)
        async with running(broker) as client:
            old_id = await create(broker)
            assert (await produce(client, bytes(batch(3)))).error_code == 0
            state = partition_state_path(T0)
            gone = [state, state.rpartition("/")[0], f"{topic_path('t')}/partitions"]
            await store_of(broker).multi(
                [
                    *(Delete(path, ANY_VERSION) for path in (*gone, topic_path("t"))),
                    Create(topic_path("t"), b'{"version":2,"partitions":{"0":[0]}}'),
                ]
            )

            def is_new() -> bool:
                topic = broker._state.cache.image.topics.get("t")
                return (
                    topic is not None and topic.id not in (None, old_id) and 0 in topic.partitions
                )

            await eventually(is_new, "the new topic's metadata")
            async with asyncio.timeout(60):
                while (first := await produce(client, bytes(batch(1)))).error_code:
                    assert ErrorCode(first.error_code).retriable
            assert first.base_offset == 0
            [topic] = (await fetch(client)).responses
            assert (topic.partitions[0].high_watermark, topic.partitions[0].error_code) == (1, 0)

    asyncio.run(scenario())


async def changed(store: CoordinationStore, path: str, data: bytes) -> bytes | None:
    """What a node holds when it holds something else again."""
    async with asyncio.timeout(60):
        while True:
            found, _ = await store.get(path)
            if found != data:
                return found
            await asyncio.sleep(0.002)


def test_an_id_that_was_lost_in_the_store_costs_no_record(tmp_path: Path) -> None:
    """14:SM-10, second half: rewritten in place without its id, it is the same topic."""

    async def scenario() -> None:
        broker = make_broker(tmp_path)
        async with running(broker) as client:
            topic_id = await create(broker)
            assert (await produce(client, bytes(batch(3)))).error_code == 0
            log = tmp_path / "t-0"
            inode, metadata = log.stat().st_ino, (log / "partition.metadata").read_text()
            store = store_of(broker)
            before, _ = await store.get(topic_path("t"))
            nameless = b'{"version":1,"partitions":{"0":[0]}}'
            await store.set(topic_path("t"), nameless, ANY_VERSION)

            after = await changed(store, topic_path("t"), nameless)
            assert TopicNode.parse(after) == TopicNode.parse(before)
            assert (await produce(client, bytes(batch(1)))).base_offset == 3
            [topic] = (await fetch(client)).responses
            assert (topic.partitions[0].high_watermark, topic.partitions[0].error_code) == (4, 0)
            assert broker._state.cache.image.topics["t"].id == topic_id
            assert log.stat().st_ino == inode
            assert (log / "partition.metadata").read_text() == metadata

    asyncio.run(scenario())


def test_the_broker_follows_what_others_write_into_the_store(tmp_path: Path) -> None:
    """08:F-3: the store is right. A topic, its partitions, its settings, and its end."""

    async def scenario() -> None:
        broker = make_broker(tmp_path)
        async with running(broker) as client:
            store = store_of(broker)
            await store.create(topic_path("t"), b'{"version":2,"partitions":{"0":[0]}}')
            await eventually(lambda: broker._state.cache.contains(T0), "the topic's metadata")
            assert (await produce(client, bytes(batch(3)))).base_offset == 0

            data, _ = await store.get(topic_path("t"))
            assignment = {p: ReplicaAssignment((0,)) for p in range(2)}
            grown = TopicNode(topic_id=TopicNode.parse(data).topic_id, assignment=assignment)
            await store.set(topic_path("t"), grown.encode(), ANY_VERSION)
            second = TopicPartition("t", 1)
            await eventually(lambda: broker._state.cache.contains(second), "the second partition")
            ask_to_produce(client, bytes(batch(1)), partition=1)
            assert (await produced(client)).base_offset == 0

            entity = config_entity(ConfigNodeType.TOPIC, "t")
            compacted = b'{"version":1,"config":{"cleanup.policy":"compact"}}'
            await store.create(config_path(ConfigNodeType.TOPIC, "t"), compacted)
            change = encode_config_change(entity)
            await store.create(CONFIG_CHANGE_PREFIX, change, sequential=True)
            async with asyncio.timeout(60):
                while not (refused := await produce(client, bytes(batch(1, key=None)))).error_code:
                    assert refused.base_offset > 0
            assert refused.error_code == ErrorCode.INVALID_RECORD

            await store.create(delete_topic_path("t"), None)
            await eventually(
                lambda: not broker._state.cache.contains_topic("t"), "the end of the topic"
            )
            # Metadata forgets it first; its replica takes records until it is stopped.
            async with asyncio.timeout(60):
                while not (refused := await produce(client, bytes(batch(1)))).error_code:
                    assert refused.base_offset > 0
            assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await eventually(lambda: not (tmp_path / "t-0").exists(), "the end of its log")

    asyncio.run(scenario())


def test_answers_keep_their_order_although_the_second_waits_for_a_replica(tmp_path: Path) -> None:
    """11:PS-10: five produces on one connection; another replica of the second is slow."""

    async def scenario() -> None:
        broker = make_broker(tmp_path)
        async with running(broker) as client, await connection_to(broker) as follower:
            await create(broker, partition_count=2)
            replicated = PartitionState(
                topic="t", partition=1, leader=0, leader_epoch=1, isr=(0, 1), replicas=(0, 1)
            )
            hosted = HostedPartition(state=replicated, topic_id=None, is_new=False)
            delta = LocalDelta(controller_id=0, controller_epoch=1, hosted=(hosted,))
            await broker._state.publisher.publish(ImageDelta(local=delta))
            for number in range(5):
                ask_to_produce(
                    client, bytes(batch(1)), partition=int(number == 1), correlation_id=number
                )
            assert (await produced(client, 0)).base_offset == 0
            waiting = broker._state.replication.replicas.purgatories.produce
            await eventually(lambda: waiting.num_delayed == 1, "the second waits")

            await fetch(follower, partition=1, offset=1, replica_id=1, epoch=1)
            rows = [await produced(client, number) for number in range(1, 5)]
            assert [row.error_code for row in rows] == [0] * 4
            assert [row.base_offset for row in rows] == [0, 1, 2, 3]

    asyncio.run(scenario())
