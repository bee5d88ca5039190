"""Reads a range of one partition as whole record batches, the next request always under way.

Unlike a consumer it has an end, and it can be told not to read another topic of the same name.
Rules:

1. The topic is the one whose id was given: another id under the name is `RecreatedTopicError`, once
   it is clear that the brokers' metadata is not merely old.
2. An answer without a byte although the log goes on beyond the position may mean that nothing is
   left in between: compaction may take the last records of a range. After two such answers in a
   row the leader is looked up again, and the start of its log must not lie above the position; a
   third one, with room for any batch, then moves the position to the end that the broker reports.
3. A step that brings nothing new within its time is `CallTimeoutError`: the log may end before the
   range does. The time that the caller takes between two steps does not count.
4. A range without an end goes up to where the log ends when its end is reached.
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
from odradek.client.consumer.fetch_requests import (
    FETCH_LANE,
    FIRST_FETCH_VERSION,
    LAST_FETCH_BY_NAME,
    fetch_topics,
)
from odradek.client.consumer.fetch_session import Wanted
from odradek.client.errors import CallTimeoutError, RecreatedTopicError
from odradek.client.leaders import api_error, topic_name
from odradek.client.offsets import EARLIEST, list_offsets
from odradek.client.retry import Deadline
from odradek.errors import (
    ApiError,
    DisconnectedError,
    ErrorCode,
    OffsetOutOfRangeError,
    RequestTimedOutError,
)
from odradek.model import TopicPartition, uuid_text
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from odradek.protocol.versions import VersionRange
from odradek.records.batch import parse_header
from odradek.tasks import TaskSet

__all__ = ["ANY_ID", "FetchedBatches", "read_range", "topic_id_text"]

logger = logging.getLogger(__name__)

# Stands for an unknown id, which is not compared.
ANY_ID: Final = ""

_LAST_VERSION: Final = 32767
_MAX_FETCH_BYTES: Final = 2**31 - 1
# Answers without a byte before the leader is looked up again; a single one may be chance.
_EMPTY_ANSWERS: Final = 2
# Times that the id of the name is asked for again: brokers learn of a new topic one by one.
_MAX_OTHERS: Final = 3


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole record batches, byte for byte as the broker sent them."""

    records: memoryview
    # Asked for: the first batch may begin before it.
    offset: int
    # Of the first and the last record; -1 if there is none.
    first: int
    last: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    # (producer id, first offset) of aborted transactions, under read_committed.
    aborted: tuple[tuple[int, int], ...]


def topic_id_text(topic_id: bytes) -> str:
    """An id as Kafka's tools print it, `ANY_ID` for none."""
    return ANY_ID if topic_id == NO_TOPIC_ID else uuid_text(uuid.UUID(bytes=topic_id))


async def read_range(
    client: Client,
    config: ConsumerConfig,
    tp: TopicPartition,
    *,
    offset: int,
    end: int | None,
    max_bytes: int,
    timeout_ms: int,
    topic_id: str = ANY_ID,
) -> AsyncGenerator[FetchedBatches, None]:
    """Everything from `offset` up to `end`, or to the end of the log; see the module's docstring.

    Args:
        max_bytes: Of one answer; a batch that is larger comes all the same.
        timeout_ms: For each step.
        topic_id: As `topic_id_text` prints it.

    Raises:
        OffsetOutOfRangeError: The offset is not there.
        RecreatedTopicError: Rule 1.
        CallTimeoutError: Rule 3, or no leader answered in time.
    """
    if end is not None and offset >= end:
        return
    leader = _Leader(client, config, tp, max_bytes, topic_id)
    deadline = client.deadline(timeout_ms)
    tasks = TaskSet()
    pending = tasks.start(leader.ask(offset, deadline))
    pauses_ms = client.pauses_ms()
    empty_count = 0
    try:
        while True:
            answer = await pending
            fetched = leader.read(answer, offset)
            log_end = leader.log_end(answer)
            empty_count = empty_count + 1 if not answer.records and log_end > offset else 0
            next_offset = fetched.next_offset
            if empty_count > _EMPTY_ANSWERS:
                logger.info("%s: nothing is left from offset %d to %d", tp, offset, log_end)
                next_offset, empty_count = log_end, 0
            has_moved, offset = next_offset > offset, next_offset
            is_done = offset >= (log_end if end is None else end)
            if has_moved:
                deadline, pauses_ms = client.deadline(timeout_ms), client.pauses_ms()
            elif not is_done:
                await _wait_on(tp, offset, end, log_end, deadline, next(pauses_ms))
            is_sought = empty_count == _EMPTY_ANSWERS
            if is_sought:
                await leader.check_place(offset, deadline)
            if not is_done:
                pending = tasks.start(leader.ask(offset, deadline, is_sought=is_sought))
            if len(fetched.records):
                yield fetched
                deadline = client.deadline(timeout_ms)
            if is_done:
                return
    finally:
        await tasks.stop()
        await asyncio.gather(pending, return_exceptions=True)  # If it has failed before.


async def _wait_on(
    tp: TopicPartition,
    offset: int,
    end: int | None,
    log_end: int,
    deadline: Deadline,
    pause_ms: int,
) -> None:
    """Waits before the next request, after an answer that brought nothing new.

    Raises:
        CallTimeoutError: Rule 3.
    """
    if not deadline.left_ms():
        up_to = "its end" if end is None else end
        raise CallTimeoutError(
            f"{tp}: nothing came from offset {offset} in {deadline.timeout_ms} ms; the log "
            f"ends at {log_end}, to be read up to {up_to}"
        )
    if log_end <= offset:
        # Most brokers wait for records before they answer that there are none. Those that do not,
        # and those that are told not to wait, must not be asked without a pause.
        await asyncio.sleep(min(pause_ms, deadline.left_ms()) / 1000)


class _Leader:
    """The leader of one partition, whichever broker that is."""

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        tp: TopicPartition,
        max_bytes: int,
        topic_id: str,
    ) -> None:
        self._client = client
        self._config = config
        self._tp = tp
        self._max_bytes = max_bytes
        self._topic_id = topic_id
        self._other_count = 0

    async def ask(
        self, offset: int, deadline: Deadline, *, is_sought: bool = False
    ) -> PartitionData:
        """Sends the request; returns the answer.

        Args:
            is_sought: Whether to take any number of bytes.
        """
        max_bytes = _MAX_FETCH_BYTES if is_sought else self._max_bytes
        return await self._client.retry(
            f"fetch of {self._tp}",
            lambda: self._ask_once(offset, deadline, max_bytes),
            deadline,
        )

    async def check_place(self, offset: int, deadline: Deadline) -> None:
        """Looks the leader up again, and checks that its log does not start above an offset.

        Raises:
            OffsetOutOfRangeError: It begins later.
            CallTimeoutError: No leader answers in time.
        """
        await self._client.refresh((self._tp.topic,), deadline)
        told = await list_offsets(self._client, {self._tp: EARLIEST}, deadline)
        found = told[self._tp]
        if isinstance(found, ApiError):
            raise CallTimeoutError(f"{self._tp}: where the log starts: {found}") from found
        if offset < found.offset:
            raise OffsetOutOfRangeError(f"{self._tp}: the log starts at {found.offset}")

    def log_end(self, answer: PartitionData) -> int:
        """The end of the log for a reader of this isolation level."""
        is_stable = self._config.is_read_committed and answer.last_stable_offset >= 0
        return answer.last_stable_offset if is_stable else answer.high_watermark

    def read(self, answer: PartitionData, offset: int) -> FetchedBatches:
        """Cuts an incomplete batch off the end, and finds the offset to go on at."""
        records = memoryview(answer.records or b"")
        at, first, last, next_offset = 0, -1, -1, offset
        while (header := parse_header(records, at)) is not None:
            first = header.base_offset if first < 0 else first
            last = header.last_offset
            next_offset = max(next_offset, header.next_offset)
            at += header.size
        if len(records) and not at:
            # No batch was complete: ask for more bytes.
            self._max_bytes = min(self._max_bytes * 2, _MAX_FETCH_BYTES)
        return FetchedBatches(
            records[:at],
            offset,
            first,
            last,
            next_offset,
            answer.high_watermark,
            answer.last_stable_offset,
            tuple((one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()),
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
        if not self._is_meant(topic_id):
            # The metadata here may be older than the caller's.
            client.forget_leader(tp, leader.id)
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"{tp}: another topic than was meant")
        last = _LAST_VERSION if topic_id != NO_TOPIC_ID else LAST_FETCH_BY_NAME
        request = FetchRequest(
            # An empty answer is to arrive before the time is over.
            max_wait_ms=min(self._config.fetch_max_wait_ms, deadline.left_ms() // 2),
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=self._config.isolation,
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
            return self._answer_of(response, offset)
        except ApiError as error:
            if error.code.refresh_metadata:
                client.forget_leader(tp, leader.id)
            raise

    def _is_meant(self, topic_id: bytes) -> bool:
        """Checks the topic's id.

        Raises:
            RecreatedTopicError: It is another topic, however often the cluster is asked.
        """
        expected, found = self._topic_id, topic_id_text(topic_id)
        if ANY_ID in (expected, found) or expected == found:
            return True
        self._other_count += 1
        if self._other_count > _MAX_OTHERS:
            raise RecreatedTopicError(self._tp.topic, expected=expected, found=found)
        return False

    def _answer_of(self, response: FetchResponse, offset: int) -> PartitionData:
        if not response.responses:
            # The answer of a broker whose quota is used up.
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{self._tp}: throttled")
        for topic in response.responses:
            if topic_name(topic.topic, topic.topic_id, self._client.cluster) == self._tp.topic:
                for answer in topic.partitions:
                    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise OffsetOutOfRangeError(
                            f"{self._tp}: OFFSET_OUT_OF_RANGE: there is no offset {offset}"
                        )
                    if answer.error_code != ErrorCode.NONE:
                        raise api_error(answer.error_code, None, self._tp)
                    return answer
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker left {self._tp} out")
