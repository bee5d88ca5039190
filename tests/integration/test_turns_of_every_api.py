"""02 section 12: no request keeps the loop from others, whatever it asks for.

Each served API gets requests of every hostile shape, beside a bystander that asks for little. The
loop's own measurement says how long its turns were: in CPU time of its thread, so that a busy
machine delays this test and does not fail it.
"""

import asyncio
import contextlib
import itertools
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.dispatch import HANDLERS, MAX_REQUEST_BYTES
from odradek.errors import ErrorCode
from odradek.garbage import PacedCollector
from odradek.network.loop_turns import MeasuredLoop
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.enums import MAX_TIMESTAMP
from odradek.protocol.envelope import encode_request
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.primitives import MAX_ELEMENTS
from odradek.protocol.registry import request_type
from odradek.protocol.schema import Message, replace
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.testing.broker import AsyncEmbeddedBroker
from tests.conformance.clients.raw import RawConnection
from tests.support.fullest_requests import array_paths, fullest_request
from tests.support.hostile_requests import Shape, World, hostile_request

LIMIT_NS = 20_000_000

# What does not keep to the limit yet, with what it takes. This list only shrinks.
NOT_YET: dict[tuple[ApiKey, Shape], str] = {}

TOPICS = tuple(f"topic-{number}" for number in range(20))
PARTITIONS = 10
VICTIMS = tuple(f"victim-{number}" for number in range(100))


class MeasuredBroker:
    """A broker on a thread of its own, whose loop measures the CPU time of its turns."""

    def __init__(self, data_dir: Path) -> None:
        self.loop = MeasuredLoop(time.thread_time_ns)
        self._broker = AsyncEmbeddedBroker(data_dir=data_dir)
        self._thread = threading.Thread(target=self.loop.run_forever, name="measured")

    def start(self) -> None:
        self._thread.start()
        self._run(self._broker.__aenter__())

    def stop(self) -> None:
        self._run(self._broker.__aexit__(None, None, None))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    @contextlib.contextmanager
    def paced_collector(self) -> Iterator[PacedCollector]:
        """Paces the garbage collector of this process, as `odradek serve` does."""
        turns = self.loop.turns
        collector = PacedCollector(lambda: turns.buckets.total_ns, turns.note)
        with collector.paced():
            task = asyncio.run_coroutine_threadsafe(collector.run(), self.loop)
            yield collector
            task.cancel()

    @property
    def port(self) -> int:
        return int(self._broker.bootstrap_servers.rpartition(":")[2])

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result()


def batch(value: bytes = b"value", count: int = 1, codec: Codec = Codec.NONE) -> bytes:
    return bytes(build_batch([(1_000, None, value, ())] * count, codec=codec))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredBroker]:
    made = MeasuredBroker(tmp_path_factory.mktemp("turns"))
    made.start()
    # As `odradek serve` does it: a collection counts as a turn of the request it falls into.
    with made.paced_collector():
        yield made
    made.stop()


@pytest.fixture(scope="module")
def world(broker: MeasuredBroker) -> World:
    """Topics, records and a group; every API has been asked once, which compiles its codec."""
    with RawConnection(broker.port) as client:
        for names, partitions in ((TOPICS, PARTITIONS), (VICTIMS, 1)):
            client.call(
                ApiKey.CREATE_TOPICS,
                7,
                CreateTopicsRequest(
                    topics=[
                        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
                        for name in names
                    ]
                ),
            )
        metadata = client.call(
            ApiKey.METADATA,
            12,
            MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS + VICTIMS]),
        )
        assert isinstance(metadata, MetadataResponse)
        ids = {topic.name: topic.topic_id for topic in metadata.topics if topic.name is not None}
        for _ in range(20):
            client.call(
                ApiKey.PRODUCE,
                7,
                ProduceRequest(
                    acks=-1,
                    timeout_ms=5_000,
                    topic_data=[
                        TopicProduceData(
                            name=TOPICS[0],
                            partition_data=[
                                PartitionProduceData(index=0, records=batch(bytes(20_000)))
                            ],
                        )
                    ],
                ),
            )
    made = World(
        topics=TOPICS,
        topic_ids=ids,
        partition_count=PARTITIONS,
        groups=tuple(f"group-{number}" for number in range(20)),
        transactional_ids=tuple(f"id-{number}" for number in range(20)),
        records=batch(),
    )
    with RawConnection(broker.port) as client:
        while True:  # Until the coordinator of groups has its topic.
            found = client.call(
                ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=made.groups)
            )
            assert isinstance(found, FindCoordinatorResponse)
            if all(row.error_code == ErrorCode.NONE for row in found.coordinators):
                break
        for transactional_id in made.transactional_ids:
            begin = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=60_000
            )
            while True:  # Until the coordinator of transactions has its topic.
                client.call(
                    ApiKey.FIND_COORDINATOR,
                    4,
                    FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]),
                )
                begun = client.call(ApiKey.INIT_PRODUCER_ID, 4, begin)
                assert isinstance(begun, InitProducerIdResponse)
                if begun.error_code == ErrorCode.NONE:
                    break
    for api_key in HANDLERS:
        ask(broker, api_key, hostile(api_key, Shape.EMPTY, made))
    return made


def oldest_version_of(api_key: ApiKey) -> int:
    return API_SUPPORT[api_key].advertised.first


def version_of(api_key: ApiKey) -> int:
    return API_SUPPORT[api_key].advertised.last


def hostile(api_key: ApiKey, shape: Shape, world: World) -> Message:
    if api_key is ApiKey.DELETE_TOPICS and shape is not Shape.UNKNOWN:
        world = replace_topics(world, VICTIMS)
    elif api_key is ApiKey.CREATE_TOPICS and shape in (Shape.UNKNOWN, Shape.EVERYTHING):
        # As many as a tool creates at once; each has files of its own.
        names = tuple(f"made-{shape.name}-{next(_NUMBERS)}" for _ in range(100))
        world, shape = replace_topics(world, names), Shape.EVERYTHING
    message = hostile_request(request_type(api_key), version_of(api_key), shape, world)
    if api_key is ApiKey.CREATE_PARTITIONS:
        message = replace(
            message,
            topics=[
                replace(topic, count=PARTITIONS + 1, assignments=None)
                for topic in message.topics  # type: ignore[attr-defined]  # of this API
            ],
        )
    elif api_key is ApiKey.CREATE_TOPICS:
        message = replace(
            message,
            topics=[
                replace(topic, assignments=(), configs=())
                for topic in message.topics  # type: ignore[attr-defined]  # of this API
            ],
        )
    return message


_NUMBERS = itertools.count()


def replace_topics(world: World, topics: tuple[str, ...]) -> World:
    return World(
        topics=topics,
        topic_ids={name: world.topic_ids.get(name, bytes(16)) for name in topics},
        partition_count=world.partition_count,
        groups=world.groups,
        transactional_ids=world.transactional_ids,
        records=world.records,
    )


def ask(
    broker: MeasuredBroker, api_key: ApiKey, message: Message, version: int | None = None
) -> None:
    """Sends a request and waits until it is answered, or refused by the end of its connection."""
    header = RequestHeader(api_key, version_of(api_key) if version is None else version, 1, "me")
    payload = encode_request(header, message)
    with RawConnection(broker.port) as client:
        client.send(struct.pack(">i", len(payload)) + payload)
        with contextlib.suppress(AssertionError, ConnectionResetError):  # Closed: an answer, too.
            client.receive_frame()


def longest_turn_ns(
    broker: MeasuredBroker, api_key: ApiKey, message: Message, version: int | None = None
) -> int:
    """The longest turn while a request is answered and a bystander is served after it."""
    with RawConnection(broker.port) as bystander:
        bystander.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        broker.loop.turns.longest_ns = 0
        ask(broker, api_key, message, version)
        for _ in range(3):
            bystander.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    return broker.loop.turns.longest_ns


CASES = [
    pytest.param(
        api_key,
        shape,
        id=f"{api_key.name}-{shape.name}",
        marks=[pytest.mark.xfail(reason=NOT_YET[api_key, shape], strict=False)]
        if (api_key, shape) in NOT_YET
        else [],
    )
    for api_key in HANDLERS
    for shape in Shape
    if shape is not Shape.EMPTY
]


@pytest.mark.parametrize(("api_key", "shape"), CASES)
def test_no_request_keeps_the_loop(
    broker: MeasuredBroker, world: World, api_key: ApiKey, shape: Shape
) -> None:
    def ask_too_much() -> int:
        return longest_turn_ns(broker, api_key, hostile(api_key, shape, world))

    longest_ns = min(attempts(ask_too_much))
    assert longest_ns <= LIMIT_NS, f"{longest_ns / 1e6:.0f} ms"


# Each array of each API, in the newest version and in the oldest.
ARRAYS = [
    pytest.param(
        api_key,
        version,
        path,
        marks=[] if version == version_of(api_key) else [pytest.mark.slow],
        id=f"{api_key.name}-{version}-{path}",
    )
    for api_key in HANDLERS
    for version in sorted({version_of(api_key), oldest_version_of(api_key)})
    for path in array_paths(request_type(api_key), version)
]


@pytest.mark.parametrize("is_repeated", [True, False], ids=["repeated", "different"])
@pytest.mark.parametrize(("api_key", "version", "path"), ARRAYS)
def test_no_number_of_elements_keeps_the_loop(
    broker: MeasuredBroker,
    world: World,
    api_key: ApiKey,
    version: int,
    path: str,
    is_repeated: bool,
) -> None:
    """The most elements that the limits of a request allow, each as small as it can be."""
    message = fullest_request(
        request_type(api_key),
        version,
        path,
        world,
        is_repeated=is_repeated,
        max_bytes=MAX_REQUEST_BYTES,
        max_elements=MAX_ELEMENTS,
    )
    longest_ns = min(attempts(lambda: longest_turn_ns(broker, api_key, message, version)))
    assert longest_ns <= LIMIT_NS, f"{longest_ns / 1e6:.0f} ms"


def attempts(measure: Callable[[], int]) -> Iterator[int]:
    """The longest turn of up to three attempts: beside others even CPU time varies."""
    for _ in range(3):
        longest_ns = measure()
        yield longest_ns
        if longest_ns <= LIMIT_NS:
            return


BOMBS = {
    "one large record": lambda codec: batch(bytes(50 << 20), codec=codec),
    "many small records": lambda codec: batch(b"", 300_000, codec=codec),
    "just below the bound": lambda codec: batch(bytes((1 << 20) - 1_000), codec=codec),
}


@pytest.mark.parametrize("partitions", [1, 2, PARTITIONS])
@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])
@pytest.mark.parametrize("bomb", BOMBS)
def test_no_compressed_batch_keeps_the_loop(
    broker: MeasuredBroker, world: World, bomb: str, codec: Codec, partitions: int
) -> None:
    """A few kilobytes that become many megabytes are expanded on a thread, then stored."""
    records = BOMBS[bomb](codec)
    message = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=TOPICS[1],
                partition_data=[
                    PartitionProduceData(index=index, records=records)
                    for index in range(partitions)
                ],
            )
        ],
    )

    def store() -> int:
        with RawConnection(broker.port) as client, RawConnection(broker.port) as bystander:
            bystander.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
            broker.loop.turns.longest_ns = 0
            answer = client.call(ApiKey.PRODUCE, 7, message)
            bystander.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        assert isinstance(answer, ProduceResponse)
        rows = [row for topic in answer.responses for row in topic.partition_responses]
        assert [row.error_code for row in rows] == [ErrorCode.NONE] * partitions
        return broker.loop.turns.longest_ns

    longest_ns = min(attempts(store))
    assert longest_ns <= LIMIT_NS, f"{longest_ns / 1e6:.0f} ms"


@pytest.mark.parametrize("timestamp", [1_000, MAX_TIMESTAMP])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_no_search_by_time_keeps_the_loop(
    broker: MeasuredBroker, world: World, codec: Codec, timestamp: int
) -> None:
    """A batch that has to be opened, and has its answer in its last record."""
    count = 50_000
    name = f"searched-{codec.name}-{next(_NUMBERS)}"
    created = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    records = [(0, None, b"", ())] * (count - 1) + [(1_000, None, b"", ())]
    row = PartitionProduceData(index=0, records=bytes(build_batch(records, codec=codec)))
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=name, partition_data=[row])],
    )
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    search = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])]
    )
    with RawConnection(broker.port) as client:
        client.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[created]))
        client.call(ApiKey.PRODUCE, 7, produce)

    def look_up() -> int:
        with RawConnection(broker.port) as client:
            broker.loop.turns.longest_ns = 0
            answer = client.call(ApiKey.LIST_OFFSETS, 7, search)
        assert isinstance(answer, ListOffsetsResponse)
        [found] = answer.topics[0].partitions
        assert (found.error_code, found.timestamp) == (ErrorCode.NONE, 1_000)
        assert found.offset == count - 1
        return broker.loop.turns.longest_ns

    longest_ns = min(attempts(look_up))
    assert longest_ns <= LIMIT_NS, f"{longest_ns / 1e6:.0f} ms"
