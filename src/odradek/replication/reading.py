"""Fetches: reading partitions from local logs, waiting for more, answering.

Partitions are read in the order of the request, which is its order of priority, under one budget.
The first batch of an answer is whole even if it exceeds the limits: a reader that asks for less
than one batch would otherwise never advance. Example with a budget of 100 and batches of 80 bytes
in three partitions: 80 bytes of the first, nothing of the others, since 20 bytes hold no batch.
Read again with the first one drained: 80 bytes of the second.

The pieces of one answer are limited, too. Each is read, or keeps a descriptor until it is sent, so
many partitions with little data would cost other requests more than one with much. Partitions
beyond the limit have no records in this answer; a session puts them first in the next one.

A consumer that names its rack may be sent to a follower there (`replica_selection`): its answer has
the follower's id and no records, and does not wait.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeAlias

from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.delayed_fetch import DelayedFetch, Resumption
from odradek.replication.fetch_values import (
    ClientPlace,
    FetchParams,
    FetchPartition,
    FetchResult,
    FetchResults,
)
from odradek.replication.follower_news import SessionNews, WatermarkDelay
from odradek.replication.hosted import HostedPartitions
from odradek.replication.isr import IsrChange
from odradek.replication.news_fetch import NewsFetch, NewsReader
from odradek.replication.parked import ParkedRequests
from odradek.replication.partition import Partition
from odradek.replication.replica_selection import NO_REPLICA, select_replica
from odradek.replication.shared_read import SharedRead
from odradek.replication.stats import ReplicationStats, TopicStats
from odradek.replication.throttles import ReplicationThrottle
from odradek.storage.log.reader import FetchIsolation

__all__ = ["MAX_PIECES", "Reads", "read_partitions"]

logger = logging.getLogger(__name__)

_NONE = ErrorCode.NONE

# Pieces of files in one answer. With the usual megabyte of each partition, fetch.max.bytes is used
# up before.
MAX_PIECES = 100
# Partitions that `fetch_many` reads in one step, in a fraction of a millisecond.
_READ_AT_ONCE = 20

# The follower that a consumer should read a partition from at an offset, or NO_REPLICA.
FindPreferred: TypeAlias = Callable[[Partition, int], int]


class Reads:
    """The fetch side of a `ReplicaManager`.

    Args:
        hosted: The partitions here.
        parked: Notes the partitions that a follower's fetch changes.
        purgatory: Holds the fetches that wait.
        stats: Meters of the topics.
    """

    __slots__ = (
        "_hosted",
        "_parked",
        "_purgatory",
        "_stats",
        "rack_of",
        "submit_isr_change",
        "throttle",
        "watermark_delay",
    )

    def __init__(
        self,
        hosted: HostedPartitions,
        parked: ParkedRequests,
        purgatory: DelayedOperationPurgatory[DelayedFetch | NewsFetch],
        stats: ReplicationStats,
    ) -> None:
        self._hosted = hosted
        self._parked = parked
        self._purgatory = purgatory
        self._stats = stats
        # Carries out the ISR changes that followers' fetches cause. None: none are proposed.
        self.submit_isr_change: Callable[[Partition, IsrChange], None] | None = None
        # The rack of a broker that has a listener. None: consumers are not sent to followers.
        self.rack_of: Callable[[int, str], str | None] | None = None
        # Of what followers are sent. None: they are not limited.
        self.throttle: ReplicationThrottle | None = None
        # How long a high watermark waits for records to travel with. None: not at all.
        self.watermark_delay: WatermarkDelay | None = None

    def fetch(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        respond: Callable[[FetchResults], None],
        *,
        on_parked: Callable[[DelayedFetch], None] | None = None,
    ) -> None:
        """Reads from local logs; waits for more if there is less than `min_bytes`.

        `on_parked` gets the operation that has to be ended if the client disconnects.
        """
        is_outermost = self._parked.begin()
        try:
            results = self._read(params, partitions)
            if params.replica_id >= 0:
                self._note_follower(params, results)
            if not partitions or self._is_enough_alone(params, results):
                self._answer_fetch(params, results, respond)
            else:
                self._park_fetch(params, results, respond, on_parked)
        finally:
            if is_outermost:
                self._parked.end()

    def fetch_news(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        news: SessionNews,
        reader: NewsReader,
    ) -> None:
        """Reads the partitions of a follower's session that have news, or waits for news."""
        parked = self._parked
        is_outermost = parked.begin()
        try:
            news.watermark_delay = self.watermark_delay
            results = self._read(params, partitions)
            self._note_follower(params, results)
            if self._is_enough_news(params, results, news):
                news.begin_answer()
                self._answer_fetch(params, results, reader.respond)
                return
            reader.settle(results)
            news.is_pressing = False
            operation = NewsFetch(
                params,
                news,
                reader,
                finish=self._finish_news,
                on_expired=self._stats.mark_fetch_expired,
                throttle=self.throttle,
            )
            news.wake = lambda: parked.note(news, False)
            news.waiting_count += 1
            self._purgatory.watch(operation, [news])
            reader.park(operation)
        finally:
            if is_outermost:
                parked.end()

    def _finish_news(self, operation: NewsFetch) -> None:
        """Reads the partitions that have news by now, and answers."""
        operation.news.waiting_count -= 1
        operation.news.begin_answer()
        params, reader = operation.params, operation.reader
        partitions = reader.take_again()
        self._answer_fetch(params, self._read(params, partitions), reader.respond)

    def fetch_many(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        answer: Callable[[FetchResults], None],
        *,
        resume: Callable[[Generator[None, None, None]], None],
        is_wanted: Callable[[], bool],
        on_parked: Callable[[DelayedFetch], None],
    ) -> Generator[None, None, None]:
        """As `fetch`, for very many partitions, in steps.

        The fetch is parked before it reads, so that a change of a partition that was read already
        is noticed; it is answered at the first change, without counting bytes.

        Args:
            params: The fetch as a whole.
            partitions: Those to read, in their order.
            answer: Gets the results, once.
            resume: Runs further steps when the fetch has waited, with or without its client.
            is_wanted: Whether the client is there.
            on_parked: Gets the operation that has to be ended if the client disconnects.
        """
        if params.max_wait_ms <= 0 or not partitions:
            answer((yield from self._read_in_steps(params, partitions)))
            return
        resumption = Resumption(
            resume, partial(self._finish_many, params, partitions, answer, is_wanted)
        )
        operation = DelayedFetch(
            params,
            partitions,
            (),
            hosted=self._hosted,
            respond=answer,
            read_and_respond=resumption.on_change,
            on_expired=self._stats.mark_fetch_expired,
        )
        self._purgatory.watch(operation, [wanted.tp for wanted in partitions])
        try:
            yield
            results = yield from self._read_in_steps(params, partitions)
        except GeneratorExit:  # The client has disconnected.
            operation.force_complete()
            resume(self._forget(partitions))
            raise
        has_changed, is_enough = operation.is_completed, self._is_enough_alone(params, results)
        if has_changed or is_enough:
            operation.force_complete()
            yield from self._forget(partitions)
            if not is_enough:  # What has changed was read before.
                results = yield from self._read_in_steps(params, partitions, is_first_read=False)
            answer(results)
            return
        resumption.is_reading = False
        on_parked(operation)

    def _finish_many(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        answer: Callable[[FetchResults], None],
        is_wanted: Callable[[], bool],
    ) -> Generator[None, None, None]:
        yield from self._forget(partitions)
        if is_wanted():
            answer((yield from self._read_in_steps(params, partitions, is_first_read=False)))

    def _read(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        *,
        used_bytes: int = 0,
        piece_count: int = 0,
    ) -> FetchResults:
        find_preferred: FindPreferred | None = None
        if params.place is not None and self.rack_of is not None:
            find_preferred = partial(_find_preferred, params.place, self.rack_of)
        return read_partitions(
            self._hosted,
            params,
            partitions,
            self._stats.all_topics,
            used_bytes=used_bytes,
            piece_count=piece_count,
            find_preferred=find_preferred,
            throttle=self.throttle,
        )

    def _read_in_steps(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        *,
        is_first_read: bool = True,
    ) -> Generator[None, None, FetchResults]:
        """Reads some partitions at a time, and counts what the answer will have of them."""
        results: FetchResults = []
        used_bytes = piece_count = 0
        for start in range(0, len(partitions), _READ_AT_ONCE):
            some = self._read(
                params,
                partitions[start : start + _READ_AT_ONCE],
                used_bytes=used_bytes,
                piece_count=piece_count,
            )
            if params.replica_id >= 0 and is_first_read:
                self._note_follower_now(params, some)
            pieces = [result.records for _, result in some if result.records is not None]
            used_bytes += sum(piece.length for piece in pieces)
            piece_count += len(pieces)
            results += some
            yield
        return results

    def _note_follower_now(self, params: FetchParams, results: FetchResults) -> None:
        is_outermost = self._parked.begin()
        try:
            self._note_follower(params, results)
        finally:
            if is_outermost:
                self._parked.end()

    def count_answered(self, params: FetchParams, results: FetchResults) -> None:
        """Counts the bytes of an answer of `fetch_many`, or of a part of it."""
        self._answer_fetch(params, results, _ignore)

    def _forget(self, partitions: Sequence[FetchPartition]) -> Generator[None, None, None]:
        """Removes completed fetches from the lists of these partitions.

        Otherwise they would stay until a purge, which walks all lists at once.
        """
        for wanted in partitions:
            self._purgatory.trim(wanted.tp)
            yield

    def _is_enough_alone(self, params: FetchParams, results: FetchResults) -> bool:
        """Whether a fetch that is not of a follower's session is answered at once."""
        return self._is_enough(params, results) or (
            params.replica_id >= 0 and self._has_untold_watermark(params, results)
        )

    def _is_enough_news(
        self, params: FetchParams, results: FetchResults, news: SessionNews
    ) -> bool:
        """Whether a fetch of a follower's session is answered at once."""
        if self._is_enough(params, results):
            return True
        if self._has_untold_watermark(params, results):
            news.note_high_watermark()
        return news.is_watermark_due

    def _has_untold_watermark(self, params: FetchParams, results: FetchResults) -> bool:
        """Whether a follower does not know a high watermark."""
        for wanted, _ in results:
            partition = self._hosted.get(wanted.tp)
            if partition is not None and partition.is_high_watermark_news_to(params.replica_id):
                return True
        return False

    def _is_enough(self, params: FetchParams, results: FetchResults) -> bool:
        """Whether a fetch is answered at once, high watermarks aside."""
        if params.max_wait_ms <= 0:
            return True
        readable = piece_count = 0
        for _, result in results:
            if result.error is not _NONE or result.diverging_epoch is not None:
                return True
            if result.preferred_read_replica != NO_REPLICA:
                return True
            if result.records is not None:
                readable += result.records.length
                piece_count += 1
        # More pieces than an answer may have cannot be waited for.
        return readable >= params.min_bytes or piece_count >= MAX_PIECES

    def _park_fetch(
        self,
        params: FetchParams,
        results: FetchResults,
        respond: Callable[[FetchResults], None],
        on_parked: Callable[[DelayedFetch], None] | None,
    ) -> None:
        operation = DelayedFetch(
            params,
            [wanted for wanted, _ in results],
            [(w, r.offset_metadata) for w, r in results if r.offset_metadata is not None],
            hosted=self._hosted,
            respond=respond,
            read_and_respond=self._finish_fetch,
            on_expired=self._stats.mark_fetch_expired,
            throttle=self.throttle,
        )
        if not _is_at_end(params, results) and operation.try_complete():
            return
        self._purgatory.watch(operation, [wanted.tp for wanted, _ in results])
        if on_parked is not None:
            on_parked(operation)

    def _finish_fetch(self, operation: DelayedFetch) -> None:
        """Reads again for a fetch that has waited, and answers it."""
        params, partitions = operation.params, operation.partitions
        if params.replica_id >= 0 or len(partitions) != 1:
            found = self._read(params, partitions)
        else:
            parked, wanted = self._parked, partitions[0]
            shared = parked.shared_read
            if shared is not None and shared.suits(params, wanted):
                operation.respond([(wanted, shared.take())])
                return
            found = self._read(params, partitions)
            partition = self._hosted.get(wanted.tp)
            result = found[0][1]
            if parked.is_checking_fetches and result.error is _NONE and partition is not None:
                parked.shared_read = SharedRead(params, wanted, result, partition.stats)
        self._answer_fetch(params, found, operation.respond)

    def _answer_fetch(
        self,
        params: FetchParams,
        results: FetchResults,
        respond: Callable[[FetchResults], None],
    ) -> None:
        """Answers, counts the bytes, and remembers the high watermark sent to a follower."""
        for wanted, result in results:
            partition = self._hosted.get(wanted.tp)
            if partition is None or result.error is not _NONE:
                continue
            size = 0 if result.records is None else result.records.length
            if params.replica_id < 0:
                partition.stats.count_bytes_out(size)
                continue
            self._stats.replication_bytes_out.mark(size)
            if self.throttle is not None:
                self.throttle.count(wanted.tp, size)
            if params.replica_id in partition.adding_replicas:
                self._stats.reassignment_bytes_out.mark(size)
            follower = partition.followers.get(params.replica_id)
            if follower is not None:
                follower.told_high_watermark = result.high_watermark
        respond(results)

    def _note_follower(self, params: FetchParams, results: FetchResults) -> None:
        """Moves watermarks, and perhaps the ISR, by the offsets of a follower's fetch."""
        replica_id = params.replica_id
        for wanted, result in results:
            partition = self._hosted.get(wanted.tp)
            if (
                partition is None
                or result.error is not _NONE
                or result.diverging_epoch is not None
                or wanted.current_leader_epoch != partition.leader_epoch
            ):
                continue
            try:
                if partition.apply_follower_fetch(
                    replica_id,
                    fetch_offset=wanted.fetch_offset,
                    log_start_offset=wanted.log_start_offset,
                    leader_epoch=wanted.current_leader_epoch,
                    broker_epoch=params.replica_epoch,
                ):
                    self._parked.note(wanted.tp, True)
                    result.high_watermark = partition.high_watermark  # One answer earlier.
                if self.submit_isr_change is not None:
                    change = partition.propose_isr_expansion(replica_id)
                    if change is not None:
                        self.submit_isr_change(partition, change)
            except StorageError as error:
                logger.warning("%s: %s", wanted.tp, error)


def _ignore(_results: FetchResults) -> None:
    pass


def read_partitions(
    hosted: HostedPartitions,
    params: FetchParams,
    partitions: Sequence[FetchPartition],
    all_topics: TopicStats,
    *,
    used_bytes: int = 0,
    piece_count: int = 0,
    find_preferred: FindPreferred | None = None,
    throttle: ReplicationThrottle | None = None,
) -> FetchResults:
    """Reads the partitions now; returns the result of each, in order.

    Args:
        hosted: The partitions here.
        params: The fetch as a whole.
        partitions: Those to read.
        all_topics: Counts fetches of partitions that are not here.
        used_bytes: Bytes that partitions before these have in the same answer.
        piece_count: Pieces of files that they have.
        find_preferred: Finds the follower that the consumer should read from instead.
        throttle: Holds back the records of followers.
    """
    results: FetchResults = []
    budget = params.max_bytes - used_bytes if piece_count < MAX_PIECES else 0
    is_soft_limit = not params.is_hard_limit
    min_one_message = is_soft_limit and not piece_count
    isolation, only_leader = params.isolation, params.only_from_leader
    stranger_count = 0  # Partitions that a broker fetches which has no replica of them.
    for wanted in partitions:
        stats = all_topics
        try:
            partition = hosted.find_wanted(wanted)
            stats = partition.stats
            result = None
            if find_preferred is not None and partition.is_leader:
                result = _redirection(partition, wanted, find_preferred)
            if result is None:
                result = partition.read(
                    wanted.fetch_offset,
                    max(0, min(wanted.max_bytes, budget)),
                    isolation,
                    current_leader_epoch=wanted.current_leader_epoch,
                    last_fetched_epoch=wanted.last_fetched_epoch,
                    only_leader=only_leader,
                    min_one_message=min_one_message,
                    allows_part_of_batch=not is_soft_limit,
                )
        except ApiError as error:
            result = FetchResult(error.code)
        except StorageError:
            result = FetchResult(ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception:  # One partition never fails its neighbours.
            logger.exception("%s: read at offset %d failed", wanted.tp, wanted.fetch_offset)
            stats.count_failed_fetch()
            result = FetchResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            if params.replica_id >= 0:
                stranger_count += _hold_back(result, partition, params.replica_id, throttle)
            if result.records is not None:
                budget -= result.records.length
                min_one_message = False
                piece_count += 1
                if piece_count == MAX_PIECES:
                    budget = 0
        stats.count_fetch()
        results.append((wanted, result))
    if stranger_count:
        _tell_of_stranger(params.replica_id, stranger_count, partitions[0].tp)
    return results


def _hold_back(
    result: FetchResult,
    partition: Partition,
    replica_id: int,
    throttle: ReplicationThrottle | None,
) -> bool:
    """Takes the records from the result of a broker that may not have them now.

    Returns whether the broker has no replica of the partition at all.
    """
    is_stranger = replica_id not in partition.followers
    if is_stranger or (
        throttle is not None
        and throttle.holds_back(partition.tp, is_in_sync=replica_id in partition.isr)
    ):
        result.records = None
    return is_stranger


def _tell_of_stranger(broker_id: int, count: int, example: TopicPartition) -> None:
    logger.warning(
        "Broker %d fetches %d partitions, among them %s, whose replicas it does not have",
        broker_id,
        count,
        example,
    )


def _find_preferred(
    place: ClientPlace,
    rack_of: Callable[[int, str], str | None],
    partition: Partition,
    fetch_offset: int,
) -> int:
    """Where a consumer should read a partition that is led here."""
    return select_replica(
        place.rack,
        fetch_offset,
        leader_id=partition.local_id,
        followers=partition.followers.values(),
        isr=partition.isr,
        rack_of=lambda broker_id: rack_of(broker_id, place.listener),
    )


def _redirection(
    partition: Partition, wanted: FetchPartition, find_preferred: FindPreferred
) -> FetchResult | None:
    """The answer that sends a consumer to a follower: watermarks of the leader, and no records.

    None if the leader is to be read.

    Raises:
        ApiError: By the epoch.
    """
    preferred = find_preferred(partition, wanted.fetch_offset)
    if preferred == NO_REPLICA:
        return None
    watermarks = partition.log_for(wanted.current_leader_epoch, only_leader=False).watermarks
    return FetchResult(
        _NONE,
        watermarks.high_watermark.message_offset,
        watermarks.last_stable_offset,
        watermarks.log_start_offset,
        preferred_read_replica=preferred,
    )


def _is_at_end(params: FetchParams, results: FetchResults) -> bool:
    """Whether all fetch offsets of a fetch that was just read are at the readable ends.

    The usual case, a consumer that has read everything: it need not be checked again before it is
    parked.
    """
    if params.isolation is not FetchIsolation.HIGH_WATERMARK or params.min_bytes <= 0:
        return False
    for _, result in results:
        place = result.offset_metadata
        if place is None or place.message_offset != result.high_watermark:
            return False
    return True
