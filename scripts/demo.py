"""What `make demo` shows: a log is written, its writer killed, the log recovered and read back.

1. A child process appends batches to a log as fast as it can and acknowledges each one on a pipe.
2. It is killed with SIGKILL in the midst of it. A kill leaves no batch half written to the page
   cache, a power cut does: half a batch is put behind the last one by hand.
3. The log is opened again. Recovery scans from the recovery point on and cuts the torn batch.
4. Every batch is read back and compared with what was written.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from random import Random

from odradek.clock import SystemClock
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.records.batch import iter_headers
from odradek.records.builder import build_batch
from odradek.records.record import read_records
from odradek.storage.background import InlineTasks
from odradek.storage.config import LogConfig
from odradek.storage.log import FetchIsolation, Log, LogServices
from odradek.storage.log_manager import LogManager

PARTITION = TopicPartition("demo", 0)
SEGMENT_BYTES = 4 << 20
WRITING_SECONDS = 1.0
RECORDS_PER_BATCH = 10
OFFSET_BYTES = 8  # One acknowledgement on the pipe: the last offset of a batch.


def open_logs(path: str) -> LogManager:
    """Opens the logs in a directory as a broker does."""
    clock = SystemClock()
    manager = LogManager(
        [path],
        default_log_config=LogConfig(segment_bytes=SEGMENT_BYTES),
        services=LogServices(disk=Disk(), clock=clock, random=Random(0), tasks=InlineTasks(clock)),
    )
    manager.startup()
    return manager


def value_at(offset: int) -> bytes:
    """The value of the record at an offset, so that a reader knows what to expect."""
    return b"record %d " % offset * 20


def batch_at(base_offset: int) -> bytearray:
    """The batch that is to be appended at an offset."""
    offsets = range(base_offset, base_offset + RECORDS_PER_BATCH)
    return build_batch([(1_700_000_000_000 + o, b"key", value_at(o), ()) for o in offsets])


def write(path: str) -> None:
    """The child: appends until it is killed."""
    manager = open_logs(path)
    log = manager.get_or_create_log(PARTITION)
    while True:
        info = log.append_as_leader(batch_at(log.log_end_offset), leader_epoch=0)
        os.write(sys.stdout.fileno(), info.last_offset.to_bytes(OFFSET_BYTES, "big"))
        if log.unflushed_messages >= 10_000:
            log.flush()
            manager.checkpoint_recovery_points()


def write_and_kill(path: str) -> int:
    """Runs the child for a while, then kills it; returns the last offset it acknowledged."""
    with subprocess.Popen(
        [sys.executable, __file__, "write", path], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        acknowledged = writer.stdout.read(OFFSET_BYTES)  # It is up and appending.
        deadline = time.monotonic() + WRITING_SECONDS
        while time.monotonic() < deadline and (chunk := writer.stdout.read(OFFSET_BYTES * 50)):
            acknowledged = chunk
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.read()
    if writer.returncode != -signal.SIGKILL or len(acknowledged) < OFFSET_BYTES:
        raise SystemExit(f"demo: the writer ended by itself with status {writer.returncode}")
    return int.from_bytes(acknowledged[-OFFSET_BYTES:], "big")


def tear(path: str) -> int:
    """Puts half a batch behind the last one; returns its bytes."""
    directory = os.path.join(path, str(PARTITION))
    last = max(name for name in os.listdir(directory) if name.endswith(".log"))
    half = batch_at(0)[:1_000]
    with open(os.path.join(directory, last), "ab") as file:
        file.write(half)
    return len(half)


def count_right_records(log: Log) -> int:
    """Reads the whole log and returns the number of records that are as they were written."""
    offset, right = log.log_start_offset, 0
    while data := log.read(offset, 1 << 20, FetchIsolation.LOG_END).read():
        for position, header in iter_headers(data):
            for record in read_records(data[position : position + header.size]):
                right += record.value == value_at(record.offset)
            offset = header.next_offset
    return right


def main() -> int:
    logging.basicConfig(format="    log: %(message)s", level=logging.WARNING, stream=sys.stdout)
    path = tempfile.mkdtemp(prefix="odradek-demo-")
    try:
        print(f"1. A process appends to a log in {path} and is killed after {WRITING_SECONDS:g} s.")
        acknowledged = write_and_kill(path) + 1
        print(f"   It had acknowledged {acknowledged:,} records.")

        torn_bytes = tear(path)
        print(f"2. A power cut's mark is added: half a batch, {torn_bytes:,} bytes, at the end.")

        print("3. The log is opened again:", flush=True)
        started = time.perf_counter()
        manager = open_logs(path)
        elapsed_ms = (time.perf_counter() - started) * 1e3
        log = manager.get_or_create_log(PARTITION)
        print(
            f"   recovered in {elapsed_ms:.0f} ms: {log.log_end_offset:,} records in"
            f" {len(log.segments)} segments, {log.size_in_bytes / 1e6:.1f} MB;"
            f" synced up to {log.recovery_point:,}."
        )

        right = count_right_records(log)
        survived = acknowledged <= log.log_end_offset == right
        print(f"4. Read back: {right:,} records are as they were written.")
        print(
            f"   Acknowledged {acknowledged:,}, recovered {log.log_end_offset:,},"
            f" lost {max(0, acknowledged - right):,}."
        )
        manager.shutdown()
        return 0 if survived else 1
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2])
    else:
        sys.exit(main())
