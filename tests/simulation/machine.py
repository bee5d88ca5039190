"""A machine with one broker on it: simulated time, disk and network, and what can go wrong."""

import asyncio
import errno
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Literal, TypeAlias

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.broker.surroundings import Surroundings
from odradek.client.surroundings import ClientSurroundings
from odradek.errors import CorruptRecordError
from odradek.metadata_store.engine import open_embedded
from odradek.model import TopicPartition
from odradek.network.page_cache import PageCache
from odradek.records.batch import iter_headers
from odradek.records.record import read_records
from odradek.replication.partition import Partition
from odradek.storage.directories import log_directory
from odradek.testing.disk import SimDisk
from odradek.testing.faults import SimulatedCrash
from odradek.testing.sim_network import SimNetwork
from odradek.testing.virtual_loop import (
    Process,
    SimExecutor,
    VirtualClock,
    VirtualLoop,
)
from tests.simulation.history import Violation

__all__ = ["BROKER", "CLIENT", "Ending", "Machine"]

# Of a process, or of a machine: see `Machine.kill`.
Ending: TypeAlias = Literal["kill", "drop", "torn"]

BROKER = "broker"
CLIENT = "client"
PORT = 9092
OFFSETS_PARTITIONS = 2

# baseOffset, batchLength, …, lastOffsetDelta at 23.
_BATCH = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_OVERHEAD = 12
_HEADER = 61


class WarmPages(PageCache):
    """Everything is in memory: what the kernel keeps is none of the seed's."""

    def read(self, fd: int, length: int, position: int) -> bytes | None:
        data = os.pread(fd, length, position)
        return data if len(data) == length else None

    def warm_bytes(self, fd: int, position: int, length: int) -> int:
        return length


class Machine:
    """See the module's docstring.

    Args:
        seed: Of everything that is drawn.
        root: An empty directory.
        trace: Gets a line for each thing that happens.

    Attributes:
        broker: The one that runs, once its start is over; None without.
        broken: What is wrong with the disk, for which an operator has to care.
    """

    def __init__(self, seed: int, root: str, trace: Callable[[str], None]) -> None:
        self._seed = seed
        self._root = root
        self._trace = trace
        self.random = Random(f"{seed} faults")
        longest_work_s = self.random.choice((0.004, 0.05, 0.4))  # How fast the disk syncs.
        self.loop = VirtualLoop(Random(f"{seed} threads"), longest_work_s)
        self.loop.endings = (*self.loop.endings, SimulatedCrash)
        self.network = SimNetwork(self.loop, Random(f"{seed} network"))
        self.clock = VirtualClock(self.loop)
        self.disk = SimDisk(root)
        self.broker: Broker | None = None
        self.lives = 0
        self._process: Process | None = None
        self._starting: Broker | None = None
        self._graves: list[object] = []
        self._mode: Ending = "kill"
        self._steps_left: int | None = None
        # Where each partition must reach at least when the broker is back.
        self.floors: dict[TopicPartition, int] = {}
        self.crashes = 0  # Of the machine.
        # Set while nothing runs.
        self.is_down = True
        self.is_stopping = False
        self.on_violation: Callable[[Violation], None] = lambda _violation: None
        self.on_restart: Callable[[], None] = lambda: None
        # Gets the records of each log in front of a power cut, and where the durable ones end.
        self.on_doubt: Callable[[TopicPartition, Mapping[int, bytes], int], None] = (
            lambda _tp, _records, _durable_end: None
        )
        self.on_machine_crash: Callable[[bool], None] = lambda _are_commits_durable: None
        settings = {
            "listeners": f"PLAINTEXT://{BROKER}:{PORT}",
            "log.dirs": os.path.join(root, "data"),
            "odradek.metrics.port": "-1",
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "group.initial.rebalance.delay.ms": "200",
            "group.min.session.timeout.ms": "1000",
            "log.segment.bytes": str(self.random.choice((600, 4_000, 1 << 20))),
            "log.index.size.max.bytes": "4096",
            "log.flush.interval.messages": str(self.random.choice((1, 7, 1 << 40))),
            "log.flush.offset.checkpoint.interval.ms": "2000",
            "replica.high.watermark.checkpoint.interval.ms": "1000",
            "log.flush.scheduler.interval.ms": "500",
            "log.flush.interval.ms": str(self.random.choice((500, 3_000, 1 << 40))),
            "log.cleaner.enable": "false",
            "log.retention.hours": "-1",
        }
        self._settings = load_broker_settings(None, settings, {})

    def client(self, name: str) -> ClientSurroundings:
        """The machine around a client."""
        return ClientSurroundings(
            clock=self.clock,
            random=Random(f"{self._seed} {name}"),
            streams=self.network.at(CLIENT),
        )

    @property
    def bootstrap(self) -> str:
        return f"{BROKER}:{PORT}"

    # The broker's lives

    def start(self) -> None:
        """Starts a broker on what the disk holds."""
        assert self.is_down, "one at a time"
        self.is_down = False
        self.lives += 1
        self._process = process = Process(f"broker-{self.lives}")
        around = Surroundings(
            clock=self.clock,
            random=Random(f"{self._seed} broker {self.lives}"),
            sleep=asyncio.sleep,
            threads=lambda *_: SimExecutor(),
            streams=self.network.at(BROKER),
            disk=self.disk,
            pages=WarmPages(),
            open_store=open_embedded,
        )
        self._trace(f"start broker {self.lives}")
        self.loop.run_in(process, self._begin, process, around)

    def _begin(self, process: Process, around: Surroundings) -> None:
        self._starting = broker = Broker(self._settings, around)
        self._stop = asyncio.Event()
        self._life = self.loop.create_task(self._live(broker, process), name=process.name)

    async def _live(self, broker: Broker, process: Process) -> None:
        try:
            await broker.start()
        except Exception as error:
            self._trace(f"broker {self.lives} does not start: {type(error).__name__}: {error}")
            self._give_up(process, broker)
            return
        self._trace(f"broker {self.lives} serves")
        assert broker.failed is not None
        self.on_restart()
        if not broker.failed.done():  # By the disk, which may fail during the start.
            self.guard(lambda: self._check_floors(broker))
            self.floors = {}
            self.broker = broker
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait((stop, broker.failed), return_when=asyncio.FIRST_COMPLETED)
        if broker.failed.done():
            self._trace(f"broker {self.lives} fails: {broker.failed.result()}")
        stop.cancel()
        self._note_floors()
        self.broker = None
        try:
            await broker.stop()
        except Exception as error:
            self._trace(f"broker {self.lives} stops badly: {type(error).__name__}: {error}")
        self._trace(f"broker {self.lives} has stopped")
        self._give_up(process, broker)

    def _give_up(self, process: Process, broker: Broker) -> None:
        """The process ends by itself."""
        self._graves.append(broker)
        self.broker = self._starting = None
        process.is_alive = False
        self.network.kill(process)
        self.disk.kill()
        self._close_descriptors()
        self.is_down = True
        self.is_stopping = False

    def stop(self) -> None:
        """Asks the broker to stop in order."""
        if self.broker is not None:
            self.is_stopping = True
            self._stop.set()

    def kill(self, mode: Ending) -> None:
        """Ends the broker at once.

        Args:
            mode: "kill" the process: all that was written stays. Or cut the machine's power: what
                was not synced is gone ("drop"), or gone in parts ("torn").
        """
        process = self._process
        if self.is_down or process is None:
            return
        self._trace(f"{mode} broker {self.lives}")
        self._steps_left = None
        broker = self.broker or self._starting
        if mode == "kill":
            self._note_floors()
            self.network.kill(process)
            self.loop.kill(process)
            self.disk.kill()
        else:
            try:
                are_commits_durable = self._note_durable_floors()
            except Violation as violation:
                self.on_violation(violation)
                return
            self.crashes += 1
            self.network.silence(process)
            self.loop.kill(process)
            self.disk.crash(self.random if mode == "torn" else None, mode=mode)
            self.on_machine_crash(are_commits_durable)
        self._graves.append(broker)
        self.broker = self._starting = None
        self._close_descriptors()
        self.is_down = True
        self.is_stopping = False

    def kill_within_a_write(self, mode: Ending, count: int, operation: str | None) -> None:
        """Ends the broker before one of its next operations on the disk, of a kind or of any."""
        self._mode = mode
        self.disk.crash_at(count, operation=operation)

    def kill_after_steps(self, mode: Ending, count: int) -> None:
        """Ends the broker when it has taken so many more steps."""
        self._mode = mode
        self._steps_left = count

    def look(self) -> None:
        """After each step: ends a broker whose disk has stopped within it, or whose time is up."""
        if self.disk.is_crashed:
            self.kill(self._mode)
        elif self._steps_left is not None and self.loop.last_process is self._process:
            self._steps_left -= 1
            if self._steps_left < 0:
                self.kill(self._mode)

    def _close_descriptors(self) -> None:
        """Closes what the process held and the disk does not know: locks, pieces of answers."""
        log_directory._held_by_this_process.clear()
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith(self._root + "/"):
                    os.close(int(name))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EBADF):
                    raise

    # What must be there afterwards

    def partitions(self, broker: Broker | None = None) -> dict[TopicPartition, Partition]:
        """Those that the broker leads, with their logs."""
        broker = broker or self.broker
        if broker is None:
            return {}
        hosted = broker._state.replication.replicas._hosted
        return {p.tp: p for p in hosted.online() if p.log is not None}

    def _note_floors(self) -> None:
        for tp, partition in self.partitions().items():
            assert partition.log is not None
            self.floors[tp] = partition.log.log_end_offset

    def _note_durable_floors(self) -> bool:
        """What of each log must outlive the power; whether all commits are durable."""
        are_commits_durable = True
        partitions = self.partitions()
        for tp in self._partitions_on_disk():
            durable_end = self.durable_end(tp)
            partition = partitions.get(tp)
            if partition is not None and partition.log is not None:
                point = partition.log.recovery_point
                if point > durable_end:
                    raise Violation(
                        f"{tp}: the recovery point is {point}, the disk holds {durable_end}"
                    )
            if tp.topic == "__consumer_offsets" and durable_end < self._written_end(tp):
                are_commits_durable = False
            self.floors[tp] = durable_end
            records = {} if tp.topic.startswith("__") else self.records(tp)
            self.on_doubt(tp, records, durable_end)
        return are_commits_durable

    def _partitions_on_disk(self) -> list[TopicPartition]:
        found = []
        data = os.path.join(self._root, "data")
        for name in sorted(os.listdir(data)) if os.path.isdir(data) else ():
            topic, dash, number = name.rpartition("-")
            if dash and number.isdigit():
                found.append(TopicPartition(topic, int(number)))
        return found

    def _directory(self, tp: TopicPartition) -> str:
        return os.path.join(self._root, "data", f"{tp.topic}-{tp.partition}")

    def _files(self, tp: TopicPartition) -> list[tuple[str, bytes]]:
        """Names and bytes of a log's files, as processes see them now."""
        path = self._directory(tp)
        found = []
        for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
            if name.endswith(".log"):
                with open(os.path.join(path, name), "rb") as file:
                    found.append((name, file.read()))
        return found

    def _written_end(self, tp: TopicPartition) -> int:
        return _end_of(self._files(tp))

    def durable_end(self, tp: TopicPartition) -> int:
        """The end of the batches from the start on that would outlive the power."""
        path = self._directory(tp)
        return _end_of(
            (name, self.disk.durable_bytes(os.path.join(path, name)) or b"")
            for name in self.disk.durable_names(path)
            if name.endswith(".log")
        )

    def records(self, tp: TopicPartition) -> dict[int, bytes]:
        """The records of a partition, as its files have them now."""
        found: dict[int, bytes] = {}
        for _, data in self._files(tp):
            try:
                for position, header in iter_headers(data):
                    for record in read_records(data, position=position, header=header):
                        found[record.offset] = bytes(record.value or b"").rstrip(b".")
            except CorruptRecordError:
                break
        return found

    def log_end(self, tp: TopicPartition) -> int:
        """Where a partition ends now; 0 if none is there."""
        partition = self.partitions().get(tp)
        return 0 if partition is None or partition.log is None else partition.log.log_end_offset

    def members(self) -> list[str]:
        """The members of all groups, as the broker knows them."""
        if self.broker is None:
            return []
        return [member for group in self.broker._state.groups._registry for member in group.members]

    def guard(self, check: Callable[[], None]) -> None:
        """Runs a check; a violation ends the simulation."""
        try:
            check()
        except Violation as violation:
            self.on_violation(violation)

    def _check_floors(self, broker: Broker) -> None:
        partitions = self.partitions(broker)
        for tp, floor in sorted(self.floors.items()):
            partition = partitions.get(tp)
            end = -1 if partition is None or partition.log is None else partition.log.log_end_offset
            if end < floor:
                raise Violation(f"{tp} ended at {floor} at least, and ends at {end} now")


def _end_of(files: Iterable[tuple[str, bytes]]) -> int:
    """The end of the batches from the start on, over the files of a log."""
    end = 0
    for name, data in files:
        if int(name[:-4]) == end:
            end = _walk(data, end)
    return end


def _walk(data: bytes, end: int) -> int:
    position = 0
    while position + _HEADER <= len(data):
        base, length = _BATCH.unpack_from(data, position)
        if base != end or position + _OVERHEAD + length > len(data) or length < _HEADER - _OVERHEAD:
            break
        end = base + _LAST_OFFSET_DELTA.unpack_from(data, position + 23)[0] + 1
        position += _OVERHEAD + length
    return end
