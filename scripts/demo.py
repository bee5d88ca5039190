"""What the log is for, in a few seconds: write, be killed, come back, lose nothing.

A child process appends batches and reports each one when the append has returned. It is killed
without warning, and half a batch is put behind what it wrote, as a write that a crash tore in two
would leave it. Then the log is opened again, and every record reported is looked for.
"""

import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile

from odradek.clock import SystemClock
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.records import build_batch, iter_headers, read_records
from odradek.storage.background import InlineTasks
from odradek.storage.config import LogConfig
from odradek.storage.loader import load_log
from odradek.storage.log import FetchIsolation, Log, LogServices
from odradek.storage.log_directory import LogDirectory

TOPIC_PARTITION = TopicPartition("demo", 0)
RECORDS_PER_BATCH = 10
BATCHES_BEFORE_THE_KILL = 3_000
SEGMENT_BYTES = 512 << 10  # Small, so that the log has several.
READ_BYTES = 1 << 20


def open_log(data_dir: str) -> tuple[LogDirectory, Log]:
    clock = SystemClock()
    disk = Disk()
    directory = LogDirectory(data_dir, disk=disk)
    directory.lock()
    directory.take_clean_shutdown_marker()
    log = load_log(
        os.path.join(directory.path, f"{TOPIC_PARTITION.topic}-{TOPIC_PARTITION.partition}"),
        TOPIC_PARTITION,
        config=LogConfig(segment_bytes=SEGMENT_BYTES),
        log_directory=directory,
        services=LogServices(
            disk=disk, clock=clock, random=random.Random(), tasks=InlineTasks(clock)
        ),
        recovery_point=directory.read_recovery_points().get(TOPIC_PARTITION, 0),
        had_clean_shutdown=directory.had_clean_shutdown,
    )
    return directory, log


def value_at(offset: int) -> bytes:
    return b"value of offset %d" % offset


def batch_at(offset: int, now_ms: int) -> bytearray:
    offsets = range(offset, offset + RECORDS_PER_BATCH)
    return build_batch([(now_ms, b"key %d" % at, value_at(at), ()) for at in offsets])


def write_until_killed(data_dir: str) -> None:
    _, log = open_log(data_dir)
    clock = SystemClock()
    while True:
        batch = batch_at(log.log_end_offset, clock.now_ms())
        log.append_as_leader(batch, leader_epoch=0)
        print(log.log_end_offset, flush=True)


def run_writer_and_kill_it(data_dir: str) -> int:
    """Returns the end of what the writer reported: every offset below it was acknowledged."""
    command = [sys.executable, __file__, data_dir]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        reported = list(itertools.islice(writer.stdout, BATCHES_BEFORE_THE_KILL))
        writer.send_signal(signal.SIGKILL)
        reported += writer.stdout
    if len(reported) < BATCHES_BEFORE_THE_KILL:
        sys.exit(f"demo: the writer ended by itself after {len(reported)} batches")
    # The kill may have cut the last line short.
    return int([line for line in reported if line.endswith("\n")][-1])


def tear_a_write(data_dir: str) -> None:
    partition_dir = os.path.join(data_dir, "demo-0")
    newest = max(name for name in os.listdir(partition_dir) if name.endswith(".log"))
    torn = batch_at(0, 0)
    with open(os.path.join(partition_dir, newest), "ab") as segment:
        segment.write(torn[: len(torn) // 2])


def read_all(log: Log) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, READ_BYTES, FetchIsolation.LOG_END).read()
        for position, header in iter_headers(data):
            found.update((it.offset, it.value) for it in read_records(data, position=position))
            offset = header.last_offset + 1
    return found


def main() -> int:
    logging.basicConfig(format="   log: %(message)s", level=logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="odradek-demo-") as data_dir:
        print(f"1. A writer appends batches of {RECORDS_PER_BATCH} records, and is killed (-9).")
        acknowledged = run_writer_and_kill_it(data_dir)
        print(f"   It reported {acknowledged} records as written.")

        print("2. Half a batch is left at the end of the newest segment.")
        tear_a_write(data_dir)

        print("3. The log is opened again and recovers.")
        directory, log = open_log(data_dir)
        found = read_all(log)
        missing = [at for at in range(acknowledged) if found.get(at) != value_at(at)]
        segments = len(list(log.segments))
        log.close()
        directory.unlock()

    print(f"4. {len(found)} records in {segments} segments survived, {len(missing)} are missing.")
    if missing:
        print(f"   Lost: {missing[:10]} …")
        return 1
    print("   Everything acknowledged is there, and the torn half is gone.")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_until_killed(sys.argv[1])
    sys.exit(main())
