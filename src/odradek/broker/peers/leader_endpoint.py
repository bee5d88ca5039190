"""A leader as a fetcher asks it: Fetch, OffsetForLeaderEpoch and ListOffsets over one connection.

The records of an answer are views of the received bytes. Versions are those of
`inter.broker.protocol.version`; topics without an id are fetched with Fetch 12 at most.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from odradek.broker.peers.connections import PeerConnection
from odradek.errors import DecodeError, DisconnectedError, ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.model import TopicPartition
from odradek.network.send_queue import Chunk
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.enums import EARLIEST, LATEST
from odradek.protocol.envelope import parse_response
from odradek.protocol.headers import parse_response_header
from odradek.protocol.hot.follower_fetch import (
    FIRST_FOLLOWER_VERSION,
    LAST_FOLLOWER_VERSION,
    WantedRow,
    encode_follower_fetch,
    parse_follower_answer,
)
from odradek.protocol.inter_broker import InterBrokerVersions
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.replication.following.leader_endpoint import (
    EpochAnswer,
    EpochQuestion,
    FetchAnswer,
    FetchQuestion,
    OffsetAnswer,
    OnFetched,
    PartitionAnswer,
    PartitionKey,
    WantedPartition,
)

__all__ = ["FetchLimits", "WireEndpoint"]

_LAST_FETCH_BY_NAME: Final = 12
_FIRST_DIVERGENCE_VERSION: Final = 12
_FIRST_REPLICA_STATE_VERSION: Final = 15
_NO_RECORDS: Final = memoryview(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How long and how much to wait for."""

    max_wait_ms: int  # replica.fetch.wait.max.ms
    min_bytes: int  # replica.fetch.min.bytes
    max_bytes: int  # replica.fetch.response.max.bytes
    partition_max_bytes: int  # replica.fetch.max.bytes


class WireEndpoint:
    """`LeaderEndpoint` over a connection of its own.

    Args:
        connection: To the leader; used by this endpoint alone.
        versions: Of the requests.
        replica_id: This broker.
        broker_epoch: Of its registration at the moment.
        limits: Of fetches.
    """

    __slots__ = ("_broker_epoch", "_connection", "_limits", "_replica_id", "_versions")

    def __init__(
        self,
        connection: PeerConnection,
        versions: InterBrokerVersions,
        *,
        replica_id: int,
        broker_epoch: Callable[[], int],
        limits: FetchLimits,
    ) -> None:
        self._connection = connection
        self._versions = versions
        self._replica_id = replica_id
        self._broker_epoch = broker_epoch
        self._limits = limits

    @property
    def finds_divergence(self) -> bool:
        """Whether the leader compares epochs in a fetch."""
        return self._versions.fetch >= _FIRST_DIVERGENCE_VERSION

    @property
    def knows_topic_ids(self) -> bool:
        """Whether fetches may name topics by their ids."""
        return self._versions.fetch > _LAST_FETCH_BY_NAME

    async def connect(self) -> None:
        """Makes sure that there is a connection."""
        await self._connection.open()

    def ask(self, question: FetchQuestion, on_answer: OnFetched) -> None:
        """Fetches; the leader may wait for records."""
        version = self._versions.fetch
        if not question.uses_topic_ids:
            version = min(version, _LAST_FETCH_BY_NAME)
        is_plain = FIRST_FOLLOWER_VERSION <= version <= LAST_FOLLOWER_VERSION
        body: Sequence[Chunk]
        if is_plain:
            body = [self._encode(question)]
        else:
            body = encode_message_parts(self._request(question, version), version)

        def on_payload(payload: memoryview | Exception) -> None:
            if isinstance(payload, Exception):
                on_answer(payload)
                return
            try:
                answer = _parse(payload, version)
            except DecodeError as error:
                self._connection.close()
                on_answer(DisconnectedError(f"a bad answer to Fetch v{version}: {error}"))
                return
            on_answer(answer)

        self._connection.ask(ApiKey.FETCH, version, body, on_payload)

    def _encode(self, question: FetchQuestion) -> bytes:
        limits = self._limits
        topics: dict[bytes, list[WantedRow]] = {}
        for (topic, index), epoch, offset, last_epoch, log_start in question.wanted:
            assert isinstance(topic, bytes), "versions with names are not encoded here"
            row = (index, epoch, offset, last_epoch, log_start)
            topics.setdefault(topic, []).append(row)
        return encode_follower_fetch(
            list(topics.items()),
            [(one.topic_id, one.partitions) for one in _forgotten(question.forgotten)],
            replica_id=self._replica_id,
            replica_epoch=self._broker_epoch(),
            max_wait_ms=limits.max_wait_ms if question.is_last else 0,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            partition_max_bytes=limits.partition_max_bytes,
            session_id=question.session_id,
            session_epoch=question.session_epoch,
        )

    def _request(self, question: FetchQuestion, version: int) -> FetchRequest:
        limits = self._limits
        has_state = version >= _FIRST_REPLICA_STATE_VERSION
        return FetchRequest(
            replica_id=-1 if has_state else self._replica_id,
            replica_state=(
                ReplicaState(replica_id=self._replica_id, replica_epoch=self._broker_epoch())
                if has_state
                else ReplicaState()
            ),
            max_wait_ms=limits.max_wait_ms if question.is_last else 0,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=question.session_id,
            session_epoch=question.session_epoch,
            topics=self._topics(question.wanted, version),
            forgotten_topics_data=_forgotten(question.forgotten),
        )

    def _topics(self, wanted: Iterable[WantedPartition], version: int) -> list[FetchTopic]:
        topics: dict[str | bytes, list[FetchPartition]] = {}
        for one in wanted:
            topic, index = one.key
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=one.leader_epoch,
                    fetch_offset=one.fetch_offset,
                    last_fetched_epoch=(
                        one.last_fetched_epoch if version >= _FIRST_DIVERGENCE_VERSION else -1
                    ),
                    log_start_offset=one.log_start_offset,
                    partition_max_bytes=self._limits.partition_max_bytes,
                )
            )
        return [
            FetchTopic(topic=topic, partitions=partitions)
            if isinstance(topic, str)
            else FetchTopic(topic_id=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ]

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> Mapping[TopicPartition, EpochAnswer]:
        """Where epochs ended on the leader."""
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        for tp, question in questions.items():
            topics.setdefault(tp.topic, []).append(
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=question.current_leader_epoch,
                    leader_epoch=question.epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._replica_id,
            topics=[
                OffsetForLeaderTopic(topic=topic, partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )
        response = await self._connection.request(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, request, self._versions.offset_for_leader_epoch
        )
        assert isinstance(response, OffsetForLeaderEpochResponse), "the registry gave another class"
        return {
            TopicPartition(topic.topic, row.partition): EpochAnswer(
                ErrorCode(row.error_code), row.leader_epoch, row.end_offset
            )
            for topic in response.topics
            for row in topic.partitions
        }

    async def log_end(self, tp: TopicPartition, current_leader_epoch: int) -> OffsetAnswer:
        """The end of the leader's log."""
        return await self._offset(tp, LATEST, current_leader_epoch)

    async def log_start(self, tp: TopicPartition, current_leader_epoch: int) -> OffsetAnswer:
        """The start of the leader's log."""
        return await self._offset(tp, EARLIEST, current_leader_epoch)

    async def _offset(
        self, tp: TopicPartition, timestamp: int, current_leader_epoch: int
    ) -> OffsetAnswer:
        request = ListOffsetsRequest(
            replica_id=self._replica_id,
            topics=[
                ListOffsetsTopic(
                    name=tp.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=tp.partition,
                            current_leader_epoch=current_leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        response = await self._connection.request(
            ApiKey.LIST_OFFSETS, request, self._versions.list_offsets
        )
        assert isinstance(response, ListOffsetsResponse), "the registry gave another class"
        for topic in response.topics:
            for row in topic.partitions:
                if (topic.name, row.partition_index) == tp:
                    return OffsetAnswer(ErrorCode(row.error_code), row.offset)
        return OffsetAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


def _forgotten(partitions: Iterable[PartitionKey]) -> list[ForgottenTopic]:
    topics: dict[str | bytes, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return [
        ForgottenTopic(topic=topic, partitions=indexes)
        if isinstance(topic, str)
        else ForgottenTopic(topic_id=topic, partitions=indexes)
        for topic, indexes in topics.items()
    ]


def _parse(payload: memoryview, version: int) -> FetchAnswer:
    """Reads an answer, header included.

    Raises:
        DecodeError: It is none.
    """
    if version >= FIRST_FOLLOWER_VERSION:
        _, position = parse_response_header(payload, ApiKey.FETCH, version)
        plain = parse_follower_answer(payload, position, version)
        if plain is not None:
            _, error_code, session_id, rows = plain
            return FetchAnswer(
                ErrorCode(error_code),
                session_id,
                [
                    PartitionAnswer(
                        (topic, index), ErrorCode(code), high_watermark, start, None, records
                    )
                    for topic, index, code, high_watermark, start, records in rows
                ],
            )
    _, response = parse_response(payload, ApiKey.FETCH, version)
    assert isinstance(response, FetchResponse), "the registry gave another class"
    uses_topic_ids = version > _LAST_FETCH_BY_NAME
    return FetchAnswer(
        ErrorCode(response.error_code),
        response.session_id,
        [
            _fetched(topic.topic_id if uses_topic_ids else topic.topic, partition)
            for topic in response.responses
            for partition in topic.partitions
        ],
    )


def _fetched(topic: str | bytes, data: PartitionData) -> PartitionAnswer:
    diverging = data.diverging_epoch
    return PartitionAnswer(
        (topic, data.partition_index),
        ErrorCode(data.error_code),
        data.high_watermark,
        data.log_start_offset,
        (diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        _NO_RECORDS if data.records is None else memoryview(data.records),
    )
