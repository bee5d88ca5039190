"""Putting partitions out of service: renamed at once, removed when no reader can be left.

The rename is durable before a caller goes on, so a partition is either wholly there or gone. Its
files stay open for the delete delay, because a reader may be sending from them; after it the
handles close and the directory of a deleted partition is removed. What a stop or a crash leaves
behind bears a name that says so, and is removed after the next start.
"""

import logging
import os

from odradek.errors import StorageError
from odradek.storage.log import Log, LogServices
from odradek.storage.log_directory import LogDirectory
from odradek.storage.partition_directories import PartitionKind, remove_directory, staged_name

__all__ = ["PartitionRemoval"]

logger = logging.getLogger(__name__)


class PartitionRemoval:
    """Renames partition directories and removes them later."""

    def __init__(self, services: LogServices) -> None:
        self._services = services

    def put_aside(self, log: Log, kind: PartitionKind) -> None:
        """Renames the directory of a live log, which refuses everything from then on.

        Raises:
            StorageError: The disk failed.
        """
        old_name, name = log.name, self._unused_name(log, kind)
        log.rename_directory(name)
        directory = log.log_directory
        directory.logs[name] = directory.logs.pop(old_name)
        log.retire(f"the partition is gone, its files are in {name}")
        logger.info("%s: renamed to %s", log.topic_partition, log.directory)

        def forget() -> None:
            log.mark_offline("the partition is gone")
            directory.logs.pop(name, None)
            if kind is PartitionKind.DELETED:
                self._remove(directory, log.directory)

        self._services.tasks.call_later(log.config.file_delete_delay_ms, forget)

    def _unused_name(self, log: Log, kind: PartitionKind) -> str:
        random, directory = self._services.random, log.log_directory
        name = staged_name(log.topic_partition, kind, random.getrandbits(128))
        while os.path.exists(os.path.join(directory.path, name)):
            name = staged_name(log.topic_partition, kind, random.getrandbits(128))
        return name

    def remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        """Removes a directory that an earlier process had put aside."""
        self._services.tasks.call_later(delay_ms, lambda: self._remove(directory, path))

    def _remove(self, directory: LogDirectory, path: str) -> None:
        if not directory.is_online:
            return  # Failed, or let go: then it may have another owner by now.
        try:
            with directory.guard(f"remove {path}"):
                remove_directory(self._services.disk, path)
        except (StorageError, OSError) as error:
            logger.warning("%s is removed after the next start: %s", path, error)
        else:
            logger.info("removed %s", path)
