"""Changes of partitions leave the event loop to requests (05 section 15 rule 7, 02 section 12)."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.broker.surroundings import Surroundings
from odradek.errors import ErrorCode
from odradek.files import Disk
from odradek.metadata.admin_requests import NewTopic
from odradek.metadata.delta import ClusterDelta, HostedPartition, ImageDelta, LocalDelta
from odradek.metadata.image import ConfigResource, PartitionState
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message
from odradek.protocol.enums import ConfigResourceType
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.schema import Message
from tests.support.held_disk import HeldFiles, HeldNames, WitnessedDisk
from tests.support.logs import UnsyncedDisk, batch
from tests.support.network import Client, eventually, request_frame

pytestmark = pytest.mark.slow

MANY = 200


def make_broker(path: Path, disk: Disk) -> Broker:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path)}
    return Broker(load_broker_settings(None, settings, {}), Surroundings.system(disk))


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Client]:
    await broker.start()
    try:
        port = int(broker.bootstrap_server.rpartition(":")[2])
        async with await Client.connect(port) as client:
            yield client
    finally:
        await broker.stop()


async def ask(client: Client, key: ApiKey, message: Message, version: int) -> Message:
    body = encode_message(message, version)
    client.send(request_frame(1, body, api_key=key, version=version))
    (length,) = struct.unpack(">i", await client.reader.readexactly(4))
    _, answer = parse_response(await client.reader.readexactly(length), key, version)
    return answer


async def produce(client: Client, topic: str) -> ErrorCode:
    row = PartitionProduceData(index=0, records=bytes(batch()))
    message = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[row])],
    )
    answer = await ask(client, ApiKey.PRODUCE, message, 8)
    assert isinstance(answer, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def create(broker: Broker, topic: str, partition_count: int = 1) -> None:
    """Returns when clients are shown the topic."""
    new = NewTopic(name=topic, partition_count=partition_count, replication_factor=1)
    [result] = await broker._controller.create_topics([new])
    assert result.error is ErrorCode.NONE
    await eventually(lambda: broker._state.cache.contains_topic(topic), f"the metadata of {topic}")


async def delete(broker: Broker, topic: str) -> None:
    """Returns when the controller has done with the topic."""
    [result] = await broker._controller.delete_topics([topic])
    assert result.error is ErrorCode.NONE
    await eventually(
        lambda: topic not in broker._controller.context.all_topics, f"the end of {topic}"
    )


def test_a_bystander_is_served_while_partitions_are_created_and_deleted(tmp_path: Path) -> None:
    disk = HeldNames(f"{tmp_path}/many-")

    async def scenario() -> None:
        broker = make_broker(tmp_path, disk)
        async with running(broker) as client:
            await create(broker, "bystander")
            for change in (create(broker, "many", MANY), delete(broker, "many")):
                disk.hold()
                changing = asyncio.create_task(change)
                await asyncio.to_thread(disk.is_asked.wait)
                for _ in range(3):
                    assert await produce(client, "bystander") is ErrorCode.NONE
                assert not changing.done()
                disk.is_free.set()
                await changing
            assert await produce(client, "bystander") is ErrorCode.NONE

    asyncio.run(scenario())
    left = [path.name for path in tmp_path.glob("many-*")]
    assert len(left) == MANY
    assert all(name.endswith("-delete") for name in left)


def test_what_is_shown_serves(tmp_path: Path) -> None:
    """A client that finds a topic in Metadata can produce to it at once, as before."""

    async def scenario() -> None:
        broker = make_broker(tmp_path, Disk())
        async with running(broker) as client:
            for number in range(20):
                await create(broker, f"t{number}", 5)
                assert await produce(client, f"t{number}") is ErrorCode.NONE

    asyncio.run(scenario())


def test_the_loop_waits_for_no_name_and_no_sync(tmp_path: Path) -> None:
    """Topics made, led anew and deleted, a first group: the disk's part is done elsewhere."""
    disk = WitnessedDisk()

    async def scenario() -> None:
        broker = make_broker(tmp_path, disk)
        async with running(broker) as client:
            disk.watch()
            await create(broker, "t", 10)
            assert await produce(client, "t") is ErrorCode.NONE
            led = PartitionState(
                topic="t", partition=0, leader=0, leader_epoch=1, isr=(0,), replicas=(0,)
            )
            results = await broker._state.publisher.publish(
                ImageDelta(
                    local=LocalDelta(
                        controller_id=0,
                        controller_epoch=1,
                        hosted=(HostedPartition(state=led, topic_id=None, is_new=False),),
                    )
                )
            )
            assert results == {TopicPartition("t", 0): ErrorCode.NONE}
            assert await produce(client, "t") is ErrorCode.NONE
            await delete(broker, "t")
            group = FindCoordinatorRequest(key="g", key_type=0)
            async with asyncio.timeout(60):
                while True:
                    answer = await ask(client, ApiKey.FIND_COORDINATOR, group, 1)
                    assert isinstance(answer, FindCoordinatorResponse)
                    if not answer.error_code:
                        break
                    await asyncio.sleep(0.01)
            disk.stop_watching()
        assert disk.seen == []

    asyncio.run(scenario())


def test_a_stop_in_the_middle_of_a_change(tmp_path: Path) -> None:
    """The change under way ends before logs are closed, and all are marked clean."""
    disk = HeldNames(f"{tmp_path}/many-")

    async def scenario() -> None:
        broker = make_broker(tmp_path, disk)
        await broker.start()
        disk.hold()
        creating = asyncio.create_task(create(broker, "many", 20))
        await asyncio.to_thread(disk.is_asked.wait)
        stopping = asyncio.create_task(broker.stop())
        await eventually(broker._state.publisher._is_stopped.is_set, "the publisher is told")
        assert not stopping.done()
        disk.is_free.set()
        await stopping
        creating.cancel()
        assert (tmp_path / ".kafka_cleanshutdown").exists()

        broker = make_broker(tmp_path, disk)
        async with running(broker) as client:
            assert await produce(client, "many") is ErrorCode.NONE

    asyncio.run(scenario())


def test_a_setting_of_the_broker_passes_every_log_once(tmp_path: Path) -> None:
    """In small steps, and as many as there are logs: not one pass for each partition."""

    async def scenario() -> None:
        broker = make_broker(tmp_path, UnsyncedDisk())
        async with running(broker):
            await create(broker, "t", 30)
            configs = {ConfigResource(ConfigResourceType.BROKER, ""): {"log.retention.ms": "7"}}
            await broker._state.publisher.publish(ImageDelta(cluster=ClusterDelta(configs=configs)))
            logs = broker._state.storage.logs.all_logs()
            assert len(logs) == 30
            assert {log.config.retention_ms for log in logs} == {7}
            steps = broker._state.changes.apply(
                ClusterDelta(configs=configs), broker._state.cache.image
            )
            assert len(list(steps)) <= 2 * len(logs) + 5

    asyncio.run(scenario())


def test_a_start_waits_until_all_partitions_have_their_roles(tmp_path: Path) -> None:
    """14 section 15.4: a broker that only knows who is there answers no client yet."""

    async def scenario() -> None:
        async with running(broker := make_broker(tmp_path, Disk())):
            await create(broker, "t")
        disk = HeldFiles("partition.metadata")
        broker = make_broker(tmp_path, disk)
        starting = asyncio.create_task(broker.start())
        try:
            await asyncio.to_thread(disk.is_asked.wait)
            await eventually(lambda: broker._state.cache.is_published, "who is there")
            assert not broker._gate.is_open
            assert not starting.done()
        finally:
            disk.is_free.set()
            await starting
            assert broker._state.cache.contains_topic("t")
            await broker.stop()

    asyncio.run(scenario())
