"""Opening many segments and many partitions, and the memory of a partition."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.logs import (
    LazyDisk,
    batch_of_bytes,
    make_services,
    open_log,
    raise_descriptor_limit,
    temporary_directory,
)
from benchmarks.table import Row, at_most, benchmark
from odradek.model import TopicPartition
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.config import LogConfig

_COUNT = 1_000
_REPEATS = 5


@benchmark("segments")
def segments() -> Iterator[Row]:
    """Opening one log of many segments after a clean stop."""
    raise_descriptor_limit()
    # Several batches and index entries in each segment.
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=4_096)
    with temporary_directory() as path:
        log = open_log(path, config, disk=LazyDisk())
        batch = batch_of_bytes(3_000)
        while len(log.segments) < _COUNT:
            log.append_as_leader(bytearray(batch), leader_epoch=0)
        end = log.log_end_offset
        log.close()
        wall, cpu, mapped = [], [], 0
        for _ in range(_REPEATS):
            started, cpu_started = time.perf_counter(), time.process_time()
            log = open_log(path, config, recovery_point=end, is_clean=True)
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - cpu_started)
            assert len(log.segments) == _COUNT
            assert log.log_end_offset == end
            active = log.active
            mapped = sum(
                segment.offset_index.is_loaded or segment.time_index.is_loaded
                for segment in log.segments
                if segment is not active
            )
            log.mark_offline("to be opened again")
        yield at_most(f"open {_COUNT:,} clean segments", wall, "s", 0.3, cpu_seconds=cpu)
        yield at_most("… old segments with an index mapped", [mapped], "", 0)


@benchmark("partitions")
def partitions() -> Iterator[Row]:
    """Many empty partitions, opened after a clean stop, in a process of their own each time."""
    with temporary_directory() as path:
        _in_child("create", path)
        figures = [_in_child("open", path) for _ in range(_REPEATS)]
        wall = [figure["wall_seconds"] for figure in figures]
        cpu = [figure["cpu_seconds"] for figure in figures]
        added = [(figure["rss_bytes"] - figure["idle_rss_bytes"]) / 1e6 for figure in figures]
        yield at_most(f"open {_COUNT:,} clean partitions", wall, "s", cpu_seconds=cpu)
        yield at_most(f"{_COUNT:,} empty partitions, above idle", added, "MB", 40, figures=figures)


def _in_child(action: str, path: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.opening", action, path],
        stdout=subprocess.PIPE,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _run_child(action: str, path: str) -> dict[str, float]:
    raise_descriptor_limit()
    is_creating = action == "create"
    manager = LogManager([path], services=make_services(LazyDisk() if is_creating else None))
    idle_rss_bytes = _resident_bytes()
    started, cpu_started = time.perf_counter(), time.process_time()
    manager.startup()
    if is_creating:
        for number in range(_COUNT):
            manager.get_or_create_log(TopicPartition("bench", number))
    wall_seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    assert len(manager.all_logs()) == _COUNT
    rss_bytes = _resident_bytes()
    manager.shutdown()
    return {
        "idle_rss_bytes": idle_rss_bytes,
        "rss_bytes": rss_bytes,
        "wall_seconds": wall_seconds,
        "cpu_seconds": cpu_seconds,
    }


if __name__ == "__main__":
    print(json.dumps(_run_child(sys.argv[1], sys.argv[2])))
