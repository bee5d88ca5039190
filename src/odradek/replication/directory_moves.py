"""Moves of replicas between the data directories of this broker (AlterReplicaLogDirs).

A move copies the log of a partition into a future log in the other directory, follows it there, and
replaces it when both end at the same offset (`storage.directories.future_logs`). Meanwhile the
current log serves as if there were no move. Duties of a round, in this order; after every wait the
partition, both logs and their ends are looked up again:

1. a truncation of the current log is repeated on the copy;
2. while a role is taken or the current log is cut, wait;
3. the copy begins where the current log starts, at the batch that contains that offset;
4. records are read on a thread and appended a few at a time, within one leader epoch, whose entry
   is durable first. Where the current log has a gap at its end, the copy gets the same (KAFKA-8002
   had copies that never ended because they compared positions: only offsets count here);
5. high watermark and log start follow;
6. the copy has caught up: it is prepared for the replacement (`prepare_steps`, and a flush), which
   takes a while, so it goes on with 1;
7. prepared, and only some batches behind: these are copied, and the current log replaced, in one
   turn of the loop. So no record can be appended in between, and no role can change (KAFKA-9750).

A failure of the directory of the copy ends the move, and the current log stays. A move that a stop
or a crash interrupts goes on when its partition has a role again: first the copy is cut where its
leader epochs part from those of the current log; that of a compacted log begins anew, because
compaction of the current log goes on while the directory of the copy is offline.

Some moves run at the same time (`num.replica.alter.log.dirs.threads`), others wait for their turn.
All of them share `replica.alter.log.dirs.io.max.bytes.per.second`.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from odradek.errors import (
    ApiError,
    ErrorCode,
    OdradekError,
    StorageError,
    UnexpectedAppendOffsetError,
)
from odradek.model import TopicPartition
from odradek.records.batch import LOG_OVERHEAD
from odradek.replication.partition import Partition
from odradek.storage.cleaning.throttle import Throttle
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.services import BackgroundTasks, Steps, run_beside
from odradek.tasks import Tasks

__all__ = ["DirectoryMoves"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Bytes that are read at once, on a thread.
_READ_BYTES: Final = 1 << 20
# Bytes and batches that are appended in one turn of the loop: some half a millisecond.
_TURN_BYTES: Final = 256 << 10
_TURN_BATCHES: Final = 50
# The same before a replacement, which has to be in one turn.
_LAST_BATCHES: Final = 200
# How long a move waits for a role change or a truncation; both take some syncs.
_BUSY_MS: Final = 20

# How long a move waits, for its rate, before it looks at the rate again.
_THROTTLED_MS: Final = 500

_OFFSET_AND_LENGTH: Final = Struct(">qi")


class _Pair(NamedTuple):
    """A partition with both of its logs, as found at the beginning of a round."""

    partition: Partition
    current: Log
    future: Log


class DirectoryMoves:
    """The moves of one broker.

    Args:
        log_manager: The logs.
        find: The hosted partition, if it is online.
        find_or_raise: The same; raises the error to answer.
        is_at_work: Whether a partition's role is being taken, or its log cut.
        storage_tasks: Runs work that blocks.
        tasks: Runs the moves.
        throttle: Of all moves.
        moves_at_once: So many run at the same time.
        on_replaced: Called with a partition whose log is another one now.
        on_start_moved: Called with a partition whose copy has another log start.
    """

    def __init__(
        self,
        *,
        log_manager: LogManager,
        find: Callable[[TopicPartition], Partition | None],
        find_or_raise: Callable[[TopicPartition], Partition],
        is_at_work: Callable[[TopicPartition], bool],
        storage_tasks: BackgroundTasks,
        tasks: Tasks,
        throttle: Throttle,
        moves_at_once: int,
        on_replaced: Callable[[TopicPartition], None],
        on_start_moved: Callable[[TopicPartition], None],
    ) -> None:
        self.throttle = throttle
        self._logs = log_manager
        self._futures = log_manager.futures
        self._find = find
        self._find_or_raise = find_or_raise
        self._is_at_work = is_at_work
        self._storage_tasks = storage_tasks
        self._tasks = tasks
        self._on_replaced = on_replaced
        self._on_start_moved = on_start_moved
        self._moves_at_once = moves_at_once
        # Partitions whose moves run; each event is set when its move has ended.
        self._moving: dict[TopicPartition, asyncio.Event] = {}
        # Partitions whose moves ended without success, until metadata is published again.
        self._failed: set[TopicPartition] = set()
        self._altering = asyncio.Lock()  # One request changes future logs at a time.
        self._stopping = asyncio.Event()

    @property
    def moving(self) -> list[TopicPartition]:
        """Partitions whose moves run."""
        return list(self._moving)

    # Requests

    async def alter(self, tp: TopicPartition, path: str) -> ErrorCode:
        """Begins to move a partition to a data directory, or ends its move to another one.

        Returns REPLICA_NOT_AVAILABLE if this broker does not have the partition; the directory is
        remembered for the time when it gets it.
        """
        directory = self._logs.find_directory(path)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not directory.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        async with self._altering:
            try:
                await self._alter(tp, directory)
            except ApiError as error:
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # Its role is being taken.
                    return ErrorCode.REPLICA_NOT_AVAILABLE
                return error.code
            except StorageError as error:
                logger.warning("%s: not moved to %s: %s", tp, path, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
            except ValueError as error:
                logger.warning("%s", error)
                return ErrorCode.INVALID_TOPIC_EXCEPTION
        return ErrorCode.NONE

    async def _alter(self, tp: TopicPartition, directory: LogDirectory) -> None:
        try:
            partition = self._find_or_raise(tp)
            current = partition.log
            if current is None:
                raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{tp} has no log yet")
        except ApiError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                self._futures.wish(tp, directory)
            raise
        future = self._logs.get_future_log(tp)
        if future is not None and future.log_directory is not directory:
            await self._take(self._futures.drop_steps([tp]))
            future = None
        if (running := self._moving.get(tp)) is not None and future is None:
            await running.wait()  # It ends, or makes a replacement durable.
        current = self._find_or_raise(tp).log
        if current is None or current.log_directory is directory or future is not None:
            return
        if len(self._logs.online_directories) < len(self._logs.directories):
            # A future log of the partition may be there.
            raise StorageError(directory.path, "expected every data directory to be online")
        await self._take(self._futures.create_steps(current, directory, partition.topic_id))
        self._failed.discard(tp)
        self._begin()

    def resume(self) -> None:
        """Begins the moves of all partitions that have a role and a future log."""
        self._failed.clear()
        self._begin()

    def _begin(self) -> None:
        """Begins as many moves as may run at once."""
        if self._stopping.is_set():
            return
        for tp in self._futures.logs:
            if len(self._moving) >= self._moves_at_once:
                return
            if tp not in self._moving and tp not in self._failed and self._find(tp) is not None:
                self._moving[tp] = asyncio.Event()
                self._tasks.spawn(self._run(tp))

    async def let_others_run(self) -> None:
        """Lets other tasks of the loop run, between the partitions of a long request."""
        await self._tasks.sleep(0)

    async def stop(self) -> None:
        """Ends all moves; the next start resumes them."""
        self._stopping.set()
        while self._moving:
            await next(iter(self._moving.values())).wait()

    # A move

    async def _run(self, tp: TopicPartition) -> None:
        partition = self._find(tp)
        try:
            await self._move(tp)
        except OdradekError as error:
            logger.error("%s: its move between data directories ends: %s", tp, error)  # noqa: TRY400
        except Exception:  # The top of a task: other moves go on.
            logger.exception("%s: its move between data directories ends", tp)
        finally:
            if partition is not None:
                partition.future_log = None
            self._moving.pop(tp).set()
            if tp in self._futures.logs:
                self._failed.add(tp)
            self._begin()

    async def _move(self, tp: TopicPartition) -> None:
        is_compared = False
        while (pair := self._pair(tp)) is not None:
            if not is_compared:
                is_compared = await self._reconcile(pair)
            elif await self._round(pair):
                return

    def _pair(self, tp: TopicPartition) -> _Pair | None:
        """The logs of a move; None if it is over."""
        partition, future = self._find(tp), self._logs.get_future_log(tp)
        if partition is None or future is None or self._stopping.is_set():
            return None
        current = partition.log
        if current is None or not current.is_usable or not future.is_usable:
            return None
        partition.future_log = future
        return _Pair(partition, current, future)

    def _is_unchanged(self, pair: _Pair, end: int) -> bool:
        """Whether nothing but appends happened to the logs of a round while it waited."""
        tp, current = pair.partition.tp, pair.current
        return (
            self._pair(tp) == pair
            and pair.future.log_end_offset == end
            and not current.is_truncating
            and not self._futures.has_cut(tp)
        )

    async def _reconcile(self, pair: _Pair) -> bool:
        """Cuts the copy of an interrupted move where it parts from the log; returns if it agrees.

        As a follower does, by leader epochs: the largest one of the copy that the log has, too.
        These do not tell which records compaction removed from the log while the directory of the
        copy was offline: the copy of a compacted log begins anew.
        """
        current, future = pair.current, pair.future
        is_compacted = (
            current.config.cleanup_compact
            or self._logs.cleaner.first_dirty.get(current) is not None
        )
        if is_compacted and future.log_end_offset > future.log_start_offset:
            await self._take(future.restart_steps(current.log_start_offset))
            return True
        entries = future.leader_epochs.entries
        if not entries:  # Nothing tells whether its records are those of the log.
            await self._take(future.truncate_steps(min(future.log_end_offset, 0)))
            return True
        epoch, start = entries[-1]
        end = current.leader_epochs.end_offset_for(epoch, current.log_end_offset)
        is_known = end.epoch == epoch
        cut = end.end_offset if is_known else start
        await self._take(future.truncate_steps(cut))
        return is_known

    async def _round(self, pair: _Pair) -> bool:
        """One round; returns whether the move is over."""
        partition, current, future = pair
        tp, end = partition.tp, future.log_end_offset
        cut = self._futures.take_cut(tp)
        if cut is not None:
            await self._take(future.truncate_steps(cut))
            return False
        if self._is_at_work(tp) or current.is_truncating:
            await self._pause(_BUSY_MS)
            return False
        if end > current.log_end_offset:
            await self._take(future.truncate_steps(current.log_end_offset))
            return False
        if end == current.log_end_offset:
            return await self._maybe_replace(pair)
        start = max(end, current.log_start_offset)
        found = current.read(start, _READ_BYTES, FetchIsolation.LOG_END)
        if found.records is None or not found.records.length:
            await self._skip_gap(pair)
            return False
        data = await self._read(current, found.records.read)
        if not self._is_unchanged(pair, end) or not data:
            return False
        base = _OFFSET_AND_LENGTH.unpack_from(data)[0] if len(data) >= LOG_OVERHEAD else start
        if end < start and base != end:
            await self._take(future.restart_steps(min(base, start)))
        else:
            await self._append_all(pair, memoryview(data))
        if self._is_close(pair):
            return await self._maybe_replace(pair)
        return False

    async def _skip_gap(self, pair: _Pair) -> None:
        """Moves the end of the copy over offsets without records at the end of the log."""
        _, current, future = pair
        end = current.log_end_offset
        if future.log_end_offset < current.log_start_offset:
            await self._take(future.restart_steps(current.log_start_offset))
            return
        try:
            future.roll(end)
        except OSError as error:
            raise future.fail("roll", error) from error
        future.update_log_end_offset(end)

    async def _assign_epoch(self, pair: _Pair, offset: int) -> bool:
        """Makes the leader epoch of the next records durable; returns whether to go on."""
        current, future = pair.current.leader_epochs, pair.future.leader_epochs
        number = bisect_right(current.entries, offset, key=lambda entry: entry.start_offset)
        if not number or future.latest_epoch == current.entries[number - 1].epoch:
            return True
        entry, end = current.entries[number - 1], pair.future.log_end_offset
        if future.assign(entry.epoch, min(entry.start_offset, end), durable=False):
            await self._work(pair.future, future.flush)
        return self._is_unchanged(pair, end)

    async def _append_all(self, pair: _Pair, data: memoryview) -> None:
        """Appends what was read, some of it in each turn; each leader epoch is durable first."""
        position = 0
        while position + LOG_OVERHEAD <= len(data):
            base = _OFFSET_AND_LENGTH.unpack_from(data, position)[0]
            if not await self._assign_epoch(pair, max(base, pair.current.log_start_offset)):
                return
            size = self._append(pair, data[position:], _TURN_BATCHES)
            if not size:
                return
            position += size
            end = pair.future.log_end_offset
            await self._throttle(size)
            if not self._is_unchanged(pair, end):
                return

    def _append(self, pair: _Pair, data: memoryview, most_batches: int) -> int:
        """Appends some batches; returns their bytes, 0 if there is no whole one to append."""
        _, current, future = pair
        end = future.log_end_offset
        starts = (entry.start_offset for entry in current.leader_epochs.entries)
        next_epoch = next((start for start in starts if start > end), None)
        limit = min(_TURN_BYTES, future.config.segment_bytes)
        size = _whole_batches(data, limit, most_batches, below=next_epoch)
        if not size:
            return 0
        try:
            future.append_as_follower(data[:size])
        except UnexpectedAppendOffsetError as error:
            # The copy ends within a batch, after a truncation that kept the offset.
            self._futures.note_cut(current, error.first_offset)
            return 0
        self._follow_watermarks(pair)
        return size

    def _follow_watermarks(self, pair: _Pair) -> None:
        partition, current, future = pair
        future.update_high_watermark(current.high_watermark)
        start = min(current.log_start_offset, future.high_watermark)
        if future.maybe_increment_log_start_offset(start):
            self._on_start_moved(partition.tp)

    # Replacing

    def _is_close(self, pair: _Pair) -> bool:
        """Whether the copy may replace the log once the rest is copied, which is little."""
        tp, current, future = pair.partition.tp, pair.current, pair.future
        return (
            self._pair(tp) == pair
            and self._is_unchanged(pair, future.log_end_offset)
            and self._futures.is_prepared(tp)
            and future.log_end_offset >= current.log_start_offset
        )

    async def _maybe_replace(self, pair: _Pair) -> bool:
        """Replaces the current log, if the copy is prepared; returns whether it did."""
        partition, current, future = pair
        tp = partition.tp
        self._follow_watermarks(pair)
        if not self._futures.is_prepared(tp):
            await self._take(self._futures.prepare_steps(tp))
            await self._flush(future)
            return False
        if not self._copy_rest(pair) or self._is_at_work(tp) or current.pending_swap is not None:
            await self._pause(0 if future.log_end_offset < current.log_end_offset else _BUSY_MS)
            return False
        before, work = self._futures.replace(tp)
        partition.log = future
        partition.future_log = None
        partition.tell_watches()
        self._on_replaced(tp)
        await self._take(self._futures.finish_steps(before, future, work))
        return True

    def _copy_rest(self, pair: _Pair) -> bool:
        """Copies the last batches without a wait; returns whether the copy is complete."""
        _, current, future = pair
        end = future.log_end_offset
        if end < current.log_end_offset and end >= current.log_start_offset:
            rest = current.read(end, _TURN_BYTES, FetchIsolation.LOG_END).records
            if rest is not None and rest.is_recent:  # Else it may have to come from the disk.
                try:
                    data = rest.read()
                except OSError as error:
                    raise current.fail("read", error) from error
                self._append(pair, memoryview(data), _LAST_BATCHES)
        return future.log_end_offset == current.log_end_offset

    async def _flush(self, log: Log) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            if log.is_usable and log.flusher.schedule(
                log.log_end_offset, on_done=lambda _error: done.set_result(None)
            ):
                await done
        except OSError as error:
            raise log.fail("flush", error) from error

    # Waiting

    async def _take(self, steps: Steps[_T]) -> None:
        """Takes steps, those that block on threads."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(error: Exception | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        run_beside(self._storage_tasks, [_without_result(steps)], end, at_once=1)
        await done

    async def _work(self, log: Log, work: Callable[[], object]) -> None:
        """Runs work on the files of a log on a thread."""

        def steps() -> Steps[None]:
            try:
                yield work
            except OSError as error:
                if log.is_usable:
                    raise log.fail("copy", error) from error

        await self._take(steps())

    async def _read(self, log: Log, read: Callable[[], bytes]) -> bytes:
        found: list[bytes] = []
        await self._work(log, lambda: found.append(read()))
        return found[0] if found else b""

    async def _throttle(self, size: int) -> None:
        """Waits as long as the rate demands; a change of the rate counts soon."""
        left_ms = self.throttle.spend(size)
        await self._pause(min(left_ms, _THROTTLED_MS))
        while not self._stopping.is_set() and (left_ms := self.throttle.left_ms()) >= 1:
            await self._pause(min(left_ms, _THROTTLED_MS))

    async def _pause(self, delay_ms: float) -> None:
        """Lets other tasks run, and waits; not once the moves are to stop."""
        if delay_ms < 1:
            await self._tasks.sleep(0)
            return
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._stopping.wait()
        except TimeoutError:
            pass


def _whole_batches(data: memoryview, most_bytes: int, most_batches: int, below: int | None) -> int:
    """Bytes of the whole batches at the beginning, one at least, that start below an offset."""
    position = count = 0
    while count < most_batches and position + LOG_OVERHEAD <= len(data):
        base, length = _OFFSET_AND_LENGTH.unpack_from(data, position)
        end = position + LOG_OVERHEAD + length
        if length < 0 or end > len(data) or (count and end > most_bytes):
            break
        if count and below is not None and base >= below:
            break
        position, count = end, count + 1
    return position


def _without_result(steps: Steps[_T]) -> Steps[None]:
    yield from steps
