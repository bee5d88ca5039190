"""The checkpoint of compaction: `cleaner-offset-checkpoint` in every data directory.

The entry of a log is its first dirty offset. Too low costs a second cleaning; too high hides
records from compaction, and the records that they replace stay. So it must never exceed the end of
a log that grows afterwards, at whichever step a crash happens:

* it is raised after the cleaned segments are in place, durably;
* it is lowered **before** a truncation touches the log, durably (`lower`);
* a partition's entry is removed with the partition, before another one of its name is created;
* at start, an entry beyond the end of its log, or without a log, is dropped from the file before
  the first append (`load`): recovery may have cut the log, or a crash happened between two steps.

If the file is damaged, all logs are dirty from their start.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable

from odradek.errors import CorruptCheckpointError
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage.directories.checkpoints import OffsetCheckpointFile
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.log.log import Log

__all__ = ["CLEANER_OFFSET_FILE", "FirstDirtyOffsets"]

logger = logging.getLogger(__name__)

CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"


class _DirectoryFile:
    """The file of one directory: writers on two threads, of which the newest content wins."""

    __slots__ = ("_file", "_lock", "_prepared", "_written", "offsets")

    def __init__(self, path: str, disk: Disk) -> None:
        self._file = OffsetCheckpointFile(path, disk)
        self._lock = threading.Lock()
        self._prepared = 0
        self._written = 0
        self.offsets: dict[TopicPartition, int] = {}

    def read(self) -> dict[TopicPartition, int]:
        return self._file.read()

    def prepare(self) -> Callable[[], None]:
        """Returns work that writes the current offsets."""
        self._prepared += 1
        number, content = self._prepared, dict(self.offsets)

        def work() -> None:
            with self._lock:
                if number > self._written:
                    self._file.write(content)
                    self._written = number

        return work


class FirstDirtyOffsets:
    """The first dirty offset of every log. Belongs to the thread that owns the logs."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[LogDirectory, _DirectoryFile] = {}

    def load(self, directory: LogDirectory, logs: Iterable[Log]) -> None:
        """Reads the file of a directory and drops entries that its logs contradict, durably.

        Args:
            directory: The directory of the file.
            logs: All logs in it, opened and without an append since.

        Raises:
            StorageError: The disk failed, and the directory with it.
        """
        path = os.path.join(directory.path, CLEANER_OFFSET_FILE)
        file = self._files[directory] = _DirectoryFile(path, self._disk)
        ends = {log.topic_partition: log.log_end_offset for log in logs}
        found: dict[TopicPartition, int] = {}
        is_good = True
        with directory.guard("read the cleaner's checkpoint"):
            try:
                found = file.read()
            except CorruptCheckpointError as error:
                logger.warning("%s; every log is compacted from its start", error)
                is_good = False
        file.offsets = {tp: offset for tp, offset in found.items() if offset <= ends.get(tp, -1)}
        if not is_good or file.offsets != found:
            self._write(directory)

    def get(self, log: Log) -> int | None:
        """The first dirty offset as of the last pass; None if there was none."""
        file = self._files.get(log.log_directory)
        return None if file is None else file.offsets.get(log.topic_partition)

    def raise_to(self, log: Log, offset: int) -> Callable[[], None]:
        """Sets the end of a pass; returns the work that makes it durable."""
        file = self._file_of(log.log_directory)
        file.offsets[log.topic_partition] = offset
        return file.prepare()

    def lower(self, log: Log, offset: int) -> None:
        """Makes sure, durably, that no offset from `offset` on counts as clean.

        Raises:
            StorageError: The disk failed, and the directory with it.
        """
        known = self.get(log)
        if known is not None and known > offset:
            self._file_of(log.log_directory).offsets[log.topic_partition] = offset
            self._write(log.log_directory)

    def forget(self, logs: Iterable[Log]) -> list[Callable[[], None]]:
        """Drops the entries of logs; returns the work that makes it durable, if there is any."""
        changed: dict[LogDirectory, _DirectoryFile] = {}
        for log in logs:
            if self.get(log) is not None:
                file = changed[log.log_directory] = self._file_of(log.log_directory)
                del file.offsets[log.topic_partition]
        return [file.prepare() for file in changed.values()]

    def _file_of(self, directory: LogDirectory) -> _DirectoryFile:
        file = self._files.get(directory)
        if file is None:
            path = os.path.join(directory.path, CLEANER_OFFSET_FILE)
            file = self._files[directory] = _DirectoryFile(path, self._disk)
        return file

    def _write(self, directory: LogDirectory) -> None:
        work = self._files[directory].prepare()
        with directory.guard("write the cleaner's checkpoint"):
            work()
