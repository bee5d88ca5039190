"""A data directory with a past, made from a seed, and what is true of it when its broker stops.

Two partitions: `plain-0` has plain, idempotent and transactional batches, several leader epochs and
segments, a raised log start, and segments that were removed below it; `keyed-0` has idempotent
producers, too, and is compacted now and then. What is true is told by the operations themselves and
by a parser of its own (`batches_in`), not by the code under test.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from crc32c import crc32c

from odradek.model import AppendOrigin, TopicPartition
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.cleaning.cleaner import LogCleaner
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from odradek.storage.log.services import LogServices
from odradek.testing import ManualClock
from tests.support.log_scenarios import records_of
from tests.support.logs import make_services, marker

__all__ = [
    "KEYED",
    "PLAIN",
    "Batch",
    "History",
    "Running",
    "Truth",
    "batches_in",
    "make_history",
    "read_checkpoint",
]

PLAIN: Final = TopicPartition("plain", 0)
KEYED: Final = TopicPartition("keyed", 0)

_CONFIGS: Final = {
    "plain": LogConfig(index_interval_bytes=300, segment_index_bytes=480),
    "keyed": LogConfig(
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=1_000,
        file_delete_delay_ms=500,
        index_interval_bytes=300,
        segment_index_bytes=480,
    ),
}

# The header of a v2 batch: base offset, length, leader epoch, magic, CRC, attributes, last offset
# delta, first and largest timestamp, producer id and epoch, first sequence, record count.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FROM: Final = 12
_CRC_FROM: Final = 21


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it stands in a file."""

    position: int
    data: bytes = field(repr=False)
    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int

    @property
    def end(self) -> int:
        return self.position + len(self.data)


def batches_in(data: bytes) -> Iterator[Batch]:
    """Sound batches from the start of `data` up to the first that is not."""
    position = 0
    while position + _HEADER.size <= len(data):
        fields = _HEADER.unpack_from(data, position)
        base_offset, length, _, magic, crc, attributes, delta = fields[:7]
        end = position + _LENGTH_FROM + length
        if magic != 2 or length < _HEADER.size - _LENGTH_FROM or end > len(data) or delta < 0:
            return
        if crc32c(data[position + _CRC_FROM : end]) != crc:
            return
        last_offset, producer_id = base_offset + delta, fields[9]
        yield Batch(position, data[position:end], base_offset, last_offset, attributes, producer_id)
        position = end


@dataclass(slots=True)
class Truth:
    """What holds for a partition when its broker stops."""

    log_start: int = 0
    log_end: int = 0
    recovery_point: int = 0  # As the checkpoint on disk says.
    last_stable_offset: int = 0
    # By segment file: its batches, those below the log start included.
    batches: dict[str, list[Batch]] = field(default_factory=dict)
    # Of each producer: what it sent in its last epoch, newest last, with the offset it was given.
    sent: dict[int, list[tuple[bytes, int]]] = field(default_factory=dict)
    # Of each producer with an open transaction: the first offsets of its batches.
    open_batches: dict[int, list[int]] = field(default_factory=dict)
    # Offsets a read_committed consumer is given.
    visible: set[int] = field(default_factory=set)
    # (timestamp, offset) of each record, in order of offsets.
    times: list[tuple[int, int]] = field(default_factory=list)
    open_from: int | None = None  # First offset of the earliest open transaction.
    latest: dict[bytes, bytes | None] = field(default_factory=dict)  # By key; of `keyed` only.

    def all_batches(self) -> list[Batch]:
        return [batch for file in sorted(self.batches) for batch in self.batches[file]]


@dataclass(frozen=True, slots=True)
class History:
    """A stopped directory: its files, and what they mean."""

    seed: int
    is_clean: bool
    files: dict[str, bytes]  # By path below the data directory.
    truths: dict[TopicPartition, Truth]


class Running:
    """A log manager on a directory; what happens by itself elsewhere is in our hands."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.clock = ManualClock()
        self.damaged_places = 0  # As the metric counts them.
        self.services: LogServices = replace(
            make_services(clock=self.clock), on_damage=self._count_damage
        )
        self.manager = LogManager(
            [str(path)],
            services=self.services,
            default_log_config=_CONFIGS["plain"],
            topic_config=_CONFIGS.get,
        )
        self.manager.startup()
        self.cleaner = LogCleaner(
            services=self.services,
            config=CleanerConfig(dedupe_buffer_bytes=24 * 1000),
            logs=lambda: [log for log in self.manager.all_logs() if log.config.cleanup_compact],
        )
        for directory in self.manager.online_directories:
            logs = list(directory.logs.values())
            self.cleaner.first_dirty.load(directory, logs)
            for log in logs:
                log.before_truncation = self.cleaner.before_truncation

    def _count_damage(self) -> None:
        self.damaged_places += 1

    def log(self, partition: TopicPartition) -> Log | None:
        return self.manager.get_log(partition)

    def clean(self) -> None:
        """Compacts what is due, and removes the files that are not needed any more."""
        self.cleaner.run()
        self.remove_files()

    def remove_files(self) -> None:
        """Lets the time pass that files wait for their removal."""
        self.clock.advance(60_000)
        self.services.tasks.run_due()  # type: ignore[attr-defined]  # It is an InlineTasks.

    def stop(self) -> None:
        self.manager.shutdown()

    def kill(self) -> None:
        """Ends the process without a word; the page cache stays."""
        for directory in self.manager.directories:
            for log in directory.logs.values():
                log.mark_offline("the process was killed")
            directory.unlock()


class _Writer:
    """Makes the past of a directory, step by step, and notes what is true."""

    def __init__(self, running: Running, random: Random) -> None:
        self.running = running
        self.random = random
        self.truths = {PLAIN: Truth(), KEYED: Truth()}
        self.leader_epoch = 0
        self.sequences: dict[tuple[int, int], int] = {}  # Next one by producer id and epoch.
        self.epochs: dict[int, int] = {}
        self.open_transactions: dict[int, list[int]] = {}  # Offsets by producer id.
        self.aborted: set[int] = set()
        self.logs = {
            tp: running.manager.get_or_create_log(tp, is_new=True) for tp in (PLAIN, KEYED)
        }
        self.timestamp = running.clock.now_ms()

    def step(self) -> None:
        """One thing that happens to a partition."""
        kind = self.random.choices(
            ("plain", "idempotent", "transactional", "end", "keyed", "rest"),
            weights=(5, 8, 5, 3, 7, 5),
        )[0]
        if kind == "plain":
            self._append(PLAIN, self._build(PLAIN))
        elif kind == "idempotent":
            self._send(self.random.randrange(1000, 1004))
        elif kind == "transactional":
            self._send(self.random.randrange(4000, 4003), is_transactional=True)
        elif kind == "end":
            self._end_transaction()
        elif kind == "keyed":
            if self.random.random() < 0.5:
                self._append(KEYED, self._build(KEYED))
            else:
                self._send(self.random.randrange(2000, 2003), partition=KEYED)
        else:
            self._rest()

    def _rest(self) -> None:
        log = self.logs[self.random.choice((PLAIN, KEYED))]
        kind = self.random.choice(
            ("roll", "roll", "flush", "epoch", "delete", "clean", "checkpoint")
        )
        if kind == "roll":
            log.roll()
        elif kind == "flush":
            log.flush()
        elif kind == "epoch":
            self.leader_epoch += 1
        elif kind == "clean":
            self.running.clean()
        elif kind == "checkpoint":
            self.running.manager.checkpoint_recovery_points()
            self.running.manager.checkpoint_log_starts()
        elif self.random.random() < 0.4:
            plain = self.logs[PLAIN]
            low, high = plain.log_start_offset, plain.high_watermark
            plain.maybe_increment_log_start_offset(self.random.randint(low, (low + high) // 2))
            if self.random.random() < 0.7 and delete_old_segments(plain):
                self.running.remove_files()

    def _records(self, partition: TopicPartition) -> list[tuple[int, bytes, bytes | None]]:
        records = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3, 6))):
            # Times come out of order now and then, by less than producers live.
            self.timestamp += self.random.choice((0, 1, 5, 1000, -700))
            value = self.random.randbytes(self.random.choice((3, 20, 60, 200)))
            is_tombstone = partition == KEYED and self.random.random() < 0.15
            key = b"key-%d" % self.random.randrange(6)
            records.append((self.timestamp, key, None if is_tombstone else value))
        return records

    def _build(self, partition: TopicPartition) -> bytearray:
        codec = self.random.choice((Codec.NONE,) * 3 + (Codec.LZ4,))
        records = [(time, key, value, ()) for time, key, value in self._records(partition)]
        return build_batch(records, codec=codec)

    def _append(
        self,
        partition: TopicPartition,
        built: bytearray,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> tuple[int, int]:
        """Appends; returns the first and the last offset."""
        log = self.logs[partition]
        info = log.append_as_leader(bytearray(built), leader_epoch=self.leader_epoch, origin=origin)
        first, last = info.first_offset, info.last_offset
        assert first is not None
        if self.random.random() < 0.9:
            log.update_high_watermark(log.log_end_offset)
        return first, last

    def _send(
        self,
        producer_id: int,
        *,
        partition: TopicPartition = PLAIN,
        is_transactional: bool = False,
    ) -> None:
        if producer_id not in self.open_transactions and self.random.random() < 0.1:
            self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
            self.truths[partition].sent.pop(producer_id, None)
        epoch = self.epochs.get(producer_id, 0)
        sequence = self.sequences.get((producer_id, epoch), 0)
        records = [(time, key, value, ()) for time, key, value in self._records(partition)]
        built = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        self.sequences[producer_id, epoch] = sequence + len(records)
        first, last = self._append(partition, built)
        truth = self.truths[partition]
        truth.sent.setdefault(producer_id, []).append((bytes(built), first))
        if is_transactional:
            truth.open_batches.setdefault(producer_id, []).append(first)
            self.open_transactions.setdefault(producer_id, []).extend(range(first, last + 1))

    def _end_transaction(self) -> None:
        if not self.open_transactions:
            return
        producer_id = self.random.choice(sorted(self.open_transactions))
        offsets = self.open_transactions.pop(producer_id)
        self.truths[PLAIN].open_batches.pop(producer_id)
        is_commit = self.random.random() < 0.5
        end = marker(
            commit=is_commit,
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0),
            timestamp=self.timestamp,
        )
        self._append(PLAIN, end, AppendOrigin.COORDINATOR)
        if not is_commit:
            self.aborted.update(offsets)

    def finish(self) -> dict[TopicPartition, Truth]:
        """What is true now; to be asked right before the stop."""
        for partition, truth in self.truths.items():
            log = self.logs[partition]
            log.update_high_watermark(log.log_end_offset)
            truth.log_start = log.log_start_offset
            truth.log_end = log.log_end_offset
            if partition == PLAIN and self.open_transactions:
                truth.open_from = min(offsets[0] for offsets in self.open_transactions.values())
            truth.last_stable_offset = (
                truth.log_end if truth.open_from is None else max(truth.open_from, truth.log_start)
            )
        return self.truths


def make_history(seed: int, path: Path) -> History:
    """Makes a directory at `path`, stops its broker in order or not, and reads its files."""
    random = Random(seed)
    running = Running(path)
    writer = _Writer(running, random)
    for _ in range(random.randint(25, 90)):
        writer.step()
    truths = writer.finish()
    is_clean = random.random() < 0.5
    if is_clean:
        running.stop()
    else:
        if random.random() < 0.7:
            running.manager.checkpoint_log_starts()
        running.kill()
    files = {
        os.path.relpath(os.path.join(folder, name), path): (Path(folder) / name).read_bytes()
        for folder, _, names in os.walk(path)
        for name in names
        if name != ".lock"
    }
    recovery_points = read_checkpoint(files.get("recovery-point-offset-checkpoint", b""))
    for partition, truth in truths.items():
        truth.recovery_point = recovery_points.get(partition, 0)
        _read_files(truth, partition, files, writer)
    return History(seed, is_clean, files, truths)


def read_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Offsets by partition; raises ValueError if the file is none of ours."""
    found = {}
    for line in data.decode().splitlines()[2:]:
        topic, index, offset = line.split()
        found[TopicPartition(topic, int(index))] = int(offset)
    return found


def _read_files(
    truth: Truth, partition: TopicPartition, files: dict[str, bytes], writer: _Writer
) -> None:
    for path in sorted(files):
        folder, name = os.path.split(path)
        if folder == str(partition) and name.endswith(".log"):
            truth.batches[path] = list(batches_in(files[path]))
            end = sum(len(batch.data) for batch in truth.batches[path])
            assert not files[path][end:].strip(b"\0"), f"seed {path}: a batch that is not sound"
    pending = {o for offsets in writer.open_transactions.values() for o in offsets}
    for batch in truth.all_batches():
        if batch.last_offset < truth.log_start:
            continue
        is_control = bool(batch.attributes & 0x20)
        for record in records_of(batch.data):
            if record.offset < truth.log_start:
                continue
            truth.times.append((record.timestamp, record.offset))
            if not is_control:
                if record.offset not in writer.aborted and record.offset not in pending:
                    truth.visible.add(record.offset)
                if record.key is not None and partition == KEYED:
                    truth.latest[record.key] = record.value
    truth.visible = {o for o in truth.visible if o < truth.last_stable_offset}
