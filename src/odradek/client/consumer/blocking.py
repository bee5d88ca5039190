"""`odradek.Consumer`: reads records, for plain scripts.

The core lives on a loop in a thread of its own, which fetches, joins and sends heartbeats while the
application works. Two things are special to a consumer:

1. `poll` takes buffered records on the caller's thread, without the other thread, when nothing else
   is to be done: a change of threads costs as much as decoding a hundred records.
2. Listeners and callbacks run on the caller's thread, from within its call. The core passes them to
   that thread, `_call` runs them while it waits, and they may call the consumer in turn.
"""

import asyncio
import queue
import re
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from odradek.client.assignors import Assignor
from odradek.client.blocking import Blocking, blocking
from odradek.client.consumer import consumer as awaited
from odradek.client.consumer.commits import ConsumerGroupMetadata
from odradek.client.consumer.errors import ConcurrentModificationError
from odradek.client.consumer.reading import PartitionColumns
from odradek.client.consumer.subscription import RebalanceListener
from odradek.errors import ApiError
from odradek.model import TopicPartition
from odradek.records.codec import ConsumerRecord

__all__ = ["Consumer"]

R = TypeVar("R")


class Consumer(Blocking[awaited.Consumer]):
    """Reads records as a member of a group, or partitions by hand.

    ::

        config = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
        with Consumer(config, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer.poll(timeout=1.0):
                print(record.topic, record.partition, record.offset, record.value)
            consumer.commit_sync()

    For one thread at a time; `wakeup` may be called from any. Listeners and callbacks run on the
    thread that calls `poll`, `commit_sync`, `commit_async` or `close`.

    Args: As `odradek.aio.Consumer`.

    Raises:
        ConfigError: A setting is unknown or cannot be used.
    """

    _what = "consumer"

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        assignors: Sequence[Assignor] = (),
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        interceptors: Sequence[awaited.ConsumerInterceptor] = (),
        ssl_context: ssl.SSLContext | None = None,
        **keywords: object,
    ) -> None:
        core = awaited.Consumer(
            config,
            assignors=assignors,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            ssl_context=ssl_context,
            surroundings=None,
            **keywords,
        )
        core.invoke = self._invoke
        # Held by the thread that calls; reentrant, because callbacks call in turn.
        self._owner = threading.RLock()
        # Callbacks for calls that wait, the innermost call last.
        self._waiting: list[queue.SimpleQueue[Callable[[], None] | None]] = []
        super().__init__(core)
        core.request_fetches = self._request_fetches

    def poll(
        self, timeout: float | None = 1.0, *, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """See `odradek.aio.Consumer.poll`."""
        self._check_usable()
        core = self._core
        with self._owned():
            if not core.has_duties and core.has_records:
                records = core.take_nowait(max_records)
                if records:
                    return records
            return self._call(core.poll(timeout, max_records=max_records))

    def __iter__(self) -> Self:
        """Iterates over records, without end; see `odradek.aio.Consumer.__aiter__`."""
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; waits for it. Raises as `poll`."""
        while not (records := self.poll(max_records=1)):
            pass
        return records[0]

    def poll_columns(
        self, timeout: float | None = 1.0, *, max_bytes: int = 8 << 20
    ) -> list[PartitionColumns]:
        """See `odradek.aio.Consumer.poll_columns`."""
        self._check_usable()
        return self._call(self._core.poll_columns(timeout, max_bytes=max_bytes))

    def poll_arrow(
        self, timeout: float | None = 1.0, *, max_bytes: int = 8 << 20, headers: bool = False
    ) -> list[Any]:
        """See `odradek.aio.Consumer.poll_arrow`."""
        self._check_usable()
        core = self._core
        with self._owned():
            if not core.has_duties and core.has_records:
                batches = core.take_arrow_nowait(max_bytes=max_bytes, headers=headers)
                if batches:
                    return batches
            return self._call(core.poll_arrow(timeout, max_bytes=max_bytes, headers=headers))

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """See `odradek.aio.Consumer.subscribe`."""
        self._call(self._core.subscribe(topics, listener=listener))

    connect = blocking(awaited.Consumer.connect)
    unsubscribe = blocking(awaited.Consumer.unsubscribe)
    assign = blocking(awaited.Consumer.assign)
    seek = blocking(awaited.Consumer.seek)
    seek_to_beginning = blocking(awaited.Consumer.seek_to_beginning)
    seek_to_end = blocking(awaited.Consumer.seek_to_end)
    position = blocking(awaited.Consumer.position)
    pause = blocking(awaited.Consumer.pause)
    resume = blocking(awaited.Consumer.resume)
    offsets_for_times = blocking(awaited.Consumer.offsets_for_times)
    beginning_offsets = blocking(awaited.Consumer.beginning_offsets)
    end_offsets = blocking(awaited.Consumer.end_offsets)
    partitions_for = blocking(awaited.Consumer.partitions_for)
    topics = blocking(awaited.Consumer.topics)
    commit_sync = blocking(awaited.Consumer.commit_sync)
    commit_async = blocking(awaited.Consumer.commit_async)
    committed = blocking(awaited.Consumer.committed)
    enforce_rebalance = blocking(awaited.Consumer.enforce_rebalance)

    def subscription(self) -> frozenset[str]:
        """See `odradek.aio.Consumer.subscription`."""
        return self._core.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """See `odradek.aio.Consumer.assignment`."""
        return self._core.assignment()

    def join_failure(self) -> ApiError | None:
        """See `odradek.aio.Consumer.join_failure`."""
        return self._core.join_failure()

    def paused(self) -> frozenset[TopicPartition]:
        """See `odradek.aio.Consumer.paused`."""
        return self._core.paused()

    def lag(self, partition: awaited.Partition) -> int | None:
        """See `odradek.aio.Consumer.lag`."""
        return self._core.lag(partition)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """See `odradek.aio.Consumer.group_metadata`."""
        self._check_usable()
        return self._core.group_metadata()

    def metrics(self) -> dict[str, float]:
        """See `odradek.aio.Consumer.metrics`."""
        return self._core.metrics()

    def wakeup(self) -> None:
        """See `odradek.aio.Consumer.wakeup`. From any thread."""
        self._check_usable()
        self._thread.loop.call_soon_threadsafe(self._core.wakeup)

    def close(self, timeout: float | None = None) -> None:
        """See `odradek.aio.Consumer.close`.

        Raises:
            ConcurrentModificationError: Another thread is using it; it stays open.
        """
        if self._fork_guard.is_child:
            return
        with self._owned():
            super().close(timeout)

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Lets one thread at a time in."""
        if not self._owner.acquire(blocking=False):
            raise ConcurrentModificationError(
                "another thread is using this consumer; only wakeup may be called meanwhile"
            )
        try:
            yield
        finally:
            self._owner.release()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            with self._owned():
                return self._wait_for(work)
        except ConcurrentModificationError:
            work.close()
            raise

    def _wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine of the core and, while it waits, callbacks on this thread."""
        jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting.append(jobs)
        future = asyncio.run_coroutine_threadsafe(work, self._thread.loop)
        future.add_done_callback(lambda _done: jobs.put(None))
        try:
            while (job := jobs.get()) is not None:
                job()
            return future.result()
        except BaseException:
            # Ctrl-C while waiting: the result is no longer wanted.
            future.cancel()
            raise
        finally:
            self._waiting.remove(jobs)

    async def _invoke(self, callback: Callable[..., object], *args: object) -> None:
        """On the loop: has the waiting thread run a callback, and waits for its end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def run() -> None:
            failure: BaseException | None = None
            try:
                callback(*args)
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                failure = error
            loop.call_soon_threadsafe(_settle, done, failure)

        self._waiting[-1].put(run)
        await done

    def _request_fetches(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._core.send_fetches)


def _settle(done: "asyncio.Future[None]", failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
