"""The consumer of `odradek.aio`: reads topics as a member of a group, or partitions by hand.

Its parts work in tasks of their own (`ConsumerParts`). The application gets records, callbacks and
errors in its own calls alone.
"""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

import asyncio
import inspect
import logging
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from odradek.client.assignors import Assignor
from odradek.client.cluster import PartitionView
from odradek.client.config import read_settings
from odradek.client.consumer.commits import CommitCallback, ConsumerGroupMetadata, OffsetAndMetadata
from odradek.client.consumer.config import CONSUMER_DEFINITION
from odradek.client.consumer.errors import (
    ConcurrentModificationError,
    InvalidGroupError,
    WakeupError,
)
from odradek.client.consumer.group_commits import GroupCommits
from odradek.client.consumer.partition_state import NO_EPOCH, AssignedPartition
from odradek.client.consumer.parts import ConsumerParts
from odradek.client.consumer.reading import Reading
from odradek.client.consumer.record_hooks import (
    ConsumerInterceptor,
    DeserializedRecord,
    RecordHooks,
)
from odradek.client.consumer.subscription import RebalanceListener
from odradek.client.errors import CallTimeoutError, ClosedError
from odradek.client.offsets import EARLIEST, LATEST, FoundOffset, find_offsets
from odradek.client.retry import Deadline
from odradek.client.surroundings import ClientSurroundings
from odradek.errors import ApiError
from odradek.model import TopicPartition
from odradek.records.codec import ConsumerRecord

__all__ = ["Consumer", "ConsumerInterceptor", "DeserializedRecord"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
Partition = TopicPartition | tuple[str, int]

# How often a waiting poll notes that the application still polls.
_POLL_SLICE_MS: Final = 1_000
# How long `close` takes at most, if it is given no timeout.
_CLOSE_TIMEOUT_S: Final = 30.0


class Consumer(Reading):
    """Reads records. An async context manager; see `docs/clients/consumer.md`.

    Args:
        config: Kafka's property names, e.g. ``{"group.id": "g"}``; or give keywords with
            underscores, ``group_id="g"``.
        assignors: Strategies in place of those that `partition.assignment.strategy` names.
        key_deserializer: Called with every key that is not None; likewise for values. Records are
            `DeserializedRecord`s then.
        interceptors: See `ConsumerInterceptor`.
        ssl_context: In place of the `ssl.*` settings.
        surroundings: Time, randomness and connections; without it, those of this process.

    Raises:
        ConfigError: A setting is unknown or cannot be used.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        assignors: Sequence[Assignor] = (),
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        ssl_context: ssl.SSLContext | None = None,
        surroundings: ClientSurroundings | None = None,
        **keywords: object,
    ) -> None:
        parts = ConsumerParts(
            read_settings(CONSUMER_DEFINITION, config, keywords),
            assignors=assignors,
            interceptors=interceptors,
            ssl_context=ssl_context,
            surroundings=surroundings or ClientSurroundings.system(),
            call_back=self._call_back,
        )
        self._parts = parts
        self._config = parts.config
        self._client = parts.client
        self._subscription = parts.subscription
        self._partitions = parts.partitions
        self._metrics = parts.metrics
        self._wake = parts.wake
        self._fetcher = parts.fetcher
        self._group = parts.group
        self._commits = parts.commits
        self._position_task = parts.position_task
        self._hooks = RecordHooks(key_deserializer, value_deserializer, tuple(interceptors))
        # Runs callbacks of the application; the blocking face replaces it.
        self.invoke: Callable[..., Any] = _invoke_here
        # Has the loop call `send_fetches`; the blocking face replaces it, too.
        self.request_fetches: Callable[[], None] = self._fetcher.send_fetches
        self._is_woken = False
        self._is_polling = False
        # While it closes, the listener is called and may still commit.
        self._is_closing = False
        self._is_closed = False

    async def start(self) -> None:
        """Begins, on the running loop. Connects when there is something to read."""
        self._parts.start()

    async def connect(self, timeout: float | None = None) -> None:
        """Connects to a broker now. Optional: a wrong address is an error at once.

        Raises:
            ApiError: No broker of `bootstrap.servers` answers; each was tried once.
        """
        self._check_open()
        await self._client.connect(timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Commits if that is automatic, leaves the group and ends, within the time in any case.

        A second call does nothing.

        Args:
            timeout: Seconds; 30 if not given. 0 sends no request.
        """
        if self._is_closing:
            return
        self._is_closing = True
        deadline = self._client.deadline_after(_CLOSE_TIMEOUT_S if timeout is None else timeout)
        failure: Exception | None = None
        try:
            if self._commits is not None and deadline.left_ms():
                await self._commits.commit_quietly(deadline)
                await self._commits.committer.finish(deadline)
            if self._group is not None:
                async with asyncio.timeout(deadline.left_ms() / 1000):
                    await self._group.leave(deadline, reason="the consumer was closed")
        except TimeoutError:
            logger.info("The group was not left in time")
        except Exception as error:  # noqa: BLE001 - raised below, when everything has ended
            failure = error
        finally:
            self._is_closed = True
            await self._parts.stop()
        if failure is not None:
            raise failure

    # Subscriptions

    async def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads topics, given by name, or all that a compiled pattern matches as a whole.

        Replaces an earlier subscription. The next polls assign the partitions.

        Raises:
            ValueError: Partitions are assigned by hand.
            InvalidGroupError: There is no group.id.
        """
        self._check_open()
        if self._group is None:
            raise InvalidGroupError("subscribe")
        if isinstance(topics, re.Pattern):
            self._subscription.subscribe_pattern(topics, listener)
        else:
            names = {topics} if isinstance(topics, str) else set(topics)
            if not names:
                await self.unsubscribe()
                return
            self._subscription.subscribe(names, listener)
        self._group.note_poll()
        self._group.request_join("the subscription changed")
        self._position_task.request_metadata()

    async def unsubscribe(self) -> None:
        """Reads nothing; leaves the group."""
        self._check_open()
        if self._group is not None and self._subscription.is_automatic:
            if self._commits is not None:
                await self._commits.commit_quietly(self._client.deadline())
            await self._group.leave(self._client.deadline(), reason="unsubscribed")
        self._subscription.clear()
        self._partitions.assign(())
        self._fetcher.send_fetches()

    async def assign(self, partitions: Iterable[Partition]) -> None:
        """Reads these partitions, without a group. An empty list: as `unsubscribe`.

        Raises:
            ValueError: Topics are subscribed to.
        """
        self._check_open()
        wanted = [TopicPartition(*tp) for tp in partitions]
        if self._commits is not None:
            await self._commits.commit_quietly(self._client.deadline())
        self._subscription.assign(wanted)
        self._partitions.assign(wanted)
        self._position_task.request_metadata()
        self._fetcher.send_fetches()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern, those it matched last."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return self._partitions.names()

    # Reading

    async def poll(
        self, timeout: float | None = 1.0, *, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Records, at most `max.poll.records`; none if none arrived in time.

        Rebalances, listeners and callbacks of commits run within this call: call it often.

        Args:
            timeout: How long to wait for the first record, in seconds.
            max_records: The most to return, if fewer than `max.poll.records`.

        Raises:
            WakeupError: `wakeup` was called.
            OffsetsError: A partition has no position, and `auto.offset.reset` is none.
            FencedInstanceIdError: Another consumer has the same `group.instance.id`.
            ApiError: A partition cannot be read, or the group cannot be joined.
        """
        return await self._poll(timeout, lambda: self.take_nowait(max_records), [])

    async def _poll(self, timeout: float | None, take: Callable[[], T], nothing: T) -> T:
        self._check_open()
        if not self._partitions and not self._subscription.is_automatic:
            raise ValueError("nothing to read: call subscribe or assign first")
        if self._is_polling:
            raise ConcurrentModificationError("another task is polling this consumer")
        deadline = self._client.deadline_after(timeout)
        self._is_polling = True
        try:
            while True:
                self._wake.clear()
                await self._do_duties(deadline)
                taken = take()
                if taken:
                    return taken
                self._raise_failure()
                left_ms = deadline.left_ms()
                if not left_ms:
                    # A poll without a wait must let the loop turn, or no answer is ever received.
                    await asyncio.sleep(0)
                    return nothing
                await self._wait(min(left_ms, _POLL_SLICE_MS))
        finally:
            self._is_polling = False

    async def _do_duties(self, deadline: Deadline) -> None:
        """Does the work of every poll besides reading."""
        if self._is_woken:
            self._is_woken = False
            raise WakeupError
        if self._commits is not None:
            await self._commits.committer.run_callbacks()
            self._commits.maybe_commit()
        if self._group is not None and self._subscription.is_automatic:
            self._group.note_poll()
            if self._group.needs_advance:
                await self._group.advance(deadline)

    @property
    def has_duties(self) -> bool:
        """Whether a poll has to do more than return records. From any thread."""
        return (
            self._is_closed
            or self._is_woken
            or (self._commits is not None and self._commits.has_duties)
            or (
                self._group is not None
                and self._subscription.is_automatic
                and self._group.needs_advance
            )
        )

    def take_nowait(self, max_records: int | None = None) -> list[ConsumerRecord]:
        """Buffered records.

        For the blocking face, from its own thread, while no other call is under way.
        """
        records, wants_more = self._take_records(max_records)
        if wants_more:
            self.request_fetches()
        self._metrics.on_poll(self._now_ms(), len(records))
        if self._group is not None:
            self._group.note_poll()
        return records if not records or self._hooks.is_plain else self._hooks.apply(records)

    @property
    def has_records(self) -> bool:
        """Whether records are buffered. From any thread."""
        return self._fetcher.has_records

    def send_fetches(self) -> None:
        """Requests as many records as the buffer has room for. Only on the loop."""
        self._fetcher.send_fetches()

    def _take_records(self, most: int | None) -> tuple[list[ConsumerRecord], bool]:
        limit = self._config.max_poll_records
        try:
            return self._fetcher.take(limit if most is None else min(most, limit))
        except ApiError:
            self.request_fetches()
            raise

    async def _wait(self, timeout_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._wake.wait()

    def _raise_failure(self) -> None:
        self._fetcher.raise_failure()
        self._position_task.raise_failure()

    def wakeup(self) -> None:
        """Makes the waiting poll, or the next one, raise `WakeupError`. Only on the loop."""
        self._is_woken = True
        self._wake.set()

    # Positions

    async def seek(
        self, partition: Partition, offset: int, *, leader_epoch: int | None = None
    ) -> None:
        """Continues at an offset.

        Raises:
            ValueError: The partition is not assigned, or the offset negative.
        """
        self._check_open()
        if offset < 0:
            raise ValueError(f"offset {offset}: expected 0 or more")
        self._state(partition).seek(offset, NO_EPOCH if leader_epoch is None else leader_epoch)
        self._on_positions_changed()

    async def seek_to_beginning(self, partitions: Iterable[Partition] = ()) -> None:
        """Continues at the first record in the log; in all partitions if none is named."""
        self._reset(partitions, EARLIEST)

    async def seek_to_end(self, partitions: Iterable[Partition] = ()) -> None:
        """Continues at the end of the log; in all partitions if none is named."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Iterable[Partition], timestamp: int) -> None:
        self._check_open()
        states = [self._state(tp) for tp in partitions] or list(self._partitions)
        for state in states:
            state.reset(timestamp)
        self._on_positions_changed()

    async def position(self, partition: Partition, timeout: float | None = None) -> int:
        """Offset of the next record that `poll` returns; looked up if it is not known yet.

        Raises:
            ValueError: The partition is not assigned.
            CallTimeoutError: It could not be found in time.
            OffsetsError: Nothing is committed, and `auto.offset.reset` is none.
        """
        self._check_open()
        state = self._state(partition)
        deadline = self._client.deadline_after(timeout)
        while state.position is None:
            self._wake.clear()
            self._raise_failure()
            if not deadline.left_ms():
                raise CallTimeoutError(
                    f"position of {state.tp}: not found within {deadline.timeout_ms} ms"
                )
            self._position_task.request()
            await self._wait(min(deadline.left_ms(), 50))
        return state.position

    async def pause(self, partitions: Iterable[Partition]) -> None:
        """Returns no records of these partitions until `resume`; they stay assigned."""
        self._check_open()
        for state in [self._state(tp) for tp in partitions]:
            if not state.is_paused:
                state.is_paused = True
                state.version += 1
        self._fetcher.send_fetches()

    async def resume(self, partitions: Iterable[Partition]) -> None:
        """Returns records of these partitions again."""
        self._check_open()
        for state in [self._state(tp) for tp in partitions]:
            state.is_paused = False
        self._fetcher.send_fetches()

    def paused(self) -> frozenset[TopicPartition]:
        """Partitions that are paused."""
        return frozenset(state.tp for state in self._partitions if state.is_paused)

    def lag(self, partition: Partition) -> int | None:
        """Records behind the end, as of the last fetch; None before it."""
        state = self._state(partition)
        return state.lag(is_read_committed=self._config.is_read_committed)

    async def offsets_for_times(
        self, timestamps: Mapping[Partition, int], timeout: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record at or after a time (ms) by partition; None if none is that late."""
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise ValueError("a timestamp is negative: expected milliseconds since 1970")
        found = await self._list_offsets(timestamps, timeout)
        return {tp: None if one.offset < 0 else one for tp, one in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset in the log, by partition."""
        found = await self._list_offsets(dict.fromkeys(partitions, EARLIEST), timeout)
        return {tp: one.offset for tp, one in found.items()}

    async def end_offsets(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the next record to come; under read_committed, the last stable one."""
        found = await self._list_offsets(dict.fromkeys(partitions, LATEST), timeout)
        return {tp: one.offset for tp, one in found.items()}

    async def _list_offsets(
        self, timestamps: Mapping[Any, int], timeout: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        self._check_open()
        return await find_offsets(
            self._client,
            {TopicPartition(*tp): timestamp for tp, timestamp in timestamps.items()},
            self._client.deadline_after(timeout),
            isolation_level=self._config.isolation,
        )

    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> tuple[PartitionView, ...]:
        """The partitions of a topic, as the cluster describes them."""
        self._check_open()
        deadline = self._client.deadline_after(timeout)
        return (await self._client.topic(topic, deadline=deadline)).partitions

    async def topics(self, timeout: float | None = None) -> list[str]:
        """The names of all topics that this client may see."""
        self._check_open()
        return sorted(await self._client.topics(None, self._client.deadline_after(timeout)))

    # Commits

    async def commit_sync(
        self,
        offsets: Mapping[Partition, OffsetAndMetadata | int] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commits offsets and waits for the answer; tries again after retriable errors.

        Args:
            offsets: Of the next record to read, by partition; without it the positions of all
                assigned partitions.
            timeout: Seconds; `default.api.timeout.ms` if not given.

        Raises:
            CommitFailedError: This member is no longer in its group.
            RebalanceInProgressError: The group is rebalancing: poll, then commit.
            CallTimeoutError: The time is over.
            ApiError: The offsets were refused.
        """
        commits = self._need_commits("commit_sync")
        await commits.committer.run_callbacks()
        await commits.committer.commit(
            commits.to_commit(offsets), self._client.deadline_after(timeout)
        )

    async def commit_async(
        self,
        offsets: Mapping[Partition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Sends a commit and does not wait; it is tried once.

        Args:
            callback: Called with the offsets and None or the error, from a later call of poll,
                commit or close; in the order of the commits. Without it an error is logged.
        """
        commits = self._need_commits("commit_async")
        await commits.committer.run_callbacks()
        commits.committer.commit_nowait(commits.to_commit(offsets), callback)
        await asyncio.sleep(0)  # The request is sent now.

    async def committed(
        self, partitions: Iterable[Partition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offsets that the group has committed; None where there is none."""
        commits = self._need_commits("committed")
        wanted = [TopicPartition(*tp) for tp in partitions]
        return await commits.committed(wanted, self._client.deadline_after(timeout))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group and this member of it, for `Producer.send_offsets`; raises as `commit_sync`."""
        return self._need_commits("group_metadata").metadata()

    def _need_commits(self, what: str) -> GroupCommits:
        self._check_open()
        if self._commits is None:
            raise InvalidGroupError(what)
        return self._commits

    # Metrics and internals

    def metrics(self) -> dict[str, float]:
        """Figures under the names of Kafka's consumer metrics."""
        lags = {
            str(state.tp): float(lag)
            for state in self._partitions
            if (lag := self.lag(state.tp)) is not None
        }
        replicas = {str(state.tp): state.preferred_replica for state in self._partitions}
        return self._metrics.snapshot(lags=lags, replicas=replicas)

    def join_failure(self) -> ApiError | None:
        """Why the last attempt to join the group failed; None if it did not, or is under way."""
        return None if self._group is None else self._group.join_failure

    async def enforce_rebalance(self) -> None:
        """Has the group rebalance at the next poll."""
        self._need_commits("enforce_rebalance")
        assert self._group is not None, "it has commits"
        self._group.request_join("the application asked for it")

    def _state(self, partition: Partition) -> AssignedPartition:
        tp = TopicPartition(*partition)
        state = self._partitions.get(tp)
        if state is None:
            raise ValueError(f"{tp} is not assigned to this consumer")
        return state

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("consumer")

    def _now_ms(self) -> int:
        return self._client.clock.monotonic_ms()

    async def _call_back(self, callback: Callable[..., object], *args: object) -> None:
        await self.invoke(callback, *args)

    def _on_positions_changed(self) -> None:
        self._position_task.request()
        self._fetcher.send_fetches()


async def _invoke_here(callback: Callable[..., object], *args: object) -> None:
    result = callback(*args)
    if inspect.isawaitable(result):
        await result
