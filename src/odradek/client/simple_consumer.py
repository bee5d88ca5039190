"""The low-level reader: one broker asked directly, or one partition read as raw batches.

No group, no buffer, no positions: the caller says which partitions, from which offset, how much.

* The plain calls go to the broker the consumer was made with, over one connection, one at a time.
  If it breaks the call is made once more over a new one; a second failure is raised, and the next
  call connects again.
* `fetch_batches` reads a range of a partition from its leader, whichever broker that is, as whole
  record batches (`odradek.client.range_reader`); the next request is sent before a buffer is
  returned.
"""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from odradek.client.client import Client
from odradek.client.cluster import NO_TOPIC_ID, Cluster
from odradek.client.config import ClientConfig, read_settings
from odradek.client.consumer.commits import OffsetAndMetadata, check_offsets
from odradek.client.consumer.config import CONSUMER_DEFINITION, ConsumerConfig
from odradek.client.consumer.coordinator import Coordinator
from odradek.client.consumer.fetch_requests import (
    FIRST_FETCH_VERSION,
    LAST_FETCH_BY_NAME,
    fetch_topics,
)
from odradek.client.consumer.fetch_session import Wanted
from odradek.client.consumer.fetched import FetchedData
from odradek.client.consumer.membership import NO_MEMBER
from odradek.client.consumer.partition_state import AssignedPartition
from odradek.client.errors import CallTimeoutError, ClosedError
from odradek.client.leaders import api_error
from odradek.client.lifecycle import AsyncClient
from odradek.client.options import client_options
from odradek.client.range_reader import read_range
from odradek.errors import (
    ApiError,
    CorruptRecordError,
    DisconnectedError,
    ErrorCode,
    RequestTimedOutError,
)
from odradek.model import TopicPartition
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
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
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange
from odradek.records.batch import Buffer, is_crc_valid, parse_header
from odradek.records.columns import ColumnBuilder, Columns

__all__ = ["FetchedPartition", "RawBatches", "SimpleConsumer"]

M = TypeVar("M", bound=Message)
Partition = TopicPartition | tuple[str, int]

_DEFAULT_MAX_BYTES: Final = 8 << 20


class FetchedPartition(NamedTuple):
    """The answer to one fetch for one partition."""

    error: ApiError | None
    high_watermark: int
    last_stable_offset: int
    # Batches as they are on the wire; the last one may be cut short.
    records: Buffer
    aborted: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RawBatches:
    """Whole record batches of one partition, byte for byte."""

    tp: TopicPartition
    buffer: memoryview
    first: int  # Offset of the first record; it may lie before the offset that was asked for.
    last: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    # (producer id, first offset) of aborted transactions, under read_committed.
    aborted: tuple[tuple[int, int], ...]

    def columns(self, *, start: int = 0, is_read_committed: bool = False) -> Columns:
        """The records from offset `start` on as columns; see `odradek.records.columns`.

        Markers are left out, under read_committed aborted transactions as well.

        Raises:
            InvalidRecordError: Records are malformed.
        """
        data = FetchedData(
            AssignedPartition(self.tp),
            self.buffer,
            start,
            aborted=self.aborted if is_read_committed else None,
            check_crcs=False,
        )
        builder = ColumnBuilder()
        data.take_columns(builder, len(self.buffer))
        if not data.is_drained:
            raise ValueError(f"{len(self.buffer)} bytes are too many for one set of columns")
        return builder.finish()


class SimpleConsumer(AsyncClient):
    """See the module's docstring. An async context manager; also for several tasks at once.

    Args: As `Consumer`; the settings of groups and polling do not matter here. The first address
        of `bootstrap.servers` is the broker that the plain calls ask.

    Raises:
        ConfigError: A setting is unknown or cannot be used.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        ssl_context: ssl.SSLContext | None = None,
        **keywords: object,
    ) -> None:
        settings = read_settings(CONSUMER_DEFINITION, config, keywords)
        self._config = settings.build(ConsumerConfig)
        self._client = Client(client_options(settings.build(ClientConfig), ssl_context=ssl_context))
        self._connection: OutboundConnection | None = None
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def start(self) -> None:
        """Nothing to begin with: the first call connects."""

    async def close(self, timeout: float | None = None) -> None:  # noqa: ARG002 - it takes none
        """Ends the connections and the calls that wait for an answer; never connects again."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close("closed by us")
        self._client.close()

    # The broker itself

    async def send(
        self,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        timeout: float | None = None,
        *,
        within: VersionRange | None = None,
    ) -> M:
        """Any request to the broker, tried twice at most.

        Raises:
            ClosedError: The consumer is closed.
            ApiError: The second attempt failed as well.
        """
        deadline = self._client.deadline_after(timeout)

        async def ask() -> M:
            return await self._client.ask(
                await self._connect(), api_key, request, answer_type, deadline, within=within
            )

        try:
            async with asyncio.timeout(deadline.left_ms() / 1000), self._turn:
                try:
                    return await ask()
                except (DisconnectedError, RequestTimedOutError):
                    self._check_open()
                    if not deadline.left_ms():
                        raise
                return await ask()
        except TimeoutError as error:
            if isinstance(error, RequestTimedOutError):
                raise
            raise CallTimeoutError(
                f"{api_key.name}: no answer within {deadline.timeout_ms} ms"
            ) from None

    async def _connect(self) -> OutboundConnection:
        self._check_open()
        if self._connection is None or self._connection.is_closed:
            host, port = self._client.options.bootstrap[0]
            connection = await OutboundConnection.open(host, port, self._client.options.outbound())
            if self._is_closed:
                connection.close("closed by us")
                raise ClosedError("consumer")
            self._connection = connection
        return self._connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("consumer")

    async def metadata(
        self, topics: Iterable[str] | None = None, timeout: float | None = None
    ) -> Cluster:
        """The cluster and these topics, or all, as the broker describes them."""
        names = None if topics is None else list(topics)
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = await self.send(ApiKey.METADATA, request, MetadataResponse, timeout)
        return Cluster().merged(response, names)[0]

    async def fetch(
        self,
        offsets: Mapping[Partition, int],
        *,
        max_wait_ms: int | None = None,
        min_bytes: int | None = None,
        max_bytes: int | None = None,
        partition_max_bytes: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, FetchedPartition]:
        """One fetch; limits that are not given are those of the settings.

        The broker must lead these partitions; those that it does not lead have an error.
        """
        config = self._config
        wanted = {TopicPartition(*tp): Wanted(NO_TOPIC_ID, at, -1) for tp, at in offsets.items()}
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms if max_wait_ms is None else max_wait_ms,
            min_bytes=config.fetch_min_bytes if min_bytes is None else min_bytes,
            max_bytes=config.fetch_max_bytes if max_bytes is None else max_bytes,
            isolation_level=config.isolation,
            topics=fetch_topics(
                wanted,
                config.max_partition_fetch_bytes
                if partition_max_bytes is None
                else partition_max_bytes,
            ),
        )
        # By name: ids would need metadata first.
        response = await self.send(
            ApiKey.FETCH,
            request,
            FetchResponse,
            timeout,
            within=VersionRange(FIRST_FETCH_VERSION, LAST_FETCH_BY_NAME),
        )
        if response.error_code != ErrorCode.NONE:
            raise api_error(response.error_code, None, "FETCH")
        return {
            (tp := TopicPartition(topic.topic, one.partition_index)): _fetched(tp, one)
            for topic in response.responses
            for one in topic.partitions
        }

    async def earliest_or_latest_offset(
        self, partition: Partition, time_ms: int, timeout: float | None = None
    ) -> int:
        """The first offset at or after a time; -2 is the earliest, -1 the end.

        Raises:
            ApiError: The broker refuses.
        """
        tp = TopicPartition(*partition)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._config.isolation,
            topics=[
                ListOffsetsTopic(
                    name=tp.topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=tp.partition, timestamp=time_ms)
                    ],
                )
            ],
        )
        response = await self.send(
            ApiKey.LIST_OFFSETS,
            request,
            ListOffsetsResponse,
            timeout,
            within=VersionRange(2, 32767),
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            raise api_error(answer.error_code, None, tp)
        return answer.offset

    # Groups: through their coordinator

    async def coordinator(self, group_id: str, timeout: float | None = None) -> int:
        """The coordinator of a group."""
        deadline = self._client.deadline_after(timeout)
        found = Coordinator(self._client, group_id)
        return await self._client.retry("coordinator", lambda: found.find(deadline), deadline)

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[Partition, OffsetAndMetadata | int],
        timeout: float | None = None,
    ) -> None:
        """Commits for a group that has no members.

        Raises:
            ApiError: It was refused; UNKNOWN_MEMBER_ID if the group has members.
        """
        deadline = self._client.deadline_after(timeout)
        coordinator = Coordinator(self._client, group_id)
        checked = check_offsets({TopicPartition(*tp): value for tp, value in offsets.items()})

        async def attempt() -> None:
            outcome = await coordinator.commit(checked, NO_MEMBER, deadline)
            if outcome.error is not None:
                raise outcome.error

        await self._client.retry("commit", attempt, deadline)

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[Partition] | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offsets that a group has committed, of all its partitions if none is named."""
        deadline = self._client.deadline_after(timeout)
        coordinator = Coordinator(self._client, group_id)
        wanted = None if partitions is None else [TopicPartition(*tp) for tp in partitions]
        return await self._client.retry(
            "committed offsets", lambda: coordinator.fetch_offsets(wanted, deadline), deadline
        )

    # Raw batches

    async def fetch_batches(
        self,
        topic: str,
        partition: int,
        offset: int,
        end: int | None = None,
        max_bytes: int = _DEFAULT_MAX_BYTES,
        *,
        timeout: float | None = None,
    ) -> AsyncGenerator[RawBatches, None]:
        """Whole record batches from `offset` on, until `end` or the end of the log.

        Batches are passed on as they are: the first may begin before `offset`, the last may go
        beyond `end`; the decoder trims. Checksums are verified unless `check.crcs` is false.

        Args:
            end: Exclusive; without it, the end of the log when the reader reaches it.
            max_bytes: Of one buffer; a batch that is larger comes all the same.
            timeout: For each step, in seconds; the time that the caller takes does not count.

        Raises:
            OffsetOutOfRangeError: The offset is not there.
            CallTimeoutError: Nothing new came in time: no leader answered, or `end` lies beyond
                the end of the log.
            CorruptRecordError: A checksum is wrong.
        """
        tp = TopicPartition(topic, partition)
        timeout_ms = self._client.deadline_after(timeout).timeout_ms
        self._check_open()
        reading = read_range(
            self._client,
            self._config,
            tp,
            offset=offset,
            end=end,
            max_bytes=max_bytes,
            timeout_ms=timeout_ms,
        )
        async with aclosing(reading):
            async for fetched in reading:
                if self._config.check_crcs:
                    _check_crcs(tp, fetched.records)
                yield RawBatches(
                    tp=tp,
                    buffer=fetched.records,
                    first=fetched.first,
                    last=fetched.last,
                    next_offset=fetched.next_offset,
                    high_watermark=fetched.high_watermark,
                    last_stable_offset=fetched.last_stable_offset,
                    aborted=fetched.aborted,
                )


def _check_crcs(tp: TopicPartition, batches: memoryview) -> None:
    """Verifies the checksum of every batch.

    Raises:
        CorruptRecordError: A checksum is wrong.
    """
    at = 0
    while (header := parse_header(batches, at)) is not None:
        if not is_crc_valid(batches, at, header.size):
            raise CorruptRecordError(f"{tp}: the batch at offset {header.base_offset} is corrupt")
        at += header.size


def _fetched(tp: TopicPartition, answer: PartitionData) -> FetchedPartition:
    error = None
    if answer.error_code != ErrorCode.NONE:
        error = api_error(answer.error_code, None, tp)
    return FetchedPartition(
        error,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.records or b"",
        tuple((one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()),
    )
