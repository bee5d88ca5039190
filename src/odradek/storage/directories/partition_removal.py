"""Putting partitions out of service: renamed at once, removed when no reader can be left.

The rename is durable before the last step, so a partition is either wholly there or gone. Its
files stay open for the delete delay, because a reader may be sending from them; after it the
handles close and the directory of a deleted partition is removed. What a stop or a crash leaves
behind bears a name that says so, and is removed after the next start.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from odradek.errors import StorageError
from odradek.files import Disk
from odradek.storage.directories.background import Steps
from odradek.storage.directories.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.directories.partition_directories import (
    PartitionKind,
    remove_directory,
    staged_name,
)
from odradek.storage.log.log import Log, LogServices

__all__ = ["PartitionRemoval"]

logger = logging.getLogger(__name__)

# Partitions that follow their directories before others on the loop get their turn; each takes
# some 25 us there.
_LOGS_PER_TURN: Final = 40


class PartitionRemoval:
    """Renames partition directories and removes them later."""

    def __init__(self, services: LogServices) -> None:
        self._services = services

    def put_aside_steps(self, logs: Sequence[Log], kind: PartitionKind) -> Steps[None]:
        """Renames the directories of live logs of one data directory.

        The logs refuse everything from the first step on. A swap of segments that is under way
        ends where it is: the files are not served any more, and a start with them would settle it.

        Raises:
            OSError: The disk refused; some of the directories may have been renamed.
            StorageError: The data directory failed meanwhile.
        """
        directory, disk = logs[0].log_directory, self._services.disk
        for log in logs:
            log.retire("the partition is gone")
        for start in range(0, len(logs), _LOGS_PER_TURN):
            portion = logs[start : start + _LOGS_PER_TURN]
            names = {log: self._unused_name(log, kind) for log in portion}
            yield partial(_rename, disk, directory.path, {log.name: names[log] for log in portion})
            _check_online(directory)
            for log, name in names.items():
                directory.logs[name] = directory.logs.pop(log.name)
                log.follow_directory(os.path.join(directory.path, name))
                logger.info("%s: renamed to %s", log.topic_partition, log.directory)
                self._forget_later(log, kind)
        yield partial(disk.fsync_dir, directory.path)
        _check_online(directory)

    def _forget_later(self, log: Log, kind: PartitionKind) -> None:
        directory, name = log.log_directory, log.name

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
        disk = self._services.disk

        def done(error: BaseException | None) -> None:
            if error is None:
                logger.info("removed %s", path)
                return
            logger.warning("%s is removed after the next start: %s", path, error)
            if isinstance(error, OSError) and not is_out_of_descriptors(error):
                directory.fail(f"remove {path}", error)

        self._services.tasks.submit(lambda: remove_directory(disk, path), done)


def _rename(disk: Disk, parent: str, names: Mapping[str, str]) -> None:
    for old, new in names.items():
        disk.rename(os.path.join(parent, old), os.path.join(parent, new))


def _check_online(directory: LogDirectory) -> None:
    if (reason := directory.offline_reason) is not None:
        raise StorageError(directory.path, f"renaming partitions: offline because {reason}")
