"""Replication between brokers of one process, through sockets (05; 08 K-16, K-17; 15 section 5.1).

Three brokers, replication factor 3, min.insync.replicas 2 and acks=all, unless a test says
otherwise. Broker 0 leads at first, since it is the preferred replica of every partition here.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.aio import Admin, Consumer, Producer
from odradek.broker.peers.control_channel import WireChannel
from odradek.broker.peers.leader_endpoint import WireEndpoint
from odradek.client.admin import (
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    NewTopic,
)
from odradek.client.cluster import PartitionView
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.model import TopicPartition
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records.batch import iter_headers
from odradek.testing import AsyncEmbeddedCluster
from tests.support.followers import ask_through
from tests.support.logs import LogFixture, batch

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
# Leaders stay where they are: no election puts the preferred replica back in the middle of a test.
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "1500",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "1",
}
T0 = TopicPartition("t", 0)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - brokers have no event for it
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def running(
    data_dir: Path, *, brokers: int = 3, **settings: Any
) -> AsyncIterator[AsyncEmbeddedCluster]:
    given = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    async with AsyncEmbeddedCluster(brokers, given, data_dir=data_dir) as cluster:
        yield cluster


async def create(cluster: AsyncEmbeddedCluster, *replicas: int, **configs: str) -> None:
    async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        topic = NewTopic(name="t", assignments={0: list(replicas)}, configs=configs)
        created = await admin.create_topics([topic])
    assert not isinstance(created["t"], ApiError), created


async def view(cluster: AsyncEmbeddedCluster, told: int) -> PartitionView | None:
    """Partition 0 of topic `t`, as a broker shows it."""
    async with Admin({"bootstrap.servers": cluster.bootstrap_server(told)}) as admin:
        found = (await admin.describe_topics(["t"]))["t"]
    return None if isinstance(found, ApiError) else found.partitions[0]


async def in_sync(cluster: AsyncEmbeddedCluster, told: int, *members: int) -> PartitionView:
    """Waits until a broker shows this ISR."""
    found: list[PartitionView] = []

    async def is_so() -> bool:
        seen = await view(cluster, told)
        if seen is None or set(seen.isr) != set(members):
            return False
        found.append(seen)
        return True

    await until(is_so)
    return found[0]


async def led_by(cluster: AsyncEmbeddedCluster, told: int, leader: int) -> None:
    """Waits until a broker shows this leader."""

    async def is_so() -> bool:
        seen = await view(cluster, told)
        return seen is not None and seen.leader == leader

    await until(is_so)


def producer_of(cluster: AsyncEmbeddedCluster, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **settings})


async def send(producer: Producer, *values: bytes) -> list[int]:
    """The offsets, once all are acknowledged."""
    deliveries = [await producer.send("t", value=value, partition=0) for value in values]
    return [(await delivery).offset for delivery in deliveries]


async def read(cluster: AsyncEmbeddedCluster, count: int) -> list[bytes | None]:
    """The first records of the partition, by offset."""
    values: list[bytes | None] = []
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "auto.offset.reset": "earliest"}
    async with Consumer(settings) as consumer, asyncio.timeout(PATIENCE_S):
        await consumer.assign([T0])
        while len(values) < count:
            for record in await consumer.poll(1.0):
                assert record.offset == len(values)
                values.append(record.value)
    return values


def stored(data_dir: Path, broker_id: int) -> bytes:
    """The batches in a stopped broker's log, as they lie in its files."""
    files = sorted((data_dir / f"broker-{broker_id}" / "t-0").glob("*.log"))
    data = b"".join(path.read_bytes() for path in files)
    return b"".join(data[at : at + header.size] for at, header in iter_headers(data))


def test_nothing_acknowledged_is_lost_when_leaders_die(tmp_path: Path) -> None:
    """08:K-16, 05 section 1: the next leader has it all, and the dead one returns to the ISR."""

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, 0, 1, 2)
            async with producer_of(cluster) as producer:
                acknowledged = await send(producer, *(b"%d" % n for n in range(100)))
                for dead in (0, 1):
                    deliveries = [
                        await producer.send("t", value=b"%d" % n, partition=0)
                        for n in range(len(acknowledged), len(acknowledged) + 50)
                    ]
                    await cluster.kill(dead)
                    acknowledged += [(await delivery).offset for delivery in deliveries]
                    await in_sync(cluster, 2, *(b for b in (0, 1, 2) if b != dead))
                    await cluster.start(dead)
                    await in_sync(cluster, 2, 0, 1, 2)
                acknowledged += await send(producer, b"%d" % len(acknowledged))
            assert acknowledged == list(range(201))
            assert await read(cluster, 201) == [b"%d" % n for n in range(201)]

    asyncio.run(scenario())
    logs = [stored(tmp_path, broker_id) for broker_id in (0, 1, 2)]
    assert logs[0]
    assert logs[0] == logs[1] == logs[2]


def test_too_few_replicas_refuse_acks_all(tmp_path: Path) -> None:
    """08:K-17: below min.insync.replicas the write is refused, and accepted again afterwards."""

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, 0, 1, 2)
            await cluster.kill(1)
            await cluster.kill(2)
            await in_sync(cluster, 0, 0)
            async with producer_of(cluster, retries=0) as producer:
                with pytest.raises(ApiError) as refused:
                    await send(producer, b"refused")
                assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
            await cluster.start(2)
            await in_sync(cluster, 0, 0, 2)
            async with producer_of(cluster) as producer:
                assert await send(producer, b"accepted") == [0]

    asyncio.run(scenario())


def test_without_an_in_sync_replica_the_partition_waits_and_returns_whole(tmp_path: Path) -> None:
    """unclean.leader.election.enable=false: the replica that lags never leads."""

    async def scenario() -> None:
        async with running(tmp_path, min_insync_replicas="1") as cluster:
            await create(cluster, 0, 1)
            async with producer_of(cluster) as producer:
                await send(producer, b"both")
                await cluster.kill(1)
                await in_sync(cluster, 0, 0)
                await send(producer, b"only 0")
            await cluster.kill(0)

            async def is_without_leader() -> bool:
                seen = await view(cluster, 2)
                return seen is not None and seen.leader == -1

            await until(is_without_leader)
            await cluster.start(1)
            await until(is_without_leader)
            await cluster.start(0)
            seen = await in_sync(cluster, 2, 0, 1)
            assert seen.leader == 0
            assert await read(cluster, 2) == [b"both", b"only 0"]

    asyncio.run(scenario())
    assert stored(tmp_path, 0) == stored(tmp_path, 1)


def test_a_tail_that_no_other_replica_has_is_cut(tmp_path: Path) -> None:
    """15:KAFKA-1211, 08:F-6: the former leader returns with records that were never committed."""

    async def write() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, 0, 1, 2)
            async with producer_of(cluster) as producer:
                await send(producer, b"a", b"b")

    asyncio.run(write())
    # As if broker 0 had written three records and died before any follower fetched them.
    with LogFixture(tmp_path / "broker-0") as fixture:
        log = fixture.open(clean=True, directory=str(tmp_path / "broker-0" / "t-0"))
        epoch, end = log.leader_epochs.latest_epoch, log.log_end_offset
        assert epoch is not None
        log.append_as_leader(batch(3, value=b"lost"), leader_epoch=epoch)
        log.close()

    async def fail_over() -> None:
        async with AsyncEmbeddedCluster(
            3, SETTINGS, data_dir=tmp_path, settings_of=lambda _id: {}
        ) as cluster:
            await in_sync(cluster, 2, 0, 1, 2)
            await cluster.kill(0)
            async with producer_of(cluster) as producer:
                assert await send(producer, b"c") == [end]
            await cluster.start(0)
            await in_sync(cluster, 2, 0, 1, 2)
            assert await read(cluster, 3) == [b"a", b"b", b"c"]

    # Broker 0 must not lead when it returns: the cluster starts with the others.
    order = iter([1, 2, 0])
    started = AsyncEmbeddedCluster.start

    async def start_others_first(self: AsyncEmbeddedCluster, broker_id: int) -> None:
        await started(self, next(order, broker_id))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncEmbeddedCluster, "start", start_others_first)
        asyncio.run(fail_over())
    assert stored(tmp_path, 0) == stored(tmp_path, 1) == stored(tmp_path, 2)


@contextlib.contextmanager
def held_fetches(replica_id: int, gate: asyncio.Event) -> Iterator[None]:
    """Holds the fetches of one broker while the gate is closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WireEndpoint, "ask", ask_through(gate, replica_id))
        yield


def test_a_slow_follower_leaves_the_isr_and_returns(tmp_path: Path) -> None:
    """08:K-17, 05 section 10: out after replica.lag.time.max.ms, in when it has caught up."""

    async def scenario() -> None:
        gate = asyncio.Event()
        gate.set()
        with held_fetches(2, gate):
            async with running(tmp_path) as cluster:
                await create(cluster, 0, 1, 2)
                async with producer_of(cluster) as producer:
                    await send(producer, b"a")
                    gate.clear()
                    offsets = await send(producer, b"b")  # Waits until broker 2 has left.
                    await in_sync(cluster, 0, 0, 1)
                    gate.set()
                    await in_sync(cluster, 0, 0, 1, 2)
                    assert offsets + await send(producer, b"c") == [1, 2]

    asyncio.run(scenario())
    assert stored(tmp_path, 0) == stored(tmp_path, 2)


def test_a_follower_with_an_empty_disk(tmp_path: Path) -> None:
    """15:KAFKA-15221: it fetches everything before it is in sync again."""

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, 0, 1, 2)
            async with producer_of(cluster) as producer:
                await send(producer, *(b"%d" % n for n in range(200)))
                await cluster.kill(2)
                for path in (tmp_path / "broker-2" / "t-0").iterdir():
                    path.unlink()
                (tmp_path / "broker-2" / "t-0").rmdir()
                await cluster.start(2)
                await in_sync(cluster, 0, 0, 1, 2)
                await cluster.kill(0)
                assert await send(producer, b"200") == [200]
            assert await read(cluster, 201) == [b"%d" % n for n in range(201)]

    asyncio.run(scenario())
    assert stored(tmp_path, 1) == stored(tmp_path, 2)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_replica_is_copied_when_the_limit_is_lifted(tmp_path: Path, side: str) -> None:
    """05 section 4: none of it, or a part, is copied until then; replicas in sync go on."""
    named = {f"{side}.replication.throttled.replicas": "*" if side == "leader" else "0:2"}
    rate = f"{side}.replication.throttled.rate"

    async def scenario() -> None:
        limits: dict[str, Any] = {
            "replica.fetch.max.bytes": "20000",
            "replica.fetch.backoff.ms": "100",
            rate: "1",
        }
        async with (
            running(tmp_path, **limits) as cluster,
            Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        ):
            await create(cluster, 0, 1, **named)
            await in_sync(cluster, 0, 0, 1)
            async with producer_of(cluster) as producer:
                for _ in range(10):  # One by one: each is a batch.
                    await send(producer, bytes(10_000))
                await admin.alter_partition_reassignments({T0: [0, 1, 2]})

                async def has_begun() -> bool:
                    directories = (await admin.describe_log_dirs([2], partitions=[T0]))[2]
                    assert not isinstance(directories, ApiError), directories
                    [directory] = directories.values()
                    assert not isinstance(directory, ApiError), directory
                    return T0 in directory.replicas and directory.replicas[T0].size > 0

                if side == "leader":  # Its rate is above the limit by the copies that go to 1.
                    assert await admin.list_partition_reassignments()
                else:
                    await until(has_begun)
                await send(producer, b"in sync")
                assert set((await in_sync(cluster, 0, 0, 1)).isr) == {0, 1}
                assert await admin.list_partition_reassignments()
                every = ConfigResource(ConfigResourceType.BROKER, "")
                lift = {every: [ConfigOperation.set(rate, str(1 << 40))]}
                assert await admin.incremental_alter_configs(lift) == {every: None}
                await in_sync(cluster, 0, 0, 1, 2)
                await send(producer, b"all in sync")

    asyncio.run(scenario())


def test_deleted_records_are_deleted_on_all_replicas(tmp_path: Path) -> None:
    """05 section 8.1: DeleteRecords is answered when every live replica has raised its start."""

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, 0, 1, 2)
            async with producer_of(cluster) as producer:
                await send(producer, *(b"%d" % n for n in range(10)))
            async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                deleted = await admin.delete_records({T0: 4})
                assert not isinstance(deleted[T0], ApiError), deleted
            await cluster.kill(0)
            await in_sync(cluster, 2, 1, 2)
            settings = {"bootstrap.servers": cluster.bootstrap_servers}
            async with Consumer(settings) as consumer:
                assert await consumer.beginning_offsets([T0]) == {T0: 4}

    asyncio.run(scenario())


@pytest.mark.parametrize("version", ["2.4", "2.8", "3.9"])
def test_versions_between_brokers(tmp_path: Path, version: str) -> None:
    """Fetch 11 by name with epoch requests, 12 by name, 17 by id: all replicate and fail over."""

    async def scenario() -> None:
        async with running(tmp_path, inter_broker_protocol_version=version) as cluster:
            await create(cluster, 0, 1, 2)
            async with producer_of(cluster) as producer:
                await send(producer, *(b"%d" % n for n in range(20)))
                await cluster.kill(0)
                await send(producer, b"20")
                await cluster.start(0)
                await in_sync(cluster, 1, 0, 1, 2)
            assert await read(cluster, 21) == [b"%d" % n for n in range(21)]

    asyncio.run(scenario())
    assert stored(tmp_path, 0) == stored(tmp_path, 1) == stored(tmp_path, 2)


@contextlib.contextmanager
def held_orders(broker_id: int, gate: asyncio.Event) -> Iterator[None]:
    """Keeps the controller's requests from one broker while the gate is closed."""
    send = WireChannel.send

    async def send_through_gate(self: WireChannel, request: ControlRequest) -> ControlResponse:
        if self._connection.broker_id == broker_id:
            await gate.wait()
        return await send(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WireChannel, "send", send_through_gate)
        yield


def test_a_leader_that_does_not_hear_of_its_successor(tmp_path: Path) -> None:
    """08:K-19, on a store: cut off from the controller it acknowledges nothing, and then cuts."""

    async def produce_to(server: str) -> int:
        """The error of a produce with acks=all."""
        row = PartitionProduceData(index=0, records=batch(1, value=b"void"))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=2_000,  # Longer than a follower may lag.
            topic_data=[TopicProduceData(name="t", partition_data=[row])],
        )
        host, _, port = server.rpartition(":")
        connection = await OutboundConnection.open(host, int(port))
        try:
            answer = await connection.request(ApiKey.PRODUCE, request, 8)
        finally:
            connection.close()
        assert isinstance(answer, ProduceResponse)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    async def scenario() -> None:
        gate = asyncio.Event()
        gate.set()
        with held_orders(1, gate):
            async with running(tmp_path) as cluster:
                await create(cluster, 2, 1, 0)
                async with Admin({"bootstrap.servers": cluster.bootstrap_server(0)}) as admin:
                    await admin.alter_partition_reassignments({T0: [1, 2, 0]})
                    await admin.elect_leaders(ElectionType.PREFERRED, [T0])
                    await led_by(cluster, 1, 1)
                    await led_by(cluster, 0, 1)
                    async with producer_of(cluster) as producer:
                        await send(producer, b"a")
                    gate.clear()
                    await admin.alter_partition_reassignments({T0: [2, 1, 0]})
                    await admin.elect_leaders(ElectionType.PREFERRED, [T0])
                await led_by(cluster, 0, 2)
                stale = await view(cluster, 1)
                assert stale is not None
                assert stale.leader == 1
                error = await produce_to(cluster.bootstrap_server(1))
                assert error == ErrorCode.REQUEST_TIMED_OUT
                settings = {"bootstrap.servers": cluster.bootstrap_server(0), "acks": "all"}
                async with Producer(settings) as producer:
                    await send(producer, b"b")
                gate.set()
                await led_by(cluster, 1, 2)
                await in_sync(cluster, 2, 0, 1, 2)
                assert await read(cluster, 2) == [b"a", b"b"]

    asyncio.run(scenario())
    assert stored(tmp_path, 0) == stored(tmp_path, 1) == stored(tmp_path, 2)


def test_a_leader_whose_session_expires(tmp_path: Path) -> None:
    """08:K-18, K-16: it acknowledges nothing until it is confirmed; nothing is lost meanwhile."""

    async def scenario() -> None:
        async with running(tmp_path) as cluster:
            await create(cluster, 0, 1, 2)
            async with producer_of(cluster) as producer:
                acknowledged = await send(producer, *(b"%d" % n for n in range(50)))
                for expired in (0, 1, 0):
                    deliveries = [
                        await producer.send("t", value=b"%d" % n, partition=0)
                        for n in range(len(acknowledged), len(acknowledged) + 50)
                    ]
                    await cluster.expire(expired)
                    acknowledged += [(await delivery).offset for delivery in deliveries]
                    await in_sync(cluster, 2, 0, 1, 2)
            assert acknowledged == list(range(200))
            assert await read(cluster, 200) == [b"%d" % n for n in range(200)]

    asyncio.run(scenario())
    assert stored(tmp_path, 0) == stored(tmp_path, 1) == stored(tmp_path, 2)
