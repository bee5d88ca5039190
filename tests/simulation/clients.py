"""The clients of a simulation: they write, read in a group, commit, and look over the shoulder."""

import asyncio
from random import Random

from odradek.aio import Admin, Consumer, Producer
from odradek.client.admin.topics import NewTopic
from odradek.client.producer.delivery import Delivery
from odradek.errors import OdradekError
from odradek.model import TopicPartition
from odradek.network.outbound import OutboundConnection, OutboundOptions
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.records.batch import iter_headers
from tests.simulation.history import History, Violation
from tests.simulation.machine import Machine

__all__ = ["PARTITIONS", "TOPIC", "Prober", "Reader", "Writer", "create_topic"]

TOPIC = "t"
PARTITIONS = 3
GROUP = "g"
SESSION_MS = 6_000


async def create_topic(machine: Machine) -> None:
    """Makes the topic, however often that has to be tried."""
    while True:
        try:
            around = machine.client("admin")
            async with Admin(bootstrap_servers=machine.bootstrap, surroundings=around) as admin:
                topic = NewTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=1)
                [result] = (await admin.create_topics([topic], timeout=5)).values()
                if not isinstance(result, Exception) or "exist" in str(result):
                    return
        except OdradekError:
            pass
        await asyncio.sleep(0.5)


class Writer:
    """Writes numbered records; a record has its outcome when the producer says so.

    Attributes:
        unsettled: Records without an outcome.
    """

    def __init__(self, machine: Machine, history: History, name: str) -> None:
        self._machine = machine
        self._history = history
        self._name = name
        self._random = Random(f"{machine.bootstrap} {name}")
        self.is_ending = False
        self.unsettled = 0
        self.acknowledged = 0
        self.failed = 0

    async def run(self) -> None:
        number = 0
        while not self.is_ending:
            try:
                async with Producer(
                    bootstrap_servers=self._machine.bootstrap,
                    enable_idempotence=True,
                    acks="all",
                    linger_ms=self._random.choice((0, 5, 30)),
                    request_timeout_ms=3_000,
                    delivery_timeout_ms=60_000,
                    surroundings=self._machine.client(f"{self._name} {number}"),
                ) as producer:
                    while not self.is_ending:
                        number += 1
                        record = f"{self._name}-{number}".encode()
                        delivery = await producer.send(
                            TOPIC,
                            value=record + b"." * self._random.randrange(40),
                            partition=self._random.randrange(PARTITIONS),
                        )
                        self.unsettled += 1
                        asyncio.get_running_loop().create_task(self._settle(delivery, record))
                        await asyncio.sleep(self._random.random() * 0.2)
            except OdradekError:
                await asyncio.sleep(0.5)

    async def _settle(self, delivery: Delivery, record: bytes) -> None:
        try:
            told = await delivery
        except OdradekError:
            self.failed += 1
        else:
            self.acknowledged += 1
            tp = TopicPartition(told.topic, told.partition)
            self._machine.guard(lambda: self._history.acknowledge(tp, told.offset, record))
        finally:
            self.unsettled -= 1


class Reader:
    """A member of the group: reads, commits what it has read, and leaves now and then."""

    def __init__(self, machine: Machine, history: History, name: str) -> None:
        self._machine = machine
        self._history = history
        self._name = name
        self._random = Random(f"{machine.bootstrap} {name}")
        self.consumer: Consumer | None = None
        self.positions: dict[TopicPartition, int] = {}
        self.may_leave = True
        self._is_leaving = False

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            try:
                async with Consumer(
                    bootstrap_servers=self._machine.bootstrap,
                    group_id=GROUP,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    session_timeout_ms=SESSION_MS,
                    heartbeat_interval_ms=SESSION_MS // 4,
                    request_timeout_ms=3_000,
                    # A join whose broker lost its power is given up after it.
                    max_poll_interval_ms=20_000,
                    fetch_max_wait_ms=200,
                    surroundings=self._machine.client(f"{self._name} {number}"),
                ) as consumer:
                    self.consumer = consumer
                    await consumer.subscribe([TOPIC])
                    await self._read(consumer)
            except OdradekError:
                pass
            self.consumer = None
            self.positions = {}
            await asyncio.sleep(self._random.random() * 2)

    def leave(self) -> None:
        """Leaves the group, and comes back a moment later."""
        self._is_leaving = True
        self.consumer = None

    async def _read(self, consumer: Consumer) -> None:
        rounds = self._random.randrange(10, 80)
        self._is_leaving = False
        while not self._is_leaving and (rounds or not self.may_leave):
            rounds = max(rounds - 1, 0)
            records = await consumer.poll(0.3)
            assigned = consumer.assignment()
            self.positions = {tp: at for tp, at in self.positions.items() if tp in assigned}
            for record in records:
                tp = TopicPartition(record.topic, record.partition)
                value = bytes(record.value or b"").rstrip(b".")
                self._machine.guard(lambda: self._history.see(tp, record.offset, value))  # noqa: B023 - called at once
                self.positions[tp] = record.offset + 1
            if records and self._random.random() < 0.5:
                await self._commit(consumer)

    async def _commit(self, consumer: Consumer) -> None:
        offsets = {tp: at for tp, at in self.positions.items() if tp in consumer.assignment()}
        if not offsets:
            return
        losses = self._history.begin_commit(offsets)
        try:
            await consumer.commit_sync({tp: at for tp, at in offsets.items()}, timeout=4)  # noqa: C416 - a dict of wider types
        except OdradekError:
            return
        self._history.end_commit(offsets, losses)


class Prober:
    """Asks the broker directly, and compares its answers with one another."""

    def __init__(self, machine: Machine, history: History) -> None:
        self._machine = machine
        self._history = history
        self._random = Random(f"{machine.bootstrap} prober")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.1 + self._random.random() * 0.5)
            around = self._machine.client("prober")
            options = OutboundOptions(
                client_id="prober", request_timeout_ms=2_000, streams=around.streams
            )
            try:
                connection = await OutboundConnection.open(
                    self._machine.bootstrap.split(":")[0], 9092, options
                )
                try:
                    for _ in range(5):
                        await self._fetch(connection)
                        await asyncio.sleep(self._random.random() * 0.3)
                finally:
                    connection.close()
            except OdradekError:
                pass
            await self._look_at_commits()

    async def _fetch(self, connection: OutboundConnection) -> None:
        partition = self._random.randrange(PARTITIONS)
        tp = TopicPartition(TOPIC, partition)
        log_end = self._machine.log_end(tp)
        start = max(log_end - self._random.randrange(4), 0)
        request = FetchRequest(
            max_wait_ms=50,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchPartition(
                            partition=partition, fetch_offset=start, partition_max_bytes=1 << 20
                        )
                    ],
                )
            ],
        )
        response = await connection.request(ApiKey.FETCH, request, 11)
        assert isinstance(response, FetchResponse)
        for topic in response.responses:
            for found in topic.partitions:
                if found.error_code or not found.records:
                    continue
                last = max(header.last_offset for _, header in iter_headers(found.records))
                if last >= found.high_watermark:
                    self._machine.on_violation(
                        Violation(
                            f"{tp}: a fetch brought {last}, the high watermark is"
                            f" {found.high_watermark}"
                        )
                    )

    async def _look_at_commits(self) -> None:
        expected = dict(self._history.committed)
        if not expected:
            return
        life = self._machine.crashes
        try:
            async with Consumer(
                bootstrap_servers=self._machine.bootstrap,
                group_id=GROUP,
                request_timeout_ms=2_000,
                surroundings=self._machine.client("prober"),
            ) as consumer:
                found = await consumer.committed(expected, timeout=3)
        except OdradekError:
            return
        if life == self._machine.crashes:
            told = {tp: None if at is None else at.offset for tp, at in found.items()}
            self._machine.guard(lambda: self._history.check_committed(told, expected))
