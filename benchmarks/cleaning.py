"""Compacting a log: how fast on one core, and what appends to another log wait meanwhile.

The latency is that of an append on an event loop, from when it was due to when it was done, at a
steady rate, while a pass runs on its thread: it shows what the pass takes of the interpreter and of
the loop. Turns with and without cleaning alternate.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

from benchmarks.logs import LazyDisk, batch_of_bytes, make_services, open_log, temporary_directory
from benchmarks.table import Row, at_least, at_most, benchmark
from odradek.broker.background import LoopTasks
from odradek.records.builder import build_batch
from odradek.storage.cleaner_config import CleanerConfig
from odradek.storage.cleaning import LogCleaner
from odradek.storage.config import LogConfig
from odradek.storage.log import Log

_CONFIG = LogConfig(segment_bytes=64 << 20, cleanup_compact=True, cleanup_delete=False)
_TOTAL_BYTES = 96 << 20
_KEYS = 50_000
_TURNS = 3
_INTERVAL_S = 0.002
# (label, bytes of a value, records of a batch, lowest rate that is good enough)
_CASES = (
    ("200 B, 80 a batch", 180, 80, 50.0),
    ("1 KB, 16 a batch", 1_000, 16, 50.0),
    ("200 B, 1 a batch", 180, 1, None),
)


def _dirty_log(path: str, value_bytes: int, per_batch: int, total_bytes: int) -> Log:
    """A log of random keys, dirty from its start to its active segment."""
    log = open_log(path, _CONFIG, disk=LazyDisk())
    random = Random(1)
    value = random.randbytes(value_bytes)
    now_ms = log.services.clock.now_ms()
    while log.size_in_bytes < total_bytes:
        records = [
            (now_ms, b"key-%012d" % random.randrange(_KEYS), value, ()) for _ in range(per_batch)
        ]
        log.append_as_leader(build_batch(records), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    return log


@benchmark("cleaner")
def cleaner() -> Iterator[Row]:
    """Bytes of a dirty log per second of CPU, both readings and the writing included."""
    for label, value_bytes, per_batch, bar in _CASES:
        rates = []
        for _ in range(_TURNS):
            with temporary_directory() as path:
                log = _dirty_log(path, value_bytes, per_batch, _TOTAL_BYTES // (1 if bar else 4))
                size = log.size_in_bytes
                rates.append(size / _clean(log) / 1e6)
                log.mark_offline("measured")
        yield at_least(f"cleaner, {label}", rates, "MB/s", bar)


def _clean(log: Log) -> float:
    """Seconds of CPU for one pass over all of it."""
    cleaning = LogCleaner(services=log.services, config=CleanerConfig(), logs=lambda: [log])
    started = time.process_time()
    cleaning.run()
    took = time.process_time() - started
    assert cleaning.stats.passes == 1, cleaning.uncleanable
    return took


@benchmark("cleaner-latency")
def cleaner_latency() -> Iterator[Row]:
    """99th percentile of appends to one log while another is compacted, by that without."""
    ratios, with_ms, without_ms = [], [], []
    for _ in range(_TURNS):
        with temporary_directory() as path:
            for name in ("dirty", "busy"):
                os.mkdir(os.path.join(path, name))
            dirty = _dirty_log(os.path.join(path, "dirty"), 180, 80, 2 * _TOTAL_BYTES)
            busy = open_log(os.path.join(path, "busy"), LogConfig())
            cleaning, idle = asyncio.run(_latencies(dirty, busy))
            ratios.append(cleaning / idle)
            with_ms.append(cleaning * 1e3)
            without_ms.append(idle * 1e3)
            for log in (dirty, busy):
                log.mark_offline("measured")
    yield at_most("cleaner-latency, append p99, without", without_ms, "ms")
    yield at_most("cleaner-latency, append p99, cleaning", with_ms, "ms")
    yield at_most("cleaner-latency, ratio of the two", ratios, "x", 2.0)


async def _latencies(dirty: Log, busy: Log) -> tuple[float, float]:
    """99th percentiles of appends: during a pass, and for as long without one."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as threads:
        tasks = LoopTasks(loop, threads)
        cleaner = LogCleaner(
            services=make_services(), config=CleanerConfig(), logs=lambda: [dirty], tasks=tasks
        )
        cleaner.run()
        during = await _append_steadily(busy, lambda: cleaner.is_idle)
        assert cleaner.stats.passes == 1, cleaner.uncleanable
        await tasks.stop()
    end = loop.time() + len(during) * _INTERVAL_S
    without = await _append_steadily(busy, lambda: loop.time() > end)
    return _percentile_99(during), _percentile_99(without)


async def _append_steadily(log: Log, is_over: Callable[[], bool]) -> list[float]:
    loop = asyncio.get_running_loop()
    batch = batch_of_bytes(1024)
    waits = []
    due = loop.time()
    while not is_over():
        due += _INTERVAL_S
        await asyncio.sleep(due - loop.time())
        log.append_as_leader(bytearray(batch), leader_epoch=0)
        waits.append(loop.time() - due)
    return waits


def _percentile_99(samples: list[float]) -> float:
    return sorted(samples)[int(len(samples) * 0.99)]
