"""Reads partitions from given positions on. One fetch per leader is in flight at a time.

A fetch waits at the broker until there is something; the answer of one leader is handed out without
waiting for the others. Rules:

1. A position only moves over whole batches that were decoded; control batches move it and are not
   handed out.
2. A leader that moved or is gone: look it up, pause, go on at the same position.
3. A position below the start of its log (its records are deleted): go on at the start, and say so.
   A position above the end of its log: an error, since there is no telling what was meant.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from odradek.client.client import Client
from odradek.client.cluster import Cluster
from odradek.client.leaders import api_error, by_topic, topic_name, version_limit
from odradek.client.offsets import EARLIEST, LATEST, list_offsets
from odradek.client.retry import Deadline
from odradek.errors import (
    ApiError,
    CorruptRecordError,
    ErrorCode,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from odradek.records.batch import Buffer, is_crc_valid, iter_headers
from odradek.records.record import Record, read_records

__all__ = ["Fetched", "Fetcher", "FetcherOptions", "decode_batches"]

# The first version with batches of magic 2 and the last that names topics.
_FIRST_VERSION: Final = 4
_LAST_VERSION_BY_NAME: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherOptions:
    """How much to ask for, and how long a broker may wait for it."""

    min_bytes: int = 1
    max_wait_ms: int = 500
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024


class Fetched(NamedTuple):
    """What came from one partition. Without records if only its position moved."""

    tp: TopicPartition
    records: list[Record]
    high_watermark: int
    # Offsets that were deleted before they could be read.
    skipped_count: int = 0


class _Answer(NamedTuple):
    """What one leader said to one fetch."""

    node_id: int
    asked: dict[TopicPartition, int]  # Positions at the time of the request.
    cluster: Cluster
    response: FetchResponse | ApiError


class Fetcher:
    """See the module's docstring. An async context manager: it ends what it has in flight."""

    def __init__(
        self,
        client: Client,
        positions: Mapping[TopicPartition, int],
        options: FetcherOptions | None = None,
        *,
        on_retry: Callable[[ApiError], None] = lambda _error: None,
    ) -> None:
        """`on_retry` is told of trouble that is tried again."""
        self._client = client
        self._options = options or FetcherOptions()
        self._on_retry = on_retry
        # Offset of the next record of each partition; who gave something last is asked last.
        self._positions = dict(positions)
        # By leader. Invariant: at most one each.
        self._in_flight: dict[int, asyncio.Task[_Answer]] = {}
        # Set by trouble that new metadata may end.
        self._is_troubled = False
        self._pauses_ms = client.pauses_ms()
        self._failure: ApiError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        tasks = list(self._in_flight.values())
        self._in_flight.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def position(self, tp: TopicPartition) -> int:
        """Offset of the next record of a partition."""
        return self._positions[tp]

    async def poll(self, timeout_ms: int) -> list[Fetched]:
        """What came from the brokers; nothing if nothing came in time.

        Raises:
            ApiError: a partition cannot be read, and trying again does not help.
        """
        deadline = self._client.deadline(timeout_ms)
        while True:
            if self._failure is not None:
                raise self._failure
            if self._is_troubled:
                await self._recover(deadline)
            self._ask_idle_leaders()
            fetched: list[Fetched] = []
            for answer in await self._answers(deadline):
                fetched += await self._take(answer)
            if fetched or not deadline.left_ms():
                return fetched

    async def _recover(self, deadline: Deadline) -> None:
        pause_ms = min(next(self._pauses_ms), deadline.left_ms())
        await asyncio.sleep(pause_ms / 1000)
        self._is_troubled = False
        topics = sorted({tp.topic for tp in self._positions})
        await self._client.refresh(topics, self._client.deadline())

    def _ask_idle_leaders(self) -> None:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, position in self._positions.items():
            leader = self._client.cluster.leader(tp)
            if leader is None:
                self._is_troubled = True
            else:
                by_leader.setdefault(leader.id, {})[tp] = position
        for node_id, asked in by_leader.items():
            if node_id not in self._in_flight:
                self._in_flight[node_id] = asyncio.create_task(self._ask(node_id, asked))

    async def _answers(self, deadline: Deadline) -> list[_Answer]:
        if not self._in_flight:
            return []
        done, _ = await asyncio.wait(
            self._in_flight.values(),
            timeout=deadline.left_ms() / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        answers = [task.result() for task in self._in_flight.values() if task in done]
        for answer in answers:
            del self._in_flight[answer.node_id]
        return answers

    async def _ask(self, node_id: int, asked: dict[TopicPartition, int]) -> _Answer:
        cluster = self._client.cluster
        deadline = self._client.deadline(
            self._options.max_wait_ms + self._client.options.request_timeout_ms
        )
        response: FetchResponse | ApiError
        try:
            response = await self._client.ask(
                await self._client.connection_to(node_id, deadline),
                ApiKey.FETCH,
                self._request(asked, cluster),
                FetchResponse,
                deadline,
                within=version_limit(
                    asked, cluster, first=_FIRST_VERSION, last_by_name=_LAST_VERSION_BY_NAME
                ),
            )
            if response.error_code != ErrorCode.NONE:
                response = api_error(response.error_code, None, "FETCH")
        except ApiError as error:
            response = error
        return _Answer(node_id, asked, cluster, response)

    def _request(self, asked: Mapping[TopicPartition, int], cluster: Cluster) -> FetchRequest:
        options = self._options
        return FetchRequest(
            max_wait_ms=options.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=options.max_bytes,
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=cluster.topic_id(name),
                    partitions=[
                        FetchPartition(
                            partition=index,
                            fetch_offset=offset,
                            partition_max_bytes=options.partition_max_bytes,
                        )
                        for index, offset in partitions.items()
                    ],
                )
                for name, partitions in by_topic(asked).items()
            ],
        )

    async def _take(self, answer: _Answer) -> list[Fetched]:
        """Hand out what a leader sent, move positions, remember what went wrong."""
        if isinstance(answer.response, ApiError):
            for tp in answer.asked:
                self._client.forget_leader(tp, answer.node_id)
            self._note(answer.response)
            return []
        fetched = []
        for topic in answer.response.responses:
            name = topic_name(topic.topic, topic.topic_id, answer.cluster)
            for partition in topic.partitions:
                tp = TopicPartition(name, partition.partition_index)
                # Its leader may have moved, and another answer moved the position, meanwhile.
                if tp not in answer.asked or self._positions[tp] != answer.asked[tp]:
                    continue
                try:
                    taken = await self._take_partition(tp, partition, answer.node_id)
                except ApiError as error:
                    self._note(error)
                else:
                    if taken is not None:
                        fetched.append(taken)
        if fetched:
            self._pauses_ms = self._client.pauses_ms()
        return fetched

    async def _take_partition(
        self, tp: TopicPartition, partition: PartitionData, node_id: int
    ) -> Fetched | None:
        position = self._positions[tp]
        if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await self._start_above(tp, position)
            self._move(tp, start)
            return Fetched(tp, [], partition.high_watermark, skipped_count=start - position)
        if partition.error_code != ErrorCode.NONE:
            error = api_error(partition.error_code, None, tp)
            if error.code.refresh_metadata:
                self._client.forget_leader(tp, node_id)
            raise error
        if not partition.records:
            return None
        records, next_offset = decode_batches(partition.records, position, tp)
        self._move(tp, next_offset)
        return Fetched(tp, records, partition.high_watermark)

    async def _start_above(self, tp: TopicPartition, position: int) -> int:
        """Where a log begins now, for a position that lies before it."""
        ends = []
        for place in (EARLIEST, LATEST):
            found = (await list_offsets(self._client, {tp: place}))[tp]
            if isinstance(found, ApiError):
                raise found
            ends.append(found.offset)
        start, end = ends
        if position >= start:
            raise OffsetOutOfRangeError(
                f"{tp} has offsets {start} to {end}, {position} is out of range"
            )
        return start

    def _move(self, tp: TopicPartition, position: int) -> None:
        del self._positions[tp]
        self._positions[tp] = position

    def _note(self, error: ApiError) -> None:
        if not error.code.retriable:
            # What came with it is handed out first.
            self._failure = self._failure or error
            return
        self._is_troubled = True
        self._on_retry(error)


def decode_batches(buffer: Buffer, position: int, tp: TopicPartition) -> tuple[list[Record], int]:
    """The records of a fetch answer from `position` on, and the offset behind its last batch.

    A batch may begin before the position, and the last one may be cut short.

    Raises:
        CorruptRecordError: a checksum is wrong; asking again may help.
        InvalidRecordError: records are malformed.
        RecordTooLargeError: not even one batch is whole.
    """
    records: list[Record] = []
    next_offset = position
    at = 0
    for at, header in iter_headers(buffer):
        if not is_crc_valid(buffer, at, header.size):
            raise CorruptRecordError(f"{tp}: the batch at offset {header.base_offset} is corrupt")
        if not header.is_control:
            records += [
                record
                for record in read_records(buffer, position=at, header=header)
                if record.offset >= position
            ]
        next_offset = max(next_offset, header.next_offset)
    if next_offset == position:
        raise RecordTooLargeError(
            f"{tp}: no whole batch at offset {position} in {len(buffer)} bytes"
        )
    return records, next_offset
