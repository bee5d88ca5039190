"""The file `replication-offset-checkpoint` of each data directory: high watermarks over a restart.

A file covers all partitions of its directory, so entries of partitions that have no role yet are
kept as they were read: a broker that is killed before the controller has assigned all roles must
not restart with a high watermark of 0 for the rest (KAFKA-1647). Nothing is written before the
first role is assigned.
"""

import logging
from collections.abc import Iterable
from functools import partial

from odradek.errors import CorruptCheckpointError, StorageError
from odradek.model import TopicPartition
from odradek.storage.directories.checkpoints import OffsetCheckpointFile
from odradek.storage.directories.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.log.log import Log
from odradek.storage.log.services import BackgroundTasks, Steps

__all__ = ["HIGH_WATERMARK_FILE", "HighWatermarkCheckpoints"]

logger = logging.getLogger(__name__)

HIGH_WATERMARK_FILE = "replication-offset-checkpoint"


class HighWatermarkCheckpoints:
    """Reads and writes the checkpoints of all directories."""

    def __init__(self) -> None:
        # By directory, entries of partitions that have no role yet; read on the first use.
        self._waiting: dict[LogDirectory, dict[TopicPartition, int]] = {}
        self._being_written: set[LogDirectory] = set()

    def load(self, directories: Iterable[LogDirectory]) -> Steps[None]:
        """Reads the checkpoints of the directories that were not read yet.

        A directory whose file cannot be read is offline afterwards.
        """
        for directory in directories:
            if directory in self._waiting:
                continue
            found: list[dict[TopicPartition, int]] = []
            try:
                yield partial(_read_into, found, directory)
            except OSError as error:
                if not is_out_of_descriptors(error):
                    directory.fail("read high watermarks", error)
                    continue
                raise
            self._waiting.setdefault(directory, found[0])

    def find(self, log: Log) -> int:
        """The checkpointed high watermark of a log that has no role yet; its start without one.

        Raises:
            StorageError: The directory failed.
        """
        waiting = self._waiting.get(log.log_directory)
        if waiting is None:
            waiting = self._waiting[log.log_directory] = _read(log.log_directory)
        return waiting.get(log.topic_partition, log.log_start_offset)

    def forget(self, tp: TopicPartition) -> None:
        """Drops the entry of a partition that now has a role, or is gone."""
        for waiting in self._waiting.values():
            waiting.pop(tp, None)

    def write(self, logs: Iterable[Log], tasks: BackgroundTasks | None = None) -> None:
        """Writes the high watermarks of the logs that have a role, each to its directory.

        A directory that fails is offline afterwards; the others are written.

        Args:
            logs: The logs of all partitions that have a role.
            tasks: Runs the writes in the background. Without it the files are durable on return,
                and no background write may be under way.
        """
        offsets = {
            directory: {tp: offset for tp, offset in waiting.items() if str(tp) in directory.logs}
            for directory, waiting in self._waiting.items()
            if directory.is_online
        }
        for log in logs:
            if log.log_directory in offsets:
                offsets[log.log_directory][log.topic_partition] = log.high_watermark
        for directory, entries in offsets.items():
            try:
                self._write(directory, entries, tasks)
            except (StorageError, OSError) as error:
                logger.warning("high watermarks are not written: %s", error)

    def _write(
        self,
        directory: LogDirectory,
        offsets: dict[TopicPartition, int],
        tasks: BackgroundTasks | None,
    ) -> None:
        file = OffsetCheckpointFile(_path(directory), directory.disk)
        if tasks is None:
            with directory.guard("checkpoint high watermarks"):
                file.write(offsets)
            return
        if directory in self._being_written:
            return  # The disk is slow; the next checkpoint follows soon.

        def done(error: BaseException | None) -> None:
            self._being_written.discard(directory)
            if isinstance(error, OSError) and not is_out_of_descriptors(error):
                directory.fail("checkpoint high watermarks", error)

        self._being_written.add(directory)
        tasks.submit(lambda: file.write(offsets), done)


def _read(directory: LogDirectory) -> dict[TopicPartition, int]:
    with directory.guard("read high watermarks"):
        return _read_file(directory)


def _read_file(directory: LogDirectory) -> dict[TopicPartition, int]:
    try:
        return OffsetCheckpointFile(_path(directory), directory.disk).read()
    except CorruptCheckpointError as error:
        logger.warning("%s; high watermarks begin at the log starts", error)
        return {}


def _read_into(found: list[dict[TopicPartition, int]], directory: LogDirectory) -> None:
    found.append(_read_file(directory))


def _path(directory: LogDirectory) -> str:
    return f"{directory.path}/{HIGH_WATERMARK_FILE}"
