"""Writes records: partition chosen, one batch per partition and request, each acknowledged once.

With `acks` all the producer is idempotent: the broker gives it an id, every partition counts its
records from 0, and a batch that is sent again after a lost answer is recognised and not stored
twice. A partition has one batch in flight, so order and sequence are that of `send`.

With `acks` 0 nobody answers. `flush` then makes sure that the leaders have read what was sent, by a
question on the same connection: it is answered after everything before it.

What a batch gives up on leaves a hole in its partition's sequence, so the producer fails for good:
make a new one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.client.client import Client
from odradek.client.cluster import Cluster
from odradek.client.leaders import (
    LeaderCall,
    api_error,
    ask_leaders,
    by_topic,
    topic_name,
    version_limit,
)
from odradek.client.partitioner import RoundRobin, partition_of_key
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange
from odradek.records.batch import increment_sequence
from odradek.records.builder import NewRecord, build_batch
from odradek.records.compression import Codec
from odradek.records.record import Headers

__all__ = ["ACKS_ALL", "Produced", "Producer", "ProducerOptions", "ProducerRecord"]

ACKS_ALL: Final = -1
_ACKS_NONE: Final = 0

# The first version with batches of magic 2, the first with zstd, the last with topic names.
_FIRST_VERSION: Final = 3
_FIRST_ZSTD_VERSION: Final = 7
_LAST_VERSION_BY_NAME: Final = 12

# What a record costs besides its bytes, at most: length, attributes, deltas, counts.
_RECORD_OVERHEAD: Final = 24


class ProducerRecord(NamedTuple):
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None  # None: by key, or in turn.
    timestamp_ms: int | None = None  # None: now.


class Produced(NamedTuple):
    """Where a batch landed."""

    partition: int
    base_offset: int  # -1 if nobody told: acks 0, or recognised as sent before.
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How to write."""

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    # Brokers take a batch of a megabyte by default; some room for what an estimate misses.
    batch_bytes: int = 512 * 1024
    delivery_timeout_ms: int = 120_000
    # How long a leader may wait for its followers.
    request_timeout_ms: int = 30_000


class Producer:
    """Writes to one topic. See the module's docstring."""

    def __init__(self, client: Client, topic: str, options: ProducerOptions | None = None) -> None:
        self._client = client
        self._topic = topic
        self._options = options or ProducerOptions()
        self._turns = RoundRobin()
        self._producer_id = -1
        self._producer_epoch = -1
        # The next sequence number of each partition.
        self._sequences: dict[int, int] = {}
        self._failure: ApiError | None = None

    async def send(self, records: Iterable[ProducerRecord]) -> list[Produced]:
        """Write records, in order per partition; returns once all are acknowledged.

        Raises:
            ApiError: one batch was refused or not acknowledged in time. Batches of other
                partitions may have been written.
        """
        if self._failure is not None:
            raise ApiError(self._failure.code, f"this producer has failed: {self._failure}")
        deadline = self._client.deadline(self._options.delivery_timeout_ms)
        topic = await self._client.topic(self._topic, create=True, deadline=deadline)
        if self._options.acks == ACKS_ALL and self._producer_id < 0:
            await self._become_idempotent(deadline)
        queues = self._sort(records, len(topic.partitions))
        produced: list[Produced] = []
        while queues:
            round_ = {TopicPartition(self._topic, p): queue.pop() for p, queue in queues.items()}
            queues = {p: queue for p, queue in queues.items() if queue}
            produced += await self._send_round(round_, deadline)
        return produced

    async def flush(self) -> None:
        """Make sure that the leaders have read what was sent without acknowledgement.

        Raises:
            ApiError: one of them is gone, and what it had not read yet with it.
        """
        if self._options.acks != _ACKS_NONE:
            return
        deadline = self._client.deadline()
        cluster = self._client.cluster
        topic = cluster.topics.get(self._topic)
        leaders = {partition.leader for partition in topic.partitions} if topic else set()
        for node_id in sorted(leaders & cluster.nodes.keys()):
            connection = await self._client.connection_to(node_id, deadline)
            request = ApiVersionsRequest(
                client_software_name="odradek", client_software_version="0.1.0"
            )
            await self._client.ask(
                connection, ApiKey.API_VERSIONS, request, ApiVersionsResponse, deadline
            )

    def _sort(
        self, records: Iterable[ProducerRecord], partition_count: int
    ) -> dict[int, list[list[NewRecord]]]:
        """Batches per partition, the first one last: they are popped."""
        now_ms = self._client.clock.now_ms()
        sorted_: dict[int, list[NewRecord]] = {}
        for record in records:
            partition = self._choose(record, partition_count)
            timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
            sorted_.setdefault(partition, []).append(
                (timestamp_ms, record.key, record.value, record.headers)
            )
        return {
            partition: list(_split(chosen, self._options.batch_bytes))[::-1]
            for partition, chosen in sorted_.items()
        }

    def _choose(self, record: ProducerRecord, partition_count: int) -> int:
        if record.partition is not None:
            if not 0 <= record.partition < partition_count:
                raise ApiError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"topic {self._topic!r} has {partition_count} partitions, "
                    f"numbered from 0, so no {record.partition}",
                )
            return record.partition
        if record.key is not None:
            return partition_of_key(record.key, partition_count)
        return self._turns.next_partition(partition_count)

    async def _become_idempotent(self, deadline: Deadline) -> None:
        async def attempt() -> InitProducerIdResponse:
            response = await self._client.ask_any(
                ApiKey.INIT_PRODUCER_ID,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1),
                InitProducerIdResponse,
                deadline,
            )
            if response.error_code != ErrorCode.NONE:
                raise api_error(response.error_code, None, "no producer id")
            return response

        response = await self._client.retry("a producer id", attempt, deadline)
        self._producer_id = response.producer_id
        self._producer_epoch = response.producer_epoch

    async def _send_round(
        self, batches: Mapping[TopicPartition, Sequence[NewRecord]], deadline: Deadline
    ) -> list[Produced]:
        work = {tp: self._build(tp.partition, records) for tp, records in batches.items()}
        if self._options.acks == _ACKS_NONE:
            await self._send_unanswered(work, deadline)
            return [Produced(tp.partition, -1, len(records)) for tp, records in batches.items()]
        call = LeaderCall(
            api_key=ApiKey.PRODUCE,
            answer_type=ProduceResponse,
            build=self._request,
            read=_read,
            versions=self._versions,
            repeatable=self._producer_id >= 0,
        )
        results = await ask_leaders(self._client, call, work, deadline)
        produced = []
        for tp, result in results.items():
            if isinstance(result, ApiError):
                self._failure = self._failure or result
                continue
            count = len(batches[tp])
            produced.append(Produced(tp.partition, result, count))
            sequence = self._sequences.get(tp.partition, 0)
            self._sequences[tp.partition] = increment_sequence(sequence, count)
        if self._failure is not None:
            raise self._failure
        return produced

    def _build(self, partition: int, records: Sequence[NewRecord]) -> bytearray:
        is_idempotent = self._producer_id >= 0
        return build_batch(
            records,
            codec=self._options.codec,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequences.get(partition, 0) if is_idempotent else -1,
        )

    def _request(self, work: Mapping[TopicPartition, bytearray], cluster: Cluster) -> Message:
        return ProduceRequest(
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=cluster.topic_id(name),
                    partition_data=[
                        PartitionProduceData(index=index, records=batch)
                        for index, batch in partitions.items()
                    ],
                )
                for name, partitions in by_topic(work).items()
            ],
        )

    def _versions(self, partitions: Iterable[TopicPartition], cluster: Cluster) -> VersionRange:
        first = _FIRST_ZSTD_VERSION if self._options.codec is Codec.ZSTD else _FIRST_VERSION
        return version_limit(partitions, cluster, first=first, last_by_name=_LAST_VERSION_BY_NAME)

    async def _send_unanswered(
        self, work: Mapping[TopicPartition, bytearray], deadline: Deadline
    ) -> None:
        cluster = self._client.cluster
        for tp, batch in work.items():
            leader = cluster.leader(tp)
            if leader is None:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
            connection = await self._client.connection_to(leader.id, deadline)
            version = connection.version_for(ApiKey.PRODUCE, self._versions([tp], cluster))
            parts = encode_message_parts(self._request({tp: batch}, cluster), version)
            connection.send_unanswered(ApiKey.PRODUCE, version, parts)


def _split(records: Iterable[NewRecord], batch_bytes: int) -> Iterator[list[NewRecord]]:
    """Batches that stay below a size before compression; one record may be larger."""
    batch: list[NewRecord] = []
    size = 0
    for record in records:
        _, key, value, headers = record
        record_size = len(key or b"") + len(value or b"") + _RECORD_OVERHEAD
        for name, content in headers:
            record_size += 4 * len(name) + len(content or b"") + _RECORD_OVERHEAD
        if batch and size + record_size > batch_bytes:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record_size
    if batch:
        yield batch


def _read(response: Message, cluster: Cluster) -> Iterator[tuple[TopicPartition, int | ApiError]]:
    """The base offset of each batch, or what is wrong with it."""
    assert isinstance(response, ProduceResponse)
    for topic in response.responses:
        name = topic_name(topic.name, topic.topic_id, cluster)
        for answer in topic.partition_responses:
            tp = TopicPartition(name, answer.index)
            if answer.error_code == ErrorCode.NONE:
                yield tp, answer.base_offset
            elif answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                yield tp, -1  # An earlier attempt was stored, its answer lost.
            else:
                faults = [one.batch_index_error_message for one in answer.record_errors]
                message = answer.error_message or next(filter(None, faults), None)
                yield tp, api_error(answer.error_code, message, tp)
