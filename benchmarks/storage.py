"""Appending, walking records, looking up, recovering.

Costs are CPU time, system calls included, so that a busy machine disturbs them little; each is the
median of many short samples.
"""

import os
import struct
import time
from collections.abc import Callable, Iterator
from random import Random
from statistics import median
from typing import NamedTuple

from crc32c import crc32c

from benchmarks.logs import LazyDisk, batch_of_bytes, open_log, temporary_directory
from benchmarks.table import Row, at_least, at_most, benchmark
from odradek.files import Disk
from odradek.records.batch import HEADER_SIZE, parse_header
from odradek.records.builder import build_batch
from odradek.records.walk import IS_COMPILED, walk_records
from odradek.records.walk_pure import walk_records_pure
from odradek.storage.indexes.offset_index import OffsetIndex
from odradek.storage.indexes.time_index import TimeIndex
from odradek.storage.log.config import INT64_MAX, LogConfig
from odradek.storage.log.log import Log

_CRC_PLACE, _CRC = 17, struct.Struct(">I")
_CRC_START = 21  # The checksum of a batch covers it from here on.
_PRODUCER_START, _PRODUCER = 43, struct.Struct(">qhi")  # Producer id, epoch, first sequence.
_PRODUCERS = 5
_CONFIG = LogConfig(max_message_bytes=2 << 20)
_INDEX_BYTES = 10 << 20
_RECOVERED_BYTES = 96 << 20
_WALKED = 1_000  # Records of a batch.


class _AppendCase(NamedTuple):
    label: str
    size: int
    chunk: int  # Appends per sample.
    pairs: int
    bar_added_us: float | None = None
    bar_ratio: float | None = None


_APPEND_CASES = (
    _AppendCase("200 B", 200, 200, 61, bar_added_us=12),
    _AppendCase("4 KB", 4 << 10, 200, 61, bar_added_us=12),
    _AppendCase("16 KB", 16 << 10, 100, 41, bar_added_us=12),
    _AppendCase("64 KB", 64 << 10, 40, 31, bar_ratio=1.15),
    _AppendCase("1 MB", 1 << 20, 4, 25, bar_ratio=1.15),
)


@benchmark("append")
def append() -> Iterator[Row]:
    """A one-record batch appended as leader, beside the least that any log has to do."""
    for case in _APPEND_CASES:
        with temporary_directory() as path:
            log = open_log(path, _CONFIG)
            fd = os.open(os.path.join(path, "bare"), os.O_RDWR | os.O_CREAT)
            try:
                yield from _measure_append(case, log, fd)
            finally:
                os.close(fd)
                log.mark_offline("measured")


def _measure_append(case: _AppendCase, log: Log, fd: int) -> Iterator[Row]:
    batch = batch_of_bytes(case.size)
    added, ratios, totals, bares = [], [], [], []
    for pair in range(-2, case.pairs):
        # The two take turns in coming first, so that neither profits from the other's warm cache.
        if pair % 2:
            total, bare = _append_us(log, batch, case.chunk), _bare_us(fd, batch, case.chunk)
        else:
            bare, total = _bare_us(fd, batch, case.chunk), _append_us(log, batch, case.chunk)
        if pair >= 0:  # The first ones warm up.
            added.append(total - bare)
            ratios.append(total / bare)
            totals.append(total)
            bares.append(bare)
    raw = {"append_us": totals, "bare_us": bares, "batch_bytes": len(batch)}
    yield at_most(
        f"append {case.label}: added to write + CRC", added, "us", case.bar_added_us, **raw
    )
    yield at_most(f"append {case.label}: ratio to write + CRC", ratios, "x", case.bar_ratio)


def _append_us(log: Log, batch: bytearray, count: int) -> float:
    batches = [bytearray(batch) for _ in range(count)]
    append_as_leader = log.append_as_leader
    started = time.process_time_ns()
    for one in batches:
        append_as_leader(one, leader_epoch=0)
    return (time.process_time_ns() - started) / count / 1e3


def _bare_us(fd: int, batch: bytearray, count: int) -> float:
    batches = [bytearray(batch) for _ in range(count)]
    write = os.write
    started = time.process_time_ns()
    for one in batches:
        crc32c(memoryview(one)[_CRC_START:])
        write(fd, one)
    return (time.process_time_ns() - started) / count / 1e3


@benchmark("walk")
def walk() -> Iterator[Row]:
    """The walk over the records of a batch that validation does."""
    random = Random(1)
    alike, mixed = (
        build_batch(
            [
                (1_700_000_000_000 + i, b"key-%d" % i, b"x" * size, ())
                for i, size in enumerate(sizes)
            ]
        )
        for sizes in ([100] * _WALKED, random.choices(range(20, 300), k=_WALKED))
    )
    if IS_COMPILED:
        yield _measure_walk("compiled", walk_records, alike, 200, 0.02)
        yield _measure_walk("compiled, mixed sizes", walk_records, mixed, 200, 0.02)
    yield _measure_walk("pure Python", walk_records_pure, alike, 4, 0.8)
    yield _measure_walk("pure Python, mixed sizes", walk_records_pure, mixed, 4, 0.8)


def _measure_walk(
    name: str, function: Callable[..., object], batch: bytearray, rounds: int, bar: float
) -> Row:
    data = bytes(batch)
    header = parse_header(data)
    assert header is not None
    samples = []
    for _ in range(31):
        started = time.process_time_ns()
        for _ in range(rounds):
            function(
                data, HEADER_SIZE, len(data), _WALKED, header.base_timestamp, 0, INT64_MAX, True
            )
        samples.append((time.process_time_ns() - started) / rounds / _WALKED / 1e3)
    return at_most(f"walk a record, {name}", samples, "us", bar)


@benchmark("lookup")
def lookup() -> Iterator[Row]:
    """A look-up in a full index, without the read of a batch header that follows it."""
    random = Random(1)
    with temporary_directory() as path:
        disk = Disk()
        entries = _INDEX_BYTES // 8
        _write_index(f"{path}/o", struct.Struct(">ii"), [(10 * i, 41 * i) for i in range(entries)])
        offset_index = OffsetIndex(f"{path}/o", 0, max_index_size=_INDEX_BYTES, disk=disk)
        assert offset_index.entries == entries
        last = 10 * entries
        for name, lowest in (("anywhere", 0), ("near the end", last - 5_000)):
            targets = [random.randrange(lowest, last) for _ in range(2_000)]
            samples = _time_each(offset_index.lookup, targets)
            yield at_most(f"offset look-up in 10 MB, {name}", samples, "us", 10)
        offset_index.close()

        entries = _INDEX_BYTES // 12
        first = 1_700_000_000_000
        _write_index(
            f"{path}/t", struct.Struct(">qi"), [(first + 3 * i, 10 * i) for i in range(entries)]
        )
        time_index = TimeIndex(f"{path}/t", 0, max_index_size=_INDEX_BYTES, disk=disk)
        assert time_index.entries == entries
        targets = [first + random.randrange(3 * entries) for _ in range(2_000)]
        yield at_most(
            "time look-up in 10 MB, anywhere", _time_each(time_index.lookup, targets), "us"
        )
        time_index.close()


def _write_index(path: str, layout: struct.Struct, entries: list[tuple[int, int]]) -> None:
    pack = layout.pack
    with open(path, "wb") as file:
        file.write(b"".join([pack(key, value) for key, value in entries]))


def _time_each(function: Callable[[int], object], targets: list[int]) -> list[float]:
    samples = []
    for _ in range(15):
        started = time.process_time_ns()
        for target in targets:
            function(target)
        samples.append((time.process_time_ns() - started) / len(targets) / 1e3)
    return samples


@benchmark("recovery")
def recovery() -> Iterator[Row]:
    """Opening a log of one segment after an unclean stop: every byte read, every CRC checked."""
    for label, size, bar in (("16 KB", 16 << 10, 1.0), ("1 KB", 1 << 10, 0.3)):
        with temporary_directory() as path:
            log = open_log(path, _CONFIG, disk=LazyDisk())
            batch = batch_of_bytes(size)
            for _ in range(_RECOVERED_BYTES // len(batch)):
                log.append_as_leader(bytearray(batch), leader_epoch=0)
            log_bytes, end = log.size_in_bytes, log.log_end_offset
            log.mark_offline("to be recovered")
            samples, wall_seconds = [], []
            for _ in range(7):
                wall_started = time.perf_counter()
                started = time.process_time_ns()
                log = open_log(path, _CONFIG)
                samples.append(log_bytes / (time.process_time_ns() - started))
                wall_seconds.append(time.perf_counter() - wall_started)
                assert log.log_end_offset == end
                log.mark_offline("to be recovered")
            yield at_least(
                f"recovery scan, {label} batches",
                samples,
                "GB/s",
                bar,
                wall_seconds=wall_seconds,
                log_bytes=log_bytes,
            )


@benchmark("recovery-idempotent")
def recovery_idempotent() -> Iterator[Row]:
    """The same where every batch has a producer id and a sequence, beside plain batches."""
    for label, size in (("16 KB", 16 << 10), ("1 KB", 1 << 10)):
        with temporary_directory() as plain, temporary_directory() as idempotent:
            for path, producers in ((plain, 0), (idempotent, _PRODUCERS)):
                _fill_log(path, size, producers)
            samples: dict[str, list[float]] = {plain: [], idempotent: []}
            for _ in range(7):
                for path, rates in samples.items():
                    started = time.process_time_ns()
                    log = open_log(path, _CONFIG)
                    rates.append(log.size_in_bytes / (time.process_time_ns() - started))
                    log.mark_offline("to be recovered")
            yield Row(
                name=f"recovery scan, {label} idempotent batches",
                measured=median(samples[idempotent]),
                unit="GB/s",
                beside=median(samples[plain]),
                beside_name="plain batches",
                bar=0.9,
                is_bar_lowest=True,
                raw={"idempotent": samples[idempotent], "plain": samples[plain]},
            )


def _fill_log(path: str, size: int, producers: int) -> None:
    """Writes a log of one-record batches, by several producers in turn; 0: without an id."""
    log = open_log(path, _CONFIG, disk=LazyDisk())
    batch = batch_of_bytes(size)
    for number in range(_RECOVERED_BYTES // len(batch)):
        one = bytearray(batch)
        if producers:
            sequence, producer = divmod(number, producers)
            _PRODUCER.pack_into(one, _PRODUCER_START, 1_000 + producer, 0, sequence)
            _CRC.pack_into(one, _CRC_PLACE, crc32c(memoryview(one)[_CRC_START:]))
        log.append_as_leader(one, leader_epoch=0)
    log.mark_offline("to be recovered")
