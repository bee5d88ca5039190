"""A fetcher: the task that asks one leader for the records of its partitions.

Duties towards `partition_states` and `session`, in this order, for ever:

1. end the delays that are over;
2. reconcile the partitions that are TRUNCATING. A leader of Fetch 12 compares epochs in every
   fetch, so the partition fetches from its log end with the epoch of its last record; an older
   leader is asked with OffsetForLeaderEpoch. A log that knows no epoch is cut at its high
   watermark;
3. build a request, without the partitions that are held back (`replication.throttles`); wait if
   there is nothing to fetch, until a partition is added or a delay ends;
4. send it and wait. No answer: every partition is delayed, and the session begins anew;
5. apply the answer, partition by partition; after each wait compare again what it was asked for.

The turn that brings a small answer takes steps 5, 1, 3 and 4 at once, without the task: a producer
may wait for the next request, which tells the leader that the record is here. Whatever has to wait
is left to the task.

An error delays its partition, or fails it; the others go on:

| answer                                      | consequence                                       |
|---------------------------------------------|---------------------------------------------------|
| records                                     | append, continue behind them                      |
| records that are refused (`local_replica`)  | delay: the next attempt may bring sound ones      |
| a diverging epoch                           | cut the log, continue there                       |
| OFFSET_OUT_OF_RANGE                         | ask where the leader's log ends and starts; reset |
| FENCED_LEADER_EPOCH                         | fail, if the epoch is still ours                  |
| UNKNOWN_LEADER_EPOCH, NOT_LEADER..., others | delay                                             |
| the local disk fails, or a mistake of ours  | fail                                              |

Work on a log runs on storage threads; its partition is busy until then, and the fetcher goes on
with the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from odradek.clock import Clock
from odradek.errors import ApiError, ErrorCode, LogDataError, OdradekError, StorageError
from odradek.model import TopicPartition
from odradek.replication.following.leader_endpoint import (
    EpochAnswer,
    EpochQuestion,
    FetchAnswer,
    FetchQuestion,
    LeaderEndpoint,
    PartitionAnswer,
)
from odradek.replication.following.local_replica import (
    Applied,
    SetStartsBelowLog,
    apply_answer,
    latest_epoch,
    own_epoch_end,
)
from odradek.replication.following.local_work import LocalWork
from odradek.replication.following.partition_states import (
    FollowedPartition,
    FollowedPartitions,
    ReplicaState,
)
from odradek.replication.following.reconciliation import decide_reset, decide_truncation
from odradek.replication.following.session import MOST_NEW_PARTITIONS, FollowerSession
from odradek.replication.following.stats import FetcherStats
from odradek.replication.partition import Partition
from odradek.replication.throttles import ReplicationThrottle
from odradek.storage.log.log import Log
from odradek.storage.log.services import Steps
from odradek.tasks import Tasks

__all__ = ["ReplicaFetcher"]

logger = logging.getLogger(__name__)

# Bytes that are appended before other tasks of the loop run: half a millisecond's work.
_BYTES_PER_TURN: Final = 1 << 20
# Partitions of an answer that are looked at before other tasks run; each takes some 10 us.
_PARTITIONS_PER_TURN: Final = MOST_NEW_PARTITIONS

# Work on an answer that has to wait.
_Rest: TypeAlias = Callable[[], Awaitable[None]]


class ReplicaFetcher:
    """One fetcher of one leader.

    Args:
        name: For the log.
        endpoint: The leader; closed when the fetcher stops.
        find: The hosted partition, if it is online.
        work: Runs work on logs.
        failed: The partitions that failed, shared with other fetchers.
        clock: For delays.
        tasks: Lets other tasks run.
        backoff_ms: replica.fetch.backoff.ms.
        stats: Of this fetcher.
        on_moved: Called with a partition whose high watermark moved.
        throttle: Of all fetchers; None: nothing is held back.
    """

    def __init__(
        self,
        name: str,
        endpoint: LeaderEndpoint,
        *,
        find: Callable[[TopicPartition], Partition | None],
        work: LocalWork,
        failed: set[TopicPartition],
        clock: Clock,
        tasks: Tasks,
        backoff_ms: int,
        stats: FetcherStats,
        on_moved: Callable[[TopicPartition], None],
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self.name = name
        self.partitions = FollowedPartitions(failed)
        self.session = FollowerSession()
        self.stats = stats
        self.is_running = False
        self._endpoint = endpoint
        self._find = find
        self._work = work
        self._clock = clock
        self._tasks = tasks
        self._backoff_ms = backoff_ms
        self._on_moved = on_moved
        self._throttle = throttle
        self.is_stopped = False
        self._has_news = asyncio.Event()
        # While requests are under way: what the task has to do once no turn can go on alone.
        self._left: asyncio.Future[_Rest | None] | None = None

    # The task

    async def run(self) -> None:
        """Fetches until it is stopped."""
        self.is_running = True
        try:
            while not self.is_stopped:
                await self._do_work_or_pause()
        finally:
            self.is_running = False

    async def _do_work_or_pause(self) -> None:
        try:
            await self.do_work()
        except OdradekError as error:
            if not self.is_stopped:
                logger.warning("%s: the leader cannot be asked: %s", self.name, error)
                await self._give_up_request()
        except Exception:  # The top of the loop: other partitions go on.
            logger.exception("%s: unexpected error", self.name)
            await self._give_up_request()

    def stop(self) -> None:
        """Ends the task; its answer under way is not used."""
        self.is_stopped = True
        self._endpoint.close()
        self._has_news.set()

    def wake(self) -> None:
        """Lets the fetcher look again: partitions were added."""
        self._has_news.set()

    async def do_work(self) -> None:
        """One round: reconcile, fetch, append."""
        partitions = self.partitions
        partitions.wake(self._clock.monotonic_ms())
        self._has_news.clear()
        if not any(one.is_free for one in partitions):
            await self._wait()
            return
        await self._endpoint.connect()
        await self._reconcile()
        question = self._build()
        if question is None:
            await self._wait()
            return
        self._left = left = asyncio.get_running_loop().create_future()
        self._ask(question)
        rest = await left
        if rest is not None and not self.is_stopped:
            await rest()

    # Rounds in the turns of their answers

    def _ask(self, question: FetchQuestion) -> None:
        self._endpoint.ask(question, lambda answer: self._on_answer(question, answer))

    def _on_answer(self, question: FetchQuestion, answer: FetchAnswer | Exception) -> None:
        """Applies an answer and asks the next question, or leaves the rest to the task."""
        left = self._left
        if left is None or left.done():  # The task has ended.
            return
        try:
            if isinstance(answer, Exception):
                raise answer
            self.stats.requests.mark()
            rest = None if self.is_stopped else self._take_now(question, answer)
            if rest is None and self.is_running and not self.is_stopped:
                following = self._next_question()
                if following is not None:
                    self._ask(following)
                    return
        except Exception as error:  # noqa: BLE001 - raised again by the task
            left.set_exception(error)
            return
        left.set_result(rest)

    def _next_question(self) -> FetchQuestion | None:
        """The next request, if nothing has to be waited for before it."""
        partitions = self.partitions
        partitions.wake(self._clock.monotonic_ms())
        return None if partitions.truncating() else self._build()

    def _build(self) -> FetchQuestion | None:
        partitions = self.partitions
        return self.session.build(
            partitions,
            uses_topic_ids=partitions.uses_topic_ids and self._endpoint.knows_topic_ids,
            is_held_back=self._held_back(),
        )

    def _take_now(self, question: FetchQuestion, answer: FetchAnswer) -> _Rest | None:
        """Applies an answer that is small; returns what the task has to do with it."""
        found = answer.partitions
        if answer.error is not ErrorCode.NONE:
            return partial(self._take_error, question, answer.error)
        reason = self.session.accept(question, answer)
        if reason is not None:
            logger.error("%s: %s", self.name, reason)
            return self._pause
        if len(found) > _PARTITIONS_PER_TURN or sum([len(one.records) for one in found]) > (
            _BYTES_PER_TURN
        ):
            return partial(self._apply, answer)
        delayed: list[TopicPartition] = []
        out_of_range: list[FollowedPartition] = []
        for fetched in found:
            self._apply_one(fetched, delayed, out_of_range)
        self._delay(delayed)
        return partial(self._reset_all, out_of_range) if out_of_range else None

    def _held_back(self) -> Callable[[FollowedPartition], bool] | None:
        """Tells whether a partition is to be left out of a request; None: none is."""
        throttle = self._throttle
        if throttle is None or not throttle.is_limited:
            return None
        return lambda one: throttle.holds_back(one.tp, is_in_sync=one.is_in_sync)

    async def _take_error(self, question: FetchQuestion, error: ErrorCode) -> None:
        logger.info("%s: fetch session refused: %s", self.name, error.name)
        self.session.fail(error)
        if question.session_epoch == 0:  # A full request would be refused again at once.
            await self._pause()

    async def _give_up_request(self) -> None:
        """Delays everything; the next round waits for the first delay to end."""
        self.session.fail(None)
        self._delay([one.tp for one in self.partitions])

    async def _wait(self) -> None:
        """Waits for partitions, or for the end of a delay, one back-off at most."""
        due_ms = self.partitions.next_wake_ms()
        timeout_ms = self._backoff_ms
        if due_ms is not None:
            timeout_ms = min(timeout_ms, due_ms - self._clock.monotonic_ms())
        await self._pause(max(1, timeout_ms))

    async def _pause(self, timeout_ms: int | None = None) -> None:
        """Waits until the fetcher is woken, one back-off at most."""
        if self.is_stopped:
            return
        delay_s = (self._backoff_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            async with asyncio.timeout(delay_s):
                await self._has_news.wait()
        except TimeoutError:
            pass

    def _delay(self, partitions: list[TopicPartition]) -> None:
        self.partitions.delay(
            partitions, now_ms=self._clock.monotonic_ms(), backoff_ms=self._backoff_ms
        )

    # Reconciling

    async def _reconcile(self) -> None:
        questions: dict[TopicPartition, EpochQuestion] = {}
        asked: dict[TopicPartition, FollowedPartition] = {}
        for one in self.partitions.truncating():
            log = self._log_of(one)
            if log is None:
                self.partitions.fail(one.tp)
                continue
            epoch = latest_epoch(log)
            if epoch < 0:
                self._truncate(one, log, min(one.fetch_offset, log.log_end_offset), True)
            elif self._endpoint.finds_divergence:
                self._continue_at_end(one, log)
            else:
                questions[one.tp] = EpochQuestion(one.leader_epoch, epoch)
                asked[one.tp] = one
        if questions:
            self._apply_epochs(asked, questions, await self._endpoint.epoch_ends(questions))

    def _apply_epochs(
        self,
        asked: Mapping[TopicPartition, FollowedPartition],
        questions: Mapping[TopicPartition, EpochQuestion],
        answers: Mapping[TopicPartition, EpochAnswer],
    ) -> None:
        delayed: list[TopicPartition] = []
        for tp, question in questions.items():
            one = self.partitions.get(tp)
            # A role since then began another epoch, and with it another state (KAFKA-7786).
            if one is None or one is not asked[tp] or not one.is_truncating:
                continue
            answer = answers.get(tp)
            if answer is None:
                delayed.append(tp)
            elif answer.error is ErrorCode.NONE:
                self._cut(one, answer.epoch, answer.end_offset)
            elif answer.error is ErrorCode.FENCED_LEADER_EPOCH:
                if self.partitions.handle_fenced(tp, question.current_leader_epoch):
                    delayed.append(tp)
            else:
                logger.info("%s: %s: %s", self.name, tp, answer.error.name)
                delayed.append(tp)
        self._delay(delayed)

    def _cut(self, one: FollowedPartition, leader_epoch: int, leader_end: int) -> None:
        """Cuts the local log where the leader's answer says that it diverged."""
        log = self._log_of(one)
        if log is None:
            self.partitions.fail(one.tp)
            return
        own_epoch, own_end = own_epoch_end(log, leader_epoch)
        cut = decide_truncation(
            leader_epoch=leader_epoch,
            leader_end=leader_end,
            own_epoch=own_epoch,
            own_epoch_end=own_end,
            log_end=log.log_end_offset,
            fetch_offset=one.fetch_offset,
        )
        self._truncate(one, log, cut.offset, cut.is_complete)

    def _truncate(self, one: FollowedPartition, log: Log, offset: int, is_complete: bool) -> None:
        if offset < log.high_watermark:
            logger.warning(
                "%s: %s is truncated to offset %d, below its high watermark %d",
                self.name, one.tp, offset, log.high_watermark,
            )  # fmt: skip
        is_agreed = is_complete or self._endpoint.finds_divergence
        state = ReplicaState.FETCHING if is_agreed else ReplicaState.TRUNCATING
        self._begin(one, log, log.truncate_steps(offset), state)

    def _continue_at_end(self, one: FollowedPartition, log: Log) -> None:
        self.partitions.end_work(
            one,
            fetch_offset=log.log_end_offset,
            last_epoch=latest_epoch(log),
            log_start_offset=log.log_start_offset,
            state=ReplicaState.FETCHING,
        )

    def _begin(
        self,
        one: FollowedPartition,
        log: Log,
        steps: "Steps[bool] | Steps[None]",
        state: ReplicaState,
        *,
        lag: int | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Begins work on a log; the partition continues at its end afterwards.

        Args:
            after: Called when the work succeeded, if the partition is followed still; it continues
                the partition itself.
        """

        def done(error: Exception | None) -> None:
            if error is not None:
                self._fail(one, error)
                one.is_busy = False
            elif after is not None and self.partitions.get(one.tp) is one:
                after()
            else:
                self.partitions.end_work(
                    one,
                    fetch_offset=log.log_end_offset,
                    last_epoch=latest_epoch(log),
                    log_start_offset=log.log_start_offset,
                    state=state,
                    lag=lag,
                )
            self.wake()

        self.partitions.begin_work(one)
        self._work.begin(one.tp, steps, done)

    def _fail(self, one: FollowedPartition, error: Exception) -> None:
        if self.partitions.get(one.tp) is not one:
            return
        if isinstance(error, StorageError | ApiError):
            logger.error("%s: %s fails until its next role: %s", self.name, one.tp, error)
        else:
            logger.error("%s: %s fails until its next role", self.name, one.tp, exc_info=error)
        self.partitions.fail(one.tp)

    def _log_of(self, one: FollowedPartition) -> Log | None:
        """The log of a partition that is hosted, and follows in the epoch of its state."""
        partition = self._find(one.tp)
        if (
            partition is None
            or partition.is_leader
            or partition.leader_epoch != one.leader_epoch
            or one.tp in self._work
        ):
            return None
        return partition.log

    # Answers

    async def _apply(self, answer: FetchAnswer) -> None:
        """Applies an answer that is large, and lets other tasks run meanwhile."""
        delayed: list[TopicPartition] = []
        out_of_range: list[FollowedPartition] = []
        turn_bytes = 0
        for number, fetched in enumerate(answer.partitions, 1):
            self._apply_one(fetched, delayed, out_of_range)
            turn_bytes += len(fetched.records)
            if turn_bytes > _BYTES_PER_TURN or number % _PARTITIONS_PER_TURN == 0:
                turn_bytes = 0
                await self._tasks.sleep(0)
                if self.is_stopped:
                    return
        self._delay(delayed)
        await self._reset_all(out_of_range)

    def _apply_one(
        self,
        fetched: PartitionAnswer,
        delayed: list[TopicPartition],
        out_of_range: list[FollowedPartition],
    ) -> None:
        """Applies the answer of one partition, if it still counts."""
        asked = self.session.asked(fetched.key)
        if asked is None:
            return
        tp, wish = asked
        one = self.partitions.get(tp)
        if one is None or not self.partitions.is_expected(
            tp, asked_offset=wish.fetch_offset, asked_epoch=wish.leader_epoch
        ):
            return
        error = fetched.error
        if error is ErrorCode.NONE:
            if not self._apply_records(one, fetched):
                delayed.append(tp)
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            out_of_range.append(one)
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            if self.partitions.handle_fenced(tp, wish.leader_epoch):
                delayed.append(tp)
        else:
            logger.info("%s: %s at %d: %s", self.name, tp, wish.fetch_offset, error.name)
            delayed.append(tp)

    def _apply_records(self, one: FollowedPartition, fetched: PartitionAnswer) -> bool:
        """Applies the answer of one partition; returns False if it is to be delayed."""
        partition = self._find(one.tp)
        try:
            if partition is None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{one.tp} is not online")
            if fetched.diverging_epoch is not None:
                self._cut(one, *fetched.diverging_epoch)
                return True
            applied = apply_answer(
                partition, fetched, fetch_offset=one.fetch_offset, leader_epoch=one.leader_epoch
            )
        except SetStartsBelowLog as start:
            assert partition is not None
            self._begin_below(one, partition, fetched, start.first_offset)
            return True
        except StorageError as error:
            self._fail(one, error)
            return True
        except ApiError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR and partition is None:
                self._fail(one, error)
                return True
            logger.warning("%s: %s: records refused: %s", self.name, one.tp, error)
            return False
        except LogDataError as error:
            logger.warning("%s: %s: records refused: %s", self.name, one.tp, error)
            return False
        except Exception as error:  # noqa: BLE001 - one partition never stops the others
            self._fail(one, error)
            return True
        return self._note_applied(one, fetched, applied)

    def _note_applied(
        self, one: FollowedPartition, fetched: PartitionAnswer, applied: Applied
    ) -> bool:
        if applied.is_watermark_moved:
            self._on_moved(one.tp)
        self.partitions.advance(
            one,
            next_offset=applied.next_offset,
            last_epoch=applied.last_epoch,
            log_start_offset=applied.log_start_offset,
            leader_high_watermark=fetched.high_watermark,
        )
        self.stats.count_bytes(applied.appended_bytes, self._is_being_added(one.tp))
        if self._throttle is not None:
            self._throttle.count(one.tp, len(fetched.records))
        if fetched.records and not applied.appended_bytes:
            logger.warning(
                "%s: %s: no batch of %d bytes was appended: they are of a later leader epoch than"
                " %d", self.name, one.tp, len(fetched.records), one.leader_epoch,
            )  # fmt: skip
            return False
        return True

    def _is_being_added(self, tp: TopicPartition) -> bool:
        partition = self._find(tp)
        return partition is not None and partition.is_being_added_here

    def _begin_below(
        self,
        one: FollowedPartition,
        partition: Partition,
        fetched: PartitionAnswer,
        first_offset: int,
    ) -> None:
        """Begins the empty log anew at the first offset of a batch, and appends the batch."""
        log = partition.log
        assert log is not None

        def append() -> None:
            one.is_busy = False
            one.fetch_offset = first_offset
            if not self._apply_records(one, fetched):
                self._delay([one.tp])

        steps = log.restart_steps(first_offset)
        self._begin(one, log, steps, ReplicaState.FETCHING, after=append)

    async def _reset_all(self, out_of_range: list[FollowedPartition]) -> None:
        for one in out_of_range:
            await self._reset(one)

    async def _reset(self, one: FollowedPartition) -> None:
        """Continues a partition whose offset the leader does not have."""
        if self.partitions.get(one.tp) is not one:
            return
        epoch = one.leader_epoch
        end = await self._endpoint.log_end(one.tp, epoch)
        error, leader_start = end.error, None
        log = self._log_of(one)
        if error is ErrorCode.NONE and log is not None and end.offset >= log.log_end_offset:
            start = await self._endpoint.log_start(one.tp, epoch)
            error, leader_start = start.error, start.offset
        log = self._log_of(one)
        if self.partitions.get(one.tp) is not one or not one.is_ready_for_fetch or log is None:
            return
        if error is not ErrorCode.NONE:
            logger.info("%s: %s out of range, %s", self.name, one.tp, error.name)
            is_fenced = error is ErrorCode.FENCED_LEADER_EPOCH
            if not is_fenced or self.partitions.handle_fenced(one.tp, epoch):
                self._delay([one.tp])
            return
        reset = decide_reset(
            log_end=log.log_end_offset, leader_end=end.offset, leader_start=leader_start
        )
        if reset is None:  # The local log was cut meanwhile.
            self._delay([one.tp])
            return
        logger.warning(
            "%s: %s: offset %d is out of range, the leader has %s to %d: continues at %d",
            self.name, one.tp, one.fetch_offset, leader_start, end.offset, reset.offset,
        )  # fmt: skip
        steps: Steps[bool] | Steps[None] = (
            log.restart_steps(reset.offset)
            if reset.is_restart
            else log.truncate_steps(reset.offset)
        )
        self._begin(one, log, steps, ReplicaState.FETCHING, lag=reset.lag)
