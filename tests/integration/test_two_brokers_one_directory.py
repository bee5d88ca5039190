"""A data directory has one owner, whichever process asks (01:DIR-3).

The lock is the POSIX record lock that a Java process takes with `FileChannel.tryLock`, so that a
Kafka broker and this one exclude each other; `flock` would be seen by neither.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.clock import SystemClock
from odradek.errors import LogDirLockedError
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage.directories.log_directory import LOCK_FILE
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.services import InlineTasks, LogServices
from tests.support.logs import batch

TP = TopicPartition("t", 0)

# What the JDK does: F_SETLK of a write lock from byte 0, length 0 standing for the whole file.
# struct flock on Linux, 64 bit: type, whence, (padding), start, length, pid, (padding).
JAVA_LIKE_OWNER = """
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
try:
    fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
except OSError as error:
    print("refused", error.errno, flush=True)
else:
    print("locked", flush=True)
    sys.stdin.read()
"""

# A broker's logs, appended to and then left to be killed.
OTHER_BROKER = """
import sys
from random import Random
from odradek.clock import SystemClock
from odradek.errors import LogDirLockedError
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.records.builder import build_batch
from odradek.storage.log.services import InlineTasks
from odradek.storage.log.services import LogServices
from odradek.storage.directories.log_manager import LogManager
clock = SystemClock()
services = LogServices(disk=Disk(), clock=clock, random=Random(), tasks=InlineTasks(clock))
manager = LogManager([sys.argv[1]], services=services)
try:
    manager.startup()
except LogDirLockedError as error:
    print("refused", error, flush=True)
    sys.exit(1)
log = manager.get_or_create_log(TopicPartition("t", 0))
log.append_as_leader(build_batch([(1, b"k", b"v", ())]), leader_epoch=0)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def process(code: str, argument: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs Python code, waits for its first line; kills it in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(argument)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


def new_manager(path: Path) -> LogManager:
    clock = SystemClock()
    services = LogServices(disk=Disk(), clock=clock, random=Random(1), tasks=InlineTasks(clock))
    return LogManager([str(path)], services=services)


def refused(path: Path) -> str:
    manager = new_manager(path)
    with pytest.raises(LogDirLockedError) as caught:
        manager.startup()
    manager.shutdown()
    return str(caught.value)


def test_a_java_like_owner_keeps_this_broker_out(tmp_path: Path) -> None:
    """01:DIR-3, a lock as Kafka takes it."""
    with process(JAVA_LIKE_OWNER, tmp_path / LOCK_FILE) as (_, said):
        assert said == "locked"
        message = refused(tmp_path)
        assert str(tmp_path) in message
        assert "another process" in message
        assert "stop the other broker" in message
    manager = new_manager(tmp_path)  # Its lock went with it.
    manager.startup()
    manager.shutdown()


def test_this_broker_keeps_a_java_like_owner_out(tmp_path: Path) -> None:
    """01:DIR-3, the other way round, also after a second broker here was refused."""
    manager = new_manager(tmp_path)
    manager.startup()
    assert "another broker of this process" in refused(tmp_path)
    with process(JAVA_LIKE_OWNER, tmp_path / LOCK_FILE) as (_, said):
        assert said.startswith("refused")
    manager.shutdown()
    with process(JAVA_LIKE_OWNER, tmp_path / LOCK_FILE) as (_, said):
        assert said == "locked"


def test_two_processes_of_this_broker_and_a_kill(tmp_path: Path) -> None:
    """01:DIR-3, other process; the one that is killed leaves a directory to recover."""
    with process(OTHER_BROKER, tmp_path) as (_, said):
        assert said == "locked"
        assert str(tmp_path) in refused(tmp_path)
    manager = new_manager(tmp_path)
    manager.startup()
    assert not manager.directories[0].had_clean_shutdown
    log = manager.get_log(TP)
    assert log is not None
    assert log.log_end_offset == 1
    log.append_as_leader(batch(), leader_epoch=0)
    with process(OTHER_BROKER, tmp_path) as (child, said):
        assert said.startswith("refused")
        assert str(tmp_path) in said
        assert child.wait() == 1
    manager.shutdown()
