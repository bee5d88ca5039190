"""A whole broker under bad input: it lives, stays small, stays quiet, and serves everybody else.

The broker is a process of its own, as an operator runs it. Beside those who send damaged requests,
thousands who say nothing and some who send a byte now and then, one client works on a connection
that is never closed.
"""

import asyncio
import contextlib
import re
import resource
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.messages import api_versions, create_topics, fetch, produce
from odradek.records.builder import build_batch
from tests.conformance.clients.raw import RawConnection
from tests.support.odradek_broker import OdradekBroker, running_odradek
from tests.support.random_requests import RequestSource

pytestmark = pytest.mark.slow

_SEED = 20
_GOOD_TOPIC = "good"
# What random requests may find on the broker.
_NAMES = ("target", "group", "__consumer_offsets", "member")
_IDLE_COUNT = 2_000
_SLOW_COUNT = 50
_AT_A_TIME = 64
# A request that waits for others, as a fetch may, is left after this.
_PATIENCE_S = 0.1
# A broker with nothing to do has 40 MB. Ten times that is far from what the senders announce.
_MAX_MEMORY_BYTES = 400 << 20


class GoodClient:
    """Writes and reads on one connection until it is told to stop."""

    def __init__(self, port: int) -> None:
        self.rounds = 0
        self._port = port
        self._is_done = threading.Event()

    def run(self) -> None:
        with RawConnection(self._port, client_id="good") as connection:
            while not self._is_done.is_set():
                self._work(connection)
                self.rounds += 1

    def stop(self) -> None:
        self._is_done.set()

    def _work(self, connection: RawConnection) -> None:
        value = str(self.rounds).encode()
        data = produce.PartitionProduceData(
            index=0, records=bytes(build_batch([(int(time.time() * 1000), b"k", value, ())]))
        )
        topic = produce.TopicProduceData(name=_GOOD_TOPIC, partition_data=[data])
        wrote = connection.call(
            ApiKey.PRODUCE, 9, produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        )
        assert isinstance(wrote, produce.ProduceResponse)
        (row,) = wrote.responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, self.rounds)
        asked = fetch.FetchPartition(
            partition=0, fetch_offset=self.rounds, partition_max_bytes=1 << 20
        )
        wanted = fetch.FetchTopic(topic=_GOOD_TOPIC, partitions=[asked])
        read = connection.call(
            ApiKey.FETCH, 12, fetch.FetchRequest(max_wait_ms=0, min_bytes=1, topics=[wanted])
        )
        assert isinstance(read, fetch.FetchResponse)
        records = read.responses[0].partitions[0].records
        assert records is not None
        assert value in bytes(records)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Room for the idle ones; a child has the same limit, so the broker's ends fit, too."""
    needed = _IDLE_COUNT + 1_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"needs {needed} descriptors, the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def broker(tmp_path: Path, many_descriptors: None) -> Iterator[OdradekBroker]:
    with running_odradek(tmp_path) as broker:
        with RawConnection(broker.port) as connection:
            topics = [
                create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in (_GOOD_TOPIC, "target")
            ]
            made = connection.call(
                ApiKey.CREATE_TOPICS, 5, create_topics.CreateTopicsRequest(topics=topics)
            )
            assert isinstance(made, create_topics.CreateTopicsResponse)
            assert [row.error_code for row in made.topics] == [ErrorCode.NONE] * 2
        yield broker


def test_bad_input_harms_nobody(broker: OdradekBroker) -> None:
    """02:N-8, for every API and version that is served."""
    good = GoodClient(broker.port)
    payloads = list(_payloads(broker))

    async def scenario() -> None:
        working = asyncio.create_task(asyncio.to_thread(good.run))
        async with _idle(broker.port), _slow_senders(broker.port):
            await _send_all(broker.port, payloads)
            good.stop()
            await working

    asyncio.run(scenario())
    assert good.rounds > 10
    assert broker.is_alive()
    log = broker.log()
    assert not re.search(r"\bERROR\b|\bCRITICAL\b|Traceback", log), log[-4000:]
    closed = Counter(re.findall(r"Closed connection (\S+)", log))
    assert closed.total() == len(closed) <= len(payloads)
    assert broker.peak_memory_bytes() < _MAX_MEMORY_BYTES


def _payloads(broker: OdradekBroker) -> Iterator[bytes]:
    """A few of each API and version: well-formed, damaged, and noise behind a header."""
    source = RequestSource(_SEED, _NAMES)
    for key, versions in _served(broker).items():
        for version in versions:
            well_formed = source.well_formed(key, version)
            yield well_formed
            yield source.damaged(well_formed)
            yield source.damaged(source.well_formed(key, version))
            yield source.noise(key, version)


def _served(broker: OdradekBroker) -> dict[ApiKey, range]:
    with RawConnection(broker.port) as connection:
        answer = connection.call(ApiKey.API_VERSIONS, 0, api_versions.ApiVersionsRequest())
    assert isinstance(answer, api_versions.ApiVersionsResponse)
    served = [ApiKey(row.api_key) for row in answer.api_keys]
    return {
        key: range(API_SUPPORT[key].accepted.first, API_SUPPORT[key].accepted.last + 1)
        for key in served
    }


async def _send_all(port: int, payloads: list[bytes]) -> None:
    """Each on a connection of its own, for it may be the last."""
    at_a_time = asyncio.Semaphore(_AT_A_TIME)

    async def send(payload: bytes) -> None:
        async with at_a_time:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(struct.pack(">i", len(payload)) + payload)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    await asyncio.wait_for(reader.read(1), _PATIENCE_S)
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    await asyncio.gather(*(send(payload) for payload in payloads))


@contextlib.asynccontextmanager
async def _idle(port: int) -> AsyncIterator[None]:
    """Half of them say nothing, half announce 100 MB."""
    peers: list[socket.socket] = []
    try:
        for index in range(_IDLE_COUNT):
            peer = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 60)
            peers.append(peer)
            if index % 2:
                peer.sendall(struct.pack(">i", 100 << 20))
        yield
    finally:
        for peer in peers:
            peer.close()


@contextlib.asynccontextmanager
async def _slow_senders(port: int) -> AsyncIterator[None]:
    """Each has an honest request and sends a byte of it at every turn."""
    payload = RequestSource(_SEED, _NAMES).well_formed(ApiKey.METADATA, 9)
    frame = struct.pack(">i", len(payload)) + payload
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(_SLOW_COUNT)]

    async def trickle() -> None:
        for position in range(len(frame)):
            for _, writer in connections:
                writer.write(frame[position : position + 1])
                await asyncio.sleep(0)
            await asyncio.gather(*(writer.drain() for _, writer in connections))

    sending = asyncio.create_task(trickle())
    try:
        yield
        await sending
        # Slow, but no enemies: all are answered.
        for reader, _ in connections:
            assert await reader.readexactly(4)
    finally:
        sending.cancel()
        for _, writer in connections:
            writer.close()
