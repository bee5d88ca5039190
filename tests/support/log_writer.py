"""A process that appends to a log until it is killed, and says what was acknowledged.

Run as ``python -m tests.support.log_writer DIRECTORY SEED``. It opens the log as a broker does,
then appends batches whose bytes follow from seed and offset alone (`batch_at`), so that whoever
reopens the log can tell every byte. For each append that returned it writes eight bytes to its
standard output: the last offset, big endian. A pipe takes eight bytes whole or not at all, so the
last acknowledgement is never torn by the kill.
"""

import os
import sys
from random import Random

from odradek.clock import SystemClock
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.records.builder import build_batch
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.services import InlineTasks, LogServices
from odradek.storage.recovery.loader import load_log

__all__ = ["ACKNOWLEDGEMENT_BYTES", "CONFIG", "PARTITION", "batch_at", "open_log"]

PARTITION = TopicPartition("killed", 0)
# Small enough that every run rolls many times.
CONFIG = LogConfig(segment_bytes=1 << 18, index_interval_bytes=1024, segment_index_bytes=1 << 14)
ACKNOWLEDGEMENT_BYTES = 8
_CHECKPOINT_EVERY = 500  # Appends between two checkpoints of the recovery point.
_SYNC_EVERY = 100  # Appends between two flushes; mostly, rolling does it.


def open_log(directory: LogDirectory) -> Log:
    """Opens the log from marker and checkpoints."""
    clock = SystemClock()
    directory.take_clean_shutdown_marker()
    log = load_log(
        os.path.join(directory.path, str(PARTITION)),
        PARTITION,
        config=CONFIG,
        log_directory=directory,
        services=LogServices(
            disk=directory.disk, clock=clock, random=Random(0), tasks=InlineTasks(clock)
        ),
        recovery_point=directory.read_recovery_points().get(PARTITION, 0),
        log_start_offset=directory.read_log_starts().get(PARTITION, 0),
        had_clean_shutdown=directory.had_clean_shutdown,
    )
    directory.logs[log.name] = log
    return log


def batch_at(base_offset: int, seed: int, *, is_stored: bool) -> bytearray:
    """The batch that starts at an offset, as a client sends it or as the log stores it."""
    random = Random(f"{seed}/{base_offset}")
    count = random.choice((1, 1, 1, 2, 5))
    value = random.randbytes(random.choice((10, 100, 1_000, 9_000)))
    records = [(1_600_000_000_000 + base_offset, b"key", value, ()) for _ in range(count)]
    if is_stored:
        return build_batch(records, base_offset=base_offset, leader_epoch=0)
    return build_batch(records)


def _append_for_ever(path: str, seed: int) -> None:
    directory = LogDirectory(path, disk=Disk())
    directory.lock()
    log = open_log(directory)
    appended = 0
    while True:
        batch = batch_at(log.log_end_offset, seed, is_stored=False)
        info = log.append_as_leader(batch, leader_epoch=0)
        os.write(sys.stdout.fileno(), info.last_offset.to_bytes(ACKNOWLEDGEMENT_BYTES, "big"))
        appended += 1
        if appended % _SYNC_EVERY == 0:
            log.flush()
        if appended % _CHECKPOINT_EVERY == 0:
            directory.checkpoint_recovery_points()


if __name__ == "__main__":
    _append_for_ever(sys.argv[1], int(sys.argv[2]))
