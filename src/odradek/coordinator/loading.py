"""Loading and unloading of a coordinator's state, by the leadership of an internal topic.

Each partition of the topic stores the state of some keys. Its leader coordinates them::

    (nothing) ── lead(e) ──► loading(e) ──► active(e)
                              │     ▲
                              ▼     │ after 1 s, 2 s, … 60 s
                             failed(e)
    any of these ── lead(f) or resign(f), f > e ──► unloaded, then loading(f), or nothing

Rules, each against a way in which acknowledged state was lost:

1. Leadership changes carry the partition's leader epoch. One that is not newer than the last one
   of its partition is dropped; a newer one ends a load that is under way.
2. A load is installed in one step, as a whole, and only while its epoch is the current one.
3. A load that fails, because the log cannot be read, leaves the partition *failed*: no client is
   served from a half-read partition; otherwise consumers would find no committed offsets. It is
   tried again while this broker leads.
4. A record or batch that was read and cannot be parsed will not be parsable at the next attempt
   either. It is skipped, logged with its offset and counted: one such record must not prevent all
   groups of its partition from being served.

Duties towards the state that is loaded (`Replay`), in order: `replay` and `replay_marker` for every
batch from the log's start to its end, in the order of the log; the steps of `prepare`, with the
loop running in between; `install`, once; the steps of `settle`, with the loop running in between.
`unload` is called once on state that was installed, when this broker stops leading.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, Protocol

from odradek.clock import PreciseClock
from odradek.errors import ApiError, CorruptRecordError, DecodeError, ErrorCode, LogDataError
from odradek.metadata.delta import LocalDelta
from odradek.records.batch import BatchHeader, is_crc_valid, parse_header
from odradek.records.control import parse_end_transaction_marker
from odradek.records.record import read_records
from odradek.tasks import Tasks

__all__ = ["LoadPhase", "LoadStats", "PartitionLog", "Replay", "StateLoader"]

logger = logging.getLogger(__name__)

_FIRST_RETRY_MS: Final = 1_000
_LAST_RETRY_MS: Final = 60_000
_LONG_LOAD_MS: Final = 1_000  # A load that takes this long gets a line.
_SLICE_NS: Final = 1_000_000  # How long a load runs before other tasks of the loop do.
_MAX_READ_BYTES: Final = 1 << 20  # The page cache delivers it within a fraction of a slice.
_RECORDS_PER_STEP: Final = 64  # Between two readings of the clock.
# Unreadable records that a load logs one by one; of the others it logs the number.
_MAX_SKIPS_LOGGED: Final = 10
# The errors of malformed bytes; errors of the disk are not among them.
_UNREADABLE: Final = (ValueError, ApiError, DecodeError, LogDataError)


class PartitionLog(Protocol):
    """Reads the partitions of an internal topic."""

    def start_offset(self, partition: int) -> int:
        """The log's start.

        Raises:
            ApiError: There is no log here.
        """
        ...

    def end_offset(self, partition: int, leader_epoch: int) -> int:
        """The log's end; -1 unless this broker leads in that epoch."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Batches from the one with the offset on, up to the log's end; at least one.

        Raises:
            ApiError: There is no log here, or no such offset.
            StorageError: The disk failed.
        """
        ...


class Replay(Protocol):
    """The state of one partition, built from its log."""

    def replay(
        self, key: bytes | None, value: bytes | None, offset: int, header: BatchHeader
    ) -> None:
        """Applies a record.

        Raises:
            ValueError: It cannot be parsed; the loader skips and logs it.
        """
        ...

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Applies the end of a transaction."""
        ...

    def prepare(self) -> Iterable[object]:
        """Does the work before the state can be served, in small steps."""
        ...

    def install(self) -> None:
        """Begins to serve the state."""
        ...

    def settle(self) -> Iterable[object]:
        """Does the work after the state is served, in small steps."""
        ...

    def unload(self) -> None:
        """Stops serving the state: another broker may serve it."""
        ...


class LoadStats(Protocol):
    """Counts and times the loads."""

    def on_loaded(self, partition: int, elapsed_ms: int) -> None: ...

    def on_load_failed(self, partition: int) -> None: ...

    def on_skipped(self, partition: int, count: int) -> None:
        """Counts records or batches that a load skipped because they cannot be read."""
        ...


class LoadPhase(Enum):
    """The progress of the state of a led partition."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


class _Led:
    """A partition that this broker leads."""

    __slots__ = ("epoch", "phase", "state")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.phase = LoadPhase.LOADING
        self.state: Replay | None = None  # Installed.


class _Skips:
    """The records and batches that a load skips because they cannot be parsed."""

    __slots__ = ("_name", "count")

    def __init__(self, topic: str, partition: int) -> None:
        self._name = f"{topic}-{partition}"
        self.count = 0

    def add(self, what: str, offset: int, error: Exception) -> None:
        self.count += 1
        if self.count <= _MAX_SKIPS_LOGGED:
            logger.error(
                "%s: the %s at offset %d cannot be read and is skipped: %s",
                self._name, what, offset, error,
            )  # fmt: skip

    def conclude(self) -> None:
        if self.count > _MAX_SKIPS_LOGGED:
            logger.error(
                "%s: %d records or batches cannot be read and were skipped, the first %d of them"
                " are logged above", self._name, self.count, _MAX_SKIPS_LOGGED,
            )  # fmt: skip


class StateLoader:
    """The partitions of one internal topic that this broker leads.

    Args:
        topic: Its name.
        log: Reads the partitions.
        begin: Makes the empty state of a partition and leader epoch.
        clock: Measures slices and loads.
        tasks: Runs the loads.
        read_bytes: The bytes read at a time.
        stats: Counts and times the loads.
    """

    def __init__(
        self,
        topic: str,
        log: PartitionLog,
        *,
        begin: Callable[[int, int], Replay],
        clock: PreciseClock,
        tasks: Tasks,
        read_bytes: int = _MAX_READ_BYTES,
        stats: LoadStats | None = None,
    ) -> None:
        self._topic = topic
        self._source = log
        self._begin = begin
        self._clock = clock
        self._tasks = tasks
        self._read_bytes = min(read_bytes, _MAX_READ_BYTES)
        self._stats = stats
        self._is_stopped = False
        self._led: dict[int, _Led] = {}
        # The last epoch obeyed, of every partition this broker ever had a role in.
        self._epochs: dict[int, int] = {}

    # Asking

    def phase(self, partition: int) -> LoadPhase | None:
        """The progress of the partition's state; None if it is not led here."""
        led = self._led.get(partition)
        return None if led is None else led.phase

    def check_active(self, partition: int) -> ErrorCode:
        """NONE, or the error why the keys of the partition are not served here."""
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        led = self._led.get(partition)
        if led is None or led.phase is LoadPhase.FAILED:
            return ErrorCode.NOT_COORDINATOR
        if led.phase is LoadPhase.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def check_all_active(self) -> ErrorCode:
        """NONE, or the error why the keys of a partition led here are not served now."""
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.is_loading else ErrorCode.NONE

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which a partition is led here; -1 if it is not."""
        led = self._led.get(partition)
        return -1 if led is None else led.epoch

    @property
    def is_loading(self) -> bool:
        return any(led.phase is LoadPhase.LOADING for led in self._led.values())

    # Leadership

    def follow_leadership(self, delta: LocalDelta, broker_id: int) -> None:
        """Applies role changes: loads partitions that this broker now leads, unloads others."""
        for hosted in delta.hosted:
            state = hosted.state
            if state.topic != self._topic:
                continue
            if hosted.is_new:
                self.resign(state.partition, None)
            if state.leader == broker_id:
                self.lead(state.partition, state.leader_epoch)
            else:
                self.resign(state.partition, state.leader_epoch)
        for stopped in delta.stopped:
            if stopped.tp.topic == self._topic:
                is_gone = stopped.deletes_log or stopped.leader_epoch < 0
                self.resign(stopped.tp.partition, None if is_gone else stopped.leader_epoch)

    def stop(self) -> None:
        """Stops serving; loads under way end. Nothing is unloaded."""
        self._is_stopped = True
        self._led.clear()

    def lead(self, partition: int, leader_epoch: int) -> bool:
        """Starts to load a partition that this broker leads; returns whether the epoch is new."""
        if not self._obey(partition, leader_epoch):
            return False
        led = self._led[partition] = _Led(leader_epoch)
        self._tasks.spawn(self._load(partition, led))
        return True

    def resign(self, partition: int, leader_epoch: int | None) -> bool:
        """Unloads a partition that this broker no longer leads; returns whether the epoch is new.

        Args:
            leader_epoch: None if the replica is removed, whatever its epoch.
        """
        if leader_epoch is None:
            # A topic that is created again begins with epoch 0.
            self._epochs.pop(partition, None)
            self._unload(partition)
            return True
        return self._obey(partition, leader_epoch)

    def _obey(self, partition: int, leader_epoch: int) -> bool:
        if leader_epoch <= self._epochs.get(partition, -1):
            return False
        self._epochs[partition] = leader_epoch
        self._unload(partition)
        return True

    def _unload(self, partition: int) -> None:
        led = self._led.pop(partition, None)
        if led is None:
            return
        logger.info(
            "%s-%d: unloading the state of epoch %d (%s)",
            self._topic, partition, led.epoch, led.phase.value,
        )  # fmt: skip
        if led.state is not None:
            led.state.unload()

    # Loading

    async def _load(self, partition: int, led: _Led) -> None:
        retry_ms = _FIRST_RETRY_MS
        while self._led.get(partition) is led:
            started_ms = self._clock.monotonic_ms()
            try:
                state = await self._read(partition, led)
                if state is None:
                    return
            except Exception as error:  # noqa: BLE001 - top of a task: logged, and tried again
                if self._led.get(partition) is not led:
                    return
                led.phase = LoadPhase.FAILED
                if self._stats is not None:
                    self._stats.on_load_failed(partition)
                logger.error(  # noqa: TRY400 - tried again: one line each time, the error in it
                    "%s-%d: loading in epoch %d failed, nothing of it is served; trying again in"
                    " %d ms: %r", self._topic, partition, led.epoch, retry_ms, error,
                )  # fmt: skip
                await self._tasks.sleep(retry_ms / 1000)
                retry_ms = min(2 * retry_ms, _LAST_RETRY_MS)
                continue
            led.state = state
            led.phase = LoadPhase.ACTIVE
            state.install()
            elapsed_ms = self._clock.monotonic_ms() - started_ms
            if self._stats is not None:
                self._stats.on_loaded(partition, elapsed_ms)
            logger.log(
                logging.INFO if elapsed_ms >= _LONG_LOAD_MS else logging.DEBUG,
                "%s-%d: loaded in epoch %d within %d ms",
                self._topic, partition, led.epoch, elapsed_ms,
            )  # fmt: skip
            await self._run_steps(state.settle(), partition, led)
            return

    async def _read(self, partition: int, led: _Led) -> Replay | None:
        """Replays the log; None if this broker lost the lead meanwhile."""
        source = self._source
        state = self._begin(partition, led.epoch)
        offset = source.start_offset(partition)
        skips = _Skips(self._topic, partition)
        slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        while offset < (end := source.end_offset(partition, led.epoch)):
            data = source.read(partition, offset, self._read_bytes)
            if len(data) > self._read_bytes:
                logger.warning(
                    "%s-%d: a batch at offset %d has %d bytes, offsets.load.buffer.size is %d; it"
                    " is read whole", self._topic, partition, offset, len(data), self._read_bytes,
                )  # fmt: skip
            position = 0
            while (header := parse_header(data, position)) is not None:
                if position + header.size > len(data):
                    break
                for _ in _replay_batch(state, data, position, header, offset, skips):
                    if self._clock.monotonic_ns() >= slice_end_ns:
                        await self._tasks.sleep(0)
                        if self._led.get(partition) is not led:
                            return None
                        slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
                position += header.size
                offset = header.next_offset
            if not data:
                break  # The tail was compacted away: the log's end is beyond its last batch.
            if position == 0:
                raise CorruptRecordError(
                    f"no whole batch at offset {offset}, expected to read up to {end}"
                )
        if end < 0 or not await self._run_steps(state.prepare(), partition, led):
            return None
        skips.conclude()
        if skips.count and self._stats is not None:
            self._stats.on_skipped(partition, skips.count)
        return state

    async def _run_steps(self, steps: Iterable[object], partition: int, led: _Led) -> bool:
        """Runs the steps with the loop in between; returns whether the partition is still led."""
        slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        for _ in steps:
            if self._clock.monotonic_ns() >= slice_end_ns:
                await self._tasks.sleep(0)
                if self._led.get(partition) is not led:
                    return False
                slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        return True


def _replay_batch(
    state: Replay,
    data: bytes,
    position: int,
    header: BatchHeader,
    first_offset: int,
    skips: _Skips,
) -> Iterator[None]:
    """Applies a batch in steps; its records before `first_offset` are deleted and skipped."""
    if header.magic >= 2 and not is_crc_valid(data, position, header.size):
        skips.add("batch", header.base_offset, CorruptRecordError("its checksum is wrong"))
        yield
        return
    try:
        if header.is_control:
            marker = parse_end_transaction_marker(data, position=position, header=header)
            if marker is not None:
                state.replay_marker(header.producer_id, is_commit=marker.is_commit)
            yield
            return
        for count, record in enumerate(read_records(data, position=position, header=header)):
            if count % _RECORDS_PER_STEP == 0:
                yield
            if record.offset < first_offset:
                continue
            try:
                state.replay(record.key, record.value, record.offset, header)
            except _UNREADABLE as error:
                skips.add("record", record.offset, error)
    except _UNREADABLE as error:
        skips.add("batch", header.base_offset, error)
    yield
