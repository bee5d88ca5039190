"""Logs to measure, in a temporary directory."""

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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

__all__ = [
    "PARTITION",
    "LazyDisk",
    "batch_of_bytes",
    "make_services",
    "open_log",
    "raise_descriptor_limit",
    "temporary_directory",
]

PARTITION = TopicPartition("bench", 0)


class LazyDisk(Disk):
    """A disk that syncs nothing, to prepare files whose durability does not matter."""

    __slots__ = ()

    def fsync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        pass


def make_services(disk: Disk | None = None) -> LogServices:
    clock = SystemClock()
    return LogServices(disk=disk or Disk(), clock=clock, random=Random(1), tasks=InlineTasks(clock))


def open_log(
    path: str,
    config: LogConfig,
    *,
    disk: Disk | None = None,
    recovery_point: int = 0,
    is_clean: bool = False,
) -> Log:
    """Opens the log of `PARTITION` in a data directory."""
    services = make_services(disk)
    directory = LogDirectory(path, disk=services.disk)
    log = load_log(
        os.path.join(directory.path, str(PARTITION)),
        PARTITION,
        config=config,
        log_directory=directory,
        services=services,
        recovery_point=recovery_point,
        had_clean_shutdown=is_clean,
    )
    directory.logs[log.name] = log
    return log


def batch_of_bytes(size: int) -> bytearray:
    """A batch of one record, `size` bytes in all or a few less."""
    overhead = len(build_batch([(1_700_000_000_000, b"key", b"", ())])) + 6
    return build_batch([(1_700_000_000_000, b"key", b"x" * (size - overhead), ())])


@contextmanager
def temporary_directory() -> Iterator[str]:
    """A directory on the file system that TMPDIR names."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as path:
        yield path


def raise_descriptor_limit() -> None:
    """Takes all the descriptors this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
