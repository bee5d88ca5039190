"""Reads a range of one partition as whole record batches, the next request always under way.

Differences to a consumer: it knows where to end, and it must not read another topic of the same
name. Rules:

1. The topic is the one that was planned: another id under the name is `RecreatedTopicError`, once
   it is clear that brokers do not just tell an old one.
2. An answer without a byte although the log goes on beyond the position may mean that nothing is
   left in between: compaction may take the last records of a range. After two such answers in a
   row who leads is asked anew, and that the position is not below the log's start is made sure of;
   a third one, with room for any batch, then moves the position to the end that the broker tells.
3. A step that brings nothing new within its time is `CallTimeoutError`: the log may end before the
   range does.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from odradek.client.client import Client
from odradek.client.cluster import NO_TOPIC_ID
from odradek.client.consumer.config import ConsumerConfig
from odradek.client.consumer.fetch_session import Wanted
from odradek.client.consumer.fetcher import (
    FETCH_LANE,
    FIRST_FETCH_VERSION,
    LAST_FETCH_BY_NAME,
    fetch_topics,
)
from odradek.client.errors import CallTimeoutError
from odradek.client.leaders import api_error, topic_name
from odradek.client.offsets import EARLIEST, list_offsets
from odradek.client.retry import Deadline
from odradek.errors import (
    ApiError,
    DisconnectedError,
    ErrorCode,
    OdradekError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
)
from odradek.model import uuid_text
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from odradek.protocol.versions import VersionRange
from odradek.records.batch import parse_header
from odradek.spark.datasource.offsets import NO_ID
from odradek.spark.datasource.splits import Split

__all__ = ["Fetched", "RecreatedTopicError", "fetch_split", "topic_id_text"]

_log = logging.getLogger(__name__)

_LAST_VERSION: Final = 32767
_MAX_FETCH_BYTES: Final = 2**31 - 1
# Answers without a byte before it is made sure that there is nothing; one may be chance.
_EMPTY_ANSWERS: Final = 2
# Times that the cluster is asked again who has the name: brokers hear of a new topic one by one.
_MAX_OTHERS: Final = 3


class RecreatedTopicError(OdradekError):
    """The topic was deleted and made again since it was planned to be read."""

    def __init__(self, topic: str, *, expected: str, found: str) -> None:
        super().__init__(f"topic {topic!r} has id {found} now, {expected} was to be read")
        self.topic = topic
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True)
class Fetched:
    """Record batches as they came; the last one may be cut short."""

    records: memoryview
    # Asked for: the first batch may begin before it.
    offset: int
    next_offset: int
    # (producer id, first offset) of aborted transactions, under read_committed.
    aborted: tuple[tuple[int, int], ...]


def topic_id_text(topic_id: bytes) -> str:
    """An id as Kafka's tools print it, `NO_ID` for none."""
    return NO_ID if topic_id == NO_TOPIC_ID else uuid_text(uuid.UUID(bytes=topic_id))


async def fetch_split(
    client: Client,
    config: ConsumerConfig,
    split: Split,
    *,
    offset: int,
    max_bytes: int,
    timeout_ms: int,
) -> AsyncGenerator[Fetched, None]:
    """Everything from `offset` up to the end of a split; see the module's docstring.

    Args:
        max_bytes: Of one answer; a batch that is larger comes all the same.
        timeout_ms: For each step.

    Raises:
        OffsetOutOfRangeError: the offset is not there.
        RecreatedTopicError: rule 1.
        CallTimeoutError: rule 3, or no leader answered in time.
    """
    fetch = _Fetch(client, config, split, max_bytes)
    deadline = client.deadline(timeout_ms)
    pending = fetch.ask(offset, deadline)
    empty_count = 0
    try:
        while offset < split.end:
            answer = await pending
            fetched = fetch.read(answer, offset)
            log_end = fetch.log_end(answer)
            empty_count = empty_count + 1 if not answer.records and log_end > offset else 0
            next_offset = fetched.next_offset
            if empty_count > _EMPTY_ANSWERS:
                _log.info("%s: nothing is left from offset %d to %d", split.tp, offset, log_end)
                next_offset, empty_count = log_end, 0
            if next_offset > offset:
                deadline = client.deadline(timeout_ms)
            elif not deadline.left_ms():
                raise CallTimeoutError(
                    f"{split.tp}: nothing came from offset {offset} in {timeout_ms} ms; the log "
                    f"ends at {log_end}, to be read up to {split.end}"
                )
            offset = next_offset
            is_sought = empty_count == _EMPTY_ANSWERS
            if is_sought:
                await fetch.check_place(offset, deadline)
            if offset < split.end:
                pending = fetch.ask(offset, deadline, is_sought=is_sought)
            if len(fetched.records):
                yield fetched
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)


class _Fetch:
    """Asks the leader of one partition, wherever it is."""

    def __init__(
        self, client: Client, config: ConsumerConfig, split: Split, max_bytes: int
    ) -> None:
        self._client = client
        self._config = config
        self._split = split
        self._tp = split.tp
        self._max_bytes = max_bytes
        self._other_count = 0

    def ask(
        self, offset: int, deadline: Deadline, *, is_sought: bool = False
    ) -> "asyncio.Task[PartitionData]":
        """Put the request on the wire.

        Args:
            is_sought: Take any number of bytes.
        """
        max_bytes = _MAX_FETCH_BYTES if is_sought else self._max_bytes
        return asyncio.get_running_loop().create_task(
            self._client.retry(
                f"fetch of {self._tp}",
                lambda: self._ask_once(offset, deadline, max_bytes),
                deadline,
            )
        )

    async def check_place(self, offset: int, deadline: Deadline) -> None:
        """Ask anew who leads, and whether its log has begun at an offset.

        Raises:
            OffsetOutOfRangeError: it begins later.
            CallTimeoutError: nobody can tell.
        """
        await self._client.refresh((self._tp.topic,), deadline)
        told = await list_offsets(self._client, {self._tp: EARLIEST}, deadline)
        found = told[self._tp]
        if isinstance(found, ApiError):
            raise CallTimeoutError(f"{self._tp}: where the log starts: {found}") from found
        if offset < found.offset:
            raise OffsetOutOfRangeError(f"{self._tp}: the log starts at {found.offset}")

    def log_end(self, answer: PartitionData) -> int:
        """Where a reader of this isolation level sees the log end."""
        is_stable = self._config.is_read_committed and answer.last_stable_offset >= 0
        return answer.last_stable_offset if is_stable else answer.high_watermark

    def read(self, answer: PartitionData, offset: int) -> Fetched:
        """Find out where to go on."""
        records = memoryview(answer.records or b"")
        at, next_offset = 0, offset
        while (header := parse_header(records, at)) is not None:
            next_offset = max(next_offset, header.next_offset)
            at += header.size
        if len(records) and not at:
            # Not even one batch was whole: ask for more.
            self._max_bytes = min(self._max_bytes * 2, _MAX_FETCH_BYTES)
        aborted = answer.aborted_transactions or ()
        return Fetched(
            records[:at],
            offset,
            next_offset,
            tuple((one.producer_id, one.first_offset) for one in aborted),
        )

    async def _ask_once(self, offset: int, deadline: Deadline, max_bytes: int) -> PartitionData:
        client, tp = self._client, self._tp
        if client.cluster.leader(tp) is None:
            await client.topic(tp.topic, deadline=deadline)
            await client.refresh((tp.topic,), deadline)
        leader, known = client.cluster.leader(tp), client.cluster.partition(tp)
        if leader is None or known is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at the moment")
        topic_id = client.cluster.topic_id(tp.topic)
        if not self._is_planned(topic_id):
            # What is known here may be older than the plan.
            client.forget_leader(tp, leader.id)
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"{tp}: another topic than was planned")
        last = _LAST_VERSION if topic_id != NO_TOPIC_ID else LAST_FETCH_BY_NAME
        request = FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(self._config.is_read_committed),
            topics=fetch_topics({tp: Wanted(topic_id, offset, known.leader_epoch)}, max_bytes),
        )
        try:
            response = await client.ask(
                await client.connection_to(leader.id, deadline, lane=FETCH_LANE),
                ApiKey.FETCH,
                request,
                FetchResponse,
                deadline,
                within=VersionRange(FIRST_FETCH_VERSION, last),
            )
        except (DisconnectedError, RequestTimedOutError):
            client.forget_leader(tp, leader.id)
            raise
        if response.error_code != ErrorCode.NONE:
            raise api_error(response.error_code, None, "FETCH")
        try:
            return self._answer_of(response)
        except ApiError as error:
            if error.code.refresh_metadata:
                client.forget_leader(tp, leader.id)
            raise

    def _is_planned(self, topic_id: bytes) -> bool:
        """
        Raises:
            RecreatedTopicError: it is another topic, however often the cluster is asked.
        """
        expected, found = self._split.topic_id, topic_id_text(topic_id)
        if NO_ID in (expected, found) or expected == found:
            return True
        self._other_count += 1
        if self._other_count > _MAX_OTHERS:
            raise RecreatedTopicError(self._split.topic, expected=expected, found=found)
        return False

    def _answer_of(self, response: FetchResponse) -> PartitionData:
        if not response.responses:
            # What a broker says whose quota is used up.
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{self._tp}: throttled")
        for topic in response.responses:
            if topic_name(topic.topic, topic.topic_id, self._client.cluster) == self._tp.topic:
                for answer in topic.partitions:
                    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise OffsetOutOfRangeError(f"{self._tp}: the offset is not in the log")
                    if answer.error_code != ErrorCode.NONE:
                        raise api_error(answer.error_code, None, self._tp)
                    return answer
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker left {self._tp} out")
