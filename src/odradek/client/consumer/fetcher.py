"""Fetches records from brokers and buffers them, with one request per broker under way.

How the buffer stays filled and no larger than it must be:

1. A partition is fetched again when the application begins to take the first of its buffered
   answers. So the next answer is under way while the application works, and at most two wait per
   partition.
2. A broker without new records waits for `fetch.max.wait.ms` before it answers. While buffered
   records of that broker are left, this would delay the partitions behind them: then the request
   asks for an answer at once, and no other one is sent before the application took something.
3. An answer for a partition that was revoked, paused, sought or validated since is dropped. So is
   an answer that does not begin at the position: a call took records while it was requested.
4. A replica to which the leader sent the consumer, and that is unknown, lost, or answers with an
   error, is left alone for a while. Until then the leader is not told the consumer's rack: it would
   send it there again, instead of records. An unknown one is looked up.

`take` and `take_columns` may be called from another thread than the loop's, while no other method
is called: the loop only ever appends to the buffer that they read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping

from odradek.client.client import Client
from odradek.client.cluster import NO_TOPIC_ID
from odradek.client.consumer.config import ConsumerConfig
from odradek.client.consumer.errors import OffsetsOutOfRangeError
from odradek.client.consumer.fetch_requests import (
    FETCH_LANE,
    FIRST_FETCH_VERSION,
    LAST_FETCH_BY_NAME,
    fetch_topics,
    forgotten_topics,
)
from odradek.client.consumer.fetch_session import FetchSession, SessionRequest, Wanted
from odradek.client.consumer.fetched import FetchedData
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.consumer.partition_state import AssignedPartition, Partitions
from odradek.client.leaders import api_error, topic_name
from odradek.errors import ApiError, DecodeError, DisconnectedError, ErrorCode
from odradek.fetch_states import FetchStates
from odradek.model import TopicPartition
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from odradek.protocol.versions import VersionRange
from odradek.records.codec import ConsumerRecord
from odradek.tasks import TaskSet

__all__ = ["Fetcher"]

logger = logging.getLogger(__name__)


class _Link:
    """The requests to one broker."""

    __slots__ = ("asked", "is_busy", "may_ask_again", "node_id", "sent_at_ms", "session")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.session = FetchSession()
        self.is_busy = False  # Connecting, or waiting for an answer.
        # Whether the application took something since the last request, see rule 2.
        self.may_ask_again = True
        # The state, the offset, and whether the broker was asked as a follower.
        self.asked: dict[TopicPartition, tuple[AssignedPartition, int, bool]] = {}
        self.sent_at_ms = 0


class Fetcher:
    """See the module's docstring."""

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        partitions: Partitions,
        metrics: ConsumerMetrics,
        *,
        on_arrival: Callable[[], None],
        on_trouble: Callable[[], None],
    ) -> None:
        """Begins with an empty buffer.

        Args:
            on_arrival: Called when records or a failure have arrived.
            on_trouble: Called when metadata should be looked up again.
        """
        self._client = client
        self._config = config
        self._partitions = partitions
        self._metrics = metrics
        self._on_arrival = on_arrival
        self._on_trouble = on_trouble
        self._states = FetchStates()
        # The state and version under which each partition is fetched.
        self._fetched_as: dict[TopicPartition, tuple[AssignedPartition, int]] = {}
        self._links: dict[int, _Link] = {}
        self._buffer: deque[FetchedData] = deque()
        # The answer that is being taken. It has left the buffer: its partition is fetched again.
        self._current: FetchedData | None = None
        self._failures: deque[Exception] = deque()
        self._tasks = TaskSet()
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False

    # Requests

    def send_fetches(self) -> None:
        """Sends a request to every broker that may get one now. Only on the loop."""
        if self._is_closed:
            return
        self._reconcile()
        now_ms = self._client.clock.monotonic_ms()
        buffered = {data.state.tp for data in tuple(self._buffer)}
        by_node: dict[int, dict[TopicPartition, int]] = {}
        held_back: set[int] = set()
        for tp, offset in self._states.active(now_ms).items():
            node_id = self._node_for(tp, now_ms)
            if node_id is None:
                self._states.delay((tp,), now_ms + self._client.options.retry_backoff_ms)
                self._on_trouble()
            elif tp in buffered:
                held_back.add(node_id)
            else:
                by_node.setdefault(node_id, {})[tp] = offset
        for node_id, offsets in by_node.items():
            link = self._links.get(node_id)
            if link is None:
                link = self._links[node_id] = _Link(node_id)
            if link.is_busy or (node_id in held_back and not link.may_ask_again):
                continue
            self._start(link, offsets, can_wait=node_id not in held_back)
        self._arm_retry(now_ms)

    def _reconcile(self) -> None:
        """Chooses the partitions that the application reads now, from their positions on."""
        for tp, (state, version) in list(self._fetched_as.items()):
            if not state.is_fetchable or not self._partitions.is_current(state, version):
                self._states.remove((tp,))
                del self._fetched_as[tp]
        for state in self._partitions:
            if state.is_fetchable and state.tp not in self._fetched_as:
                assert state.position is not None, "a partition that is ready has a position"
                self._states.add({state.tp: state.position})
                self._fetched_as[state.tp] = (state, state.version)

    def _node_for(self, tp: TopicPartition, now_ms: int) -> int | None:
        state, _ = self._fetched_as[tp]
        if state.preferred_replica >= 0:
            if now_ms >= state.preferred_until_ms:
                state.preferred_replica = -1
            elif state.preferred_replica in self._client.cluster.nodes:
                return state.preferred_replica
            else:  # Its broker was away when the cluster was looked up.
                self._leave_replica(state)
                self._on_trouble()
        leader = self._client.cluster.leader(tp)
        return None if leader is None else leader.id

    def _leave_replica(self, state: AssignedPartition) -> None:
        options = self._client.options
        state.leave_replica(
            self._client.clock.monotonic_ms(),
            (options.retry_backoff_max_ms, options.metadata_max_age_ms),
        )

    def _arm_retry(self, now_ms: int) -> None:
        at_ms = self._states.next_active_ms()
        if at_ms is not None and self._retry is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(max(at_ms - now_ms, 1) / 1000, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self.send_fetches()

    def _start(self, link: _Link, offsets: dict[TopicPartition, int], *, can_wait: bool) -> None:
        link.is_busy = True
        connection = self._client.opened_connection(link.node_id, lane=FETCH_LANE)
        if connection is not None:
            self._send(link, connection, offsets, can_wait=can_wait)
            return
        self._tasks.start(self._connect(link, list(offsets)))

    async def _connect(self, link: _Link, partitions: list[TopicPartition]) -> None:
        try:
            await self._client.connection_to(link.node_id, self._client.deadline(), lane=FETCH_LANE)
        except ApiError as error:
            self._note_lost(link, partitions, error)
        link.is_busy = False
        link.may_ask_again = True
        self.send_fetches()

    def _send(
        self,
        link: _Link,
        connection: OutboundConnection,
        offsets: Mapping[TopicPartition, int],
        *,
        can_wait: bool,
    ) -> None:
        cluster = self._client.cluster
        wanted = {}
        link.asked = {}
        for tp, offset in offsets.items():
            state, _ = self._fetched_as[tp]
            known = cluster.partition(tp)
            epoch = -1 if known is None else known.leader_epoch
            wanted[tp] = Wanted(cluster.topic_id(tp.topic), offset, epoch)
            link.asked[tp] = (state, offset, state.preferred_replica == link.node_id)
        has_ids = all(one.topic_id != NO_TOPIC_ID for one in wanted.values())
        try:
            version = connection.version_for(
                ApiKey.FETCH,
                VersionRange(FIRST_FETCH_VERSION, 32767 if has_ids else LAST_FETCH_BY_NAME),
            )
            request = self._request(
                link.session.build(wanted, has_ids=version > LAST_FETCH_BY_NAME),
                can_wait=can_wait,
                rack=self._rack_for(link),
            )
            link.may_ask_again = False
            link.sent_at_ms = self._client.clock.monotonic_ms()
            answer = connection.send(
                ApiKey.FETCH,
                version,
                encode_message_parts(request, version),
                timeout_ms=self._client.options.request_timeout_ms
                + (self._config.fetch_max_wait_ms if can_wait else 0),
            )
        except ApiError as error:
            # Not from within `send_fetches`, which the handling of the failure would call again.
            asyncio.get_running_loop().call_soon(self._fail, link, error)
            return
        answer.add_done_callback(lambda done: self._on_answer(link, connection, version, done))

    def _rack_for(self, link: _Link) -> str:
        """The rack that a broker is told; empty if it has to answer as a leader itself."""
        rack, now_ms = self._config.client_rack, self._client.clock.monotonic_ms()
        for state, _, is_follower in link.asked.values():
            if is_follower:  # It is in this rack itself, so it sends the consumer nowhere else.
                return self._config.client_rack
            if now_ms < state.leader_only_until_ms:
                rack = ""
        return rack

    def _request(self, asked: SessionRequest, *, can_wait: bool, rack: str = "") -> FetchRequest:
        config = self._config
        return FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms if can_wait else 0,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=config.isolation,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            topics=fetch_topics(asked.changed, config.max_partition_fetch_bytes),
            forgotten_topics_data=forgotten_topics(asked.forgotten),
            rack_id=rack,
        )

    # Answers

    def _on_answer(
        self,
        link: _Link,
        connection: OutboundConnection,
        version: int,
        done: "asyncio.Future[memoryview]",
    ) -> None:
        if self._is_closed or done.cancelled():
            return
        failure = done.exception()
        if failure is not None:
            if not isinstance(failure, ApiError):
                failure = DisconnectedError(f"{connection}: {failure}")
            self._fail(link, failure)
            return
        payload = done.result()
        try:
            _, response = parse_response(payload, ApiKey.FETCH, version)
        except DecodeError as error:
            connection.close(f"a bad answer to FETCH v{version}: {error}")
            self._fail(link, DisconnectedError(f"{connection} gave a bad answer: {error}"))
            return
        assert isinstance(response, FetchResponse), "the registry gave another class"
        self._metrics.on_fetch(
            self._client.clock.monotonic_ms() - link.sent_at_ms,
            len(payload),
            response.throttle_time_ms,
        )
        link.is_busy = False
        if response.error_code != ErrorCode.NONE:
            link.session.fail(_code(response.error_code))
            link.may_ask_again = True
            self._delay(link, api_error(response.error_code, None, "FETCH"))
        else:
            link.session.accept(response.session_id)
            self._take_in(link, response)
        self.send_fetches()

    def _fail(self, link: _Link, error: ApiError) -> None:
        """Handles a request without an answer: the connection has ended, or the broker has."""
        link.session.fail(None)
        link.is_busy = False
        link.may_ask_again = True
        self._note_lost(link, list(link.asked), error)
        self.send_fetches()

    def _note_lost(self, link: _Link, partitions: list[TopicPartition], error: ApiError) -> None:
        if self._is_closed:
            return
        logger.info("Fetch from broker %d: %s", link.node_id, error)
        if not error.code.retriable:
            self._failures.append(error)
            self._on_arrival()
        for tp in partitions:
            self._client.forget_leader(tp, link.node_id)
        # Also those that waited for the connection, or for the answer to others.
        left = [one for one in self._partitions if one.preferred_replica == link.node_id]
        for state in left:
            self._leave_replica(state)
        self._delay_partitions([*partitions, *(state.tp for state in left)])
        self._on_trouble()

    def _delay(self, link: _Link, error: ApiError) -> None:
        """Handles an error of the whole answer: mostly the session's, which begins anew at once."""
        if error.code in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ):
            return
        logger.warning("Fetch from broker %d: %s", link.node_id, error)
        self._delay_partitions(list(link.asked))

    def _delay_partitions(self, partitions: list[TopicPartition]) -> None:
        until_ms = self._client.clock.monotonic_ms() + self._client.options.retry_backoff_ms
        self._states.delay(partitions, until_ms)

    def _take_in(self, link: _Link, response: FetchResponse) -> None:
        has_news = False
        for topic in response.responses:
            name = topic_name(topic.topic, topic.topic_id, self._client.cluster)
            for answer in topic.partitions:
                tp = TopicPartition(name, answer.partition_index)
                asked = link.asked.get(tp)
                if asked is None:
                    continue
                state, offset, is_follower = asked
                fetched_as = self._fetched_as.get(tp)
                is_expected = (
                    fetched_as is not None
                    and fetched_as[0] is state
                    and self._partitions.is_current(state, fetched_as[1])
                    and self._states.is_expected(tp, offset)
                )
                if not is_expected:
                    continue
                if answer.error_code != ErrorCode.NONE:
                    has_news |= self._take_error(
                        link, state, offset, answer, is_follower=is_follower
                    )
                else:
                    if is_follower:
                        state.replica_failure_count = 0
                    has_news |= self._take_in_partition(state, offset, answer)
        if has_news:
            self._on_arrival()

    def _take_in_partition(
        self, state: AssignedPartition, offset: int, answer: PartitionData
    ) -> bool:
        """Buffers the answer; returns whether the application has to be woken."""
        tp = state.tp
        if answer.high_watermark >= 0:  # A leader that prefers a follower may leave them out.
            state.high_watermark = answer.high_watermark
            state.last_stable_offset = answer.last_stable_offset
            state.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            state.preferred_replica = answer.preferred_read_replica
            state.preferred_until_ms = (
                self._client.clock.monotonic_ms() + self._client.options.metadata_max_age_ms
            )
        if not answer.records:
            return False
        aborted = None
        if self._config.is_read_committed:
            aborted = [
                (one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()
            ]
        data = FetchedData(
            state, answer.records, offset, aborted=aborted, check_crcs=self._config.check_crcs
        )
        try:
            data.check_first()
            end = data.end_offset()
        except ApiError as error:
            self._failures.append(error)
            self._delay_partitions([tp])
            return True
        self._states.advance(tp, offset, end)
        self._buffer.append(data)
        return True

    def _take_error(
        self,
        link: _Link,
        state: AssignedPartition,
        offset: int,
        answer: PartitionData,
        *,
        is_follower: bool,
    ) -> bool:
        tp = state.tp
        error = api_error(answer.error_code, None, tp)
        if is_follower:
            self._leave_replica(state)
        state.preferred_replica = -1
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower may lag behind, or its log may start later: ask the leader.
            if not is_follower:
                self._on_out_of_range(state, offset)
                return True
            return False
        logger.info("Fetch of %s from broker %d: %s", tp, link.node_id, error)
        self._delay_partitions([tp])
        if error.code.retriable or error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            if error.code.refresh_metadata and not is_follower:
                self._client.forget_leader(tp, link.node_id)
            self._on_trouble()
            return False
        self._failures.append(error)
        return True

    def _on_out_of_range(self, state: AssignedPartition, offset: int) -> None:
        if state.position != offset:
            # Buffered records before it are returned first, then the failure.
            self._delay_partitions([state.tp])
            return
        if self._config.reset_policy.kind == "none":
            self._failures.append(OffsetsOutOfRangeError({state.tp: offset}))
            self._delay_partitions([state.tp])
            return
        logger.info("Offset %d of %s is out of range, resetting", offset, state.tp)
        state.reset()
        self._on_trouble()

    # Taking records

    @property
    def has_records(self) -> bool:
        """Whether `take` is likely to return records."""
        return self._current is not None or bool(self._buffer)

    @property
    def has_failures(self) -> bool:
        return bool(self._failures)

    def raise_failure(self) -> None:
        """Raises the next failure of a partition, each once.

        Raises:
            Exception: A partition cannot be read.
        """
        if self._failures:
            raise self._failures.popleft()

    def take(self, max_count: int) -> tuple[list[ConsumerRecord], bool]:
        """Takes buffered records; returns them, and whether to fetch more.

        Raises:
            ApiError: Bad bytes, if nothing comes before them; the partition is fetched again.
        """
        taken: list[ConsumerRecord] = []
        wants_more = False
        while len(taken) < max_count:
            data = self._current
            if data is None:
                data = self._begin_next()
                wants_more = True
                if data is None:
                    break
            if not self._partitions.is_current(data.state, data.version):
                self._current = None
                continue
            try:
                records = data.take(max_count - len(taken))
            except ApiError:
                if taken:
                    break  # They are returned; the next call raises the failure.
                self.drop(data)
                raise
            if records:
                taken = taken + records if taken else records
            else:
                self._current = None
        return taken, wants_more

    def begin_columns(self) -> FetchedData | None:
        """The answer to take columns from; `finish_columns` when it has no more."""
        while True:
            data = self._current or self._begin_next()
            if data is None or self._partitions.is_current(data.state, data.version):
                return data
            self._current = None

    def finish_columns(self) -> None:
        """The current answer is used up."""
        self._current = None

    def _begin_next(self) -> FetchedData | None:
        if not self._buffer:
            return None
        self._current = data = self._buffer.popleft()
        if data.next_offset != data.state.position and self._partitions.is_current(
            data.state, data.version
        ):
            data.state.version += 1  # Which makes it outdated, and has the position fetched again.
        for link in tuple(self._links.values()):
            link.may_ask_again = True
        return data

    def drop(self, data: FetchedData) -> None:
        """Drops an answer with bad bytes and the answers behind it: they are fetched again."""
        self._current = None
        data.state.version += 1

    # The end

    async def close(self) -> None:
        """Sends no more requests; ends the sessions where that needs no wait."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.stop()
        for link in self._links.values():
            self._end_session(link)
        self._buffer.clear()
        self._current = None

    def _end_session(self, link: _Link) -> None:
        connection = self._client.opened_connection(link.node_id, lane=FETCH_LANE)
        ending = link.session.end()
        if connection is None or ending is None or link.is_busy:
            return
        try:
            version = connection.version_for(ApiKey.FETCH, VersionRange(7, 32767))
            request = self._request(ending, can_wait=False)
            answer = connection.send(
                ApiKey.FETCH, version, encode_message_parts(request, version), timeout_ms=1_000
            )
        except ApiError:
            return
        answer.add_done_callback(_ignore)


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _ignore(done: "asyncio.Future[memoryview]") -> None:
    if not done.cancelled():
        done.exception()
