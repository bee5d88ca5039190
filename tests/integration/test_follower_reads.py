"""Consumers read from the replica in their rack (KIP-392; 09:CL-19, 09:CL-26), through sockets.

Three brokers, each in a rack of its own; broker 0 leads the only partition.
"""

import asyncio
import contextlib
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import confluent_kafka
import pytest

from odradek.aio import Admin, Consumer, Producer
from odradek.broker.peers.leader_endpoint import WireEndpoint
from odradek.client.admin import NewTopic
from odradek.client.cluster import PartitionView
from odradek.errors import ApiError
from odradek.model import TopicPartition
from odradek.testing import AsyncEmbeddedCluster
from tests.support.followers import ask_through
from tests.support.ports import free_ports

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
T0 = TopicPartition("t", 0)
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.lag.time.max.ms": "1500",
    "auto.leader.rebalance.enable": "false",
}
_BYTES_OUT = re.compile(
    r'^kafka_server_brokertopicmetrics_bytesout_total\{topic="t"\} (\d+)$', re.MULTILINE
)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - brokers have no event for it
            await asyncio.sleep(0.02)


class Racks:
    """A running cluster, and what its brokers have sent to consumers."""

    def __init__(self, cluster: AsyncEmbeddedCluster, admin: Admin, ports: list[int]) -> None:
        self.cluster = cluster
        self.admin = admin
        self._ports = ports

    async def bytes_out(self) -> list[int]:
        """Bytes of the topic that each broker sent to consumers, -1 for one that is stopped."""
        return [await asyncio.to_thread(self._bytes_out, broker_id) for broker_id in range(3)]

    def _bytes_out(self, broker_id: int) -> int:
        if broker_id not in self.cluster.broker_ids:
            return -1
        url = f"http://127.0.0.1:{self._ports[broker_id]}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            found = _BYTES_OUT.search(answer.read().decode())
        return 0 if found is None else int(found[1])

    async def in_sync(self, *members: int) -> None:
        async def is_so() -> bool:
            found = (await self.admin.describe_topics(["t"]))["t"]
            if isinstance(found, ApiError):
                return False
            view: PartitionView = found.partitions[0]
            return (view.leader, set(view.isr)) == (0, set(members))

        await until(is_so)

    async def write(self, count: int) -> None:
        settings = {"bootstrap.servers": self.cluster.bootstrap_servers, "acks": "all"}
        async with Producer(settings) as producer:
            for _ in range(count):
                await producer.send("t", value=bytes(1_000), partition=0)

    def consumer(self, rack: str, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_server(0),
                "auto.offset.reset": "earliest",
                "client.rack": rack,
                **settings,
            }
        )


@contextlib.asynccontextmanager
async def racks() -> AsyncIterator[Racks]:
    ports = free_ports(3)

    def settings_of(broker_id: int) -> Mapping[str, object]:
        return {"broker.rack": f"rack-{broker_id}", "odradek.metrics.port": str(ports[broker_id])}

    async with (
        AsyncEmbeddedCluster(3, SETTINGS, settings_of=settings_of) as cluster,
        Admin({"bootstrap.servers": cluster.bootstrap_server(0)}) as admin,
    ):
        created = await admin.create_topics([NewTopic(name="t", assignments={0: [0, 1, 2]})])
        assert not isinstance(created["t"], ApiError), created
        found = Racks(cluster, admin, ports)
        await found.in_sync(0, 1, 2)
        yield found


async def read(consumer: Consumer, *, up_to: int) -> None:
    """Reads until the position is there; no record may be missing or come twice."""
    async with asyncio.timeout(PATIENCE_S):
        expected = await consumer.position(T0)
        while expected < up_to:
            for record in await consumer.poll(1.0):
                assert record.offset == expected
                expected += 1


@pytest.mark.parametrize(
    ("rack", "serves"),
    [("rack-1", 1), ("rack-2", 2), ("rack-0", 0), ("nowhere", 0), ("", 0)],
)
def test_a_consumer_is_served_by_the_replica_of_its_rack(rack: str, serves: int) -> None:
    async def scenario() -> None:
        async with racks() as found:
            await found.write(20)
            async with found.consumer(rack) as consumer:
                await consumer.assign([T0])
                await read(consumer, up_to=20)
                await found.write(5)  # The fetch that waits there is woken by replication.
                await read(consumer, up_to=25)
            sent = await found.bytes_out()
            assert sent[serves] >= 25_000
            assert [size for broker_id, size in enumerate(sent) if broker_id != serves] == [0, 0]

    asyncio.run(scenario())


def test_the_leader_is_read_when_the_follower_dies() -> None:
    async def scenario() -> None:
        async with racks() as found:
            await found.write(20)
            async with found.consumer("rack-2") as consumer:
                await consumer.assign([T0])
                await read(consumer, up_to=20)
                assert (await found.bytes_out())[0] == 0
                await found.cluster.kill(2)
                await found.in_sync(0, 1)
                await found.write(20)
                await read(consumer, up_to=40)
                assert (await found.bytes_out())[0] >= 20_000

    asyncio.run(scenario())


def test_the_follower_is_read_when_its_broker_returns() -> None:
    """The consumer looked the cluster up when the broker was away; the leader sends it there."""

    async def scenario() -> None:
        async with racks() as found:
            await found.write(20)
            await found.cluster.kill(2)
            await found.in_sync(0, 1)
            async with found.consumer("rack-2") as consumer:
                await consumer.assign([T0])
                await read(consumer, up_to=20)
                await found.cluster.start(2)
                await found.in_sync(0, 1, 2)

                async def is_read_from_its_rack() -> bool:
                    await found.write(1)
                    await read(consumer, up_to=(await consumer.position(T0)) + 1)
                    return (await found.bytes_out())[2] > 0

                await until(is_read_from_its_rack)

    asyncio.run(scenario())


def test_the_leader_is_read_when_the_follower_falls_out_of_the_isr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer asks the leader again when the word of the leader is a metadata age old."""

    async def scenario() -> None:
        gate = asyncio.Event()
        gate.set()
        monkeypatch.setattr(WireEndpoint, "ask", ask_through(gate, 2))
        async with racks() as found:
            await found.write(20)
            settings = {"metadata.max.age.ms": 200, "fetch.max.wait.ms": 100}
            async with found.consumer("rack-2", **settings) as consumer:
                await consumer.assign([T0])
                await read(consumer, up_to=20)
                assert (await found.bytes_out())[0] == 0
                gate.clear()
                writing = asyncio.create_task(found.write(20))  # Ends when the ISR has shrunk.
                await found.in_sync(0, 1)
                await writing
                await read(consumer, up_to=40)  # The follower does not have them.
                sent = await found.bytes_out()
                assert sent[0] >= 20_000
                gate.set()
                await found.in_sync(0, 1, 2)

                async def is_read_from_its_rack_again() -> bool:
                    await found.write(1)
                    await read(consumer, up_to=(await consumer.position(T0)) + 1)
                    return (await found.bytes_out())[2] > sent[2]

                await until(is_read_from_its_rack_again)

    asyncio.run(scenario())


def test_librdkafka_is_served_by_the_replica_of_its_rack() -> None:
    def read_with_librdkafka(bootstrap: str) -> list[int]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "client.rack": "rack-1",
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
            offsets: list[int] = []
            while len(offsets) < 20:
                messages = consumer.consume(20, timeout=PATIENCE_S)
                assert messages, "nothing came in time"
                for message in messages:
                    assert message.error() is None
                    offset = message.offset()
                    assert offset is not None
                    offsets.append(offset)
            return offsets
        finally:
            consumer.close()

    async def scenario() -> None:
        async with racks() as found:
            await found.write(20)
            bootstrap = found.cluster.bootstrap_server(0)
            offsets = await asyncio.to_thread(read_with_librdkafka, bootstrap)
            assert offsets == list(range(20))
            sent = await found.bytes_out()
            assert sent[0] == 0
            assert sent[1] >= 20_000

    asyncio.run(scenario())
