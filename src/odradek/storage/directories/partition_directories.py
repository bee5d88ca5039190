"""The sub-directories of a data directory, one for each partition: names, topic ids, removal.

The name tells the kind:

| name                                  | kind    | meaning                                     |
|---------------------------------------|---------|---------------------------------------------|
| `<topic>-<partition>`                 | LIVE    | the partition's log                         |
| `<topic>-<partition>.<32 hex>-delete` | DELETED | waits for removal                           |
| `<topic>-<partition>.<32 hex>-future` | FUTURE  | a copy that is to replace the log elsewhere |
| `<topic>-<partition>.<32 hex>-stray`  | STRAY   | not assigned to this broker; never served   |

Topics may contain dots and dashes: the partition follows the last dash, in plain decimal. A file
name has at most 255 bytes and a topic may have 249, so the topic of a deleted or stray directory is
shortened to fit, since it is never read again. That of a future one must stay whole.

The file `partition.metadata` says by id which topic a directory belongs to, in two lines::

    version: 0
    topic_id: <22 characters of base64url>

A partition is taken out of service by a rename at once, and removed when no reader can be left
(`PartitionRemoval`). The rename is durable before the last step, so that a partition either exists
with all its files or does not exist. Its files stay open for the delete delay, because a connection
may be sending from them; after it the files are closed and the directory of a deleted partition is
removed. A directory that remains after a stop or a crash has a name that says so, and is removed
after the next start.
"""

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from odradek.errors import CorruptCheckpointError, StorageError
from odradek.files import Disk, read_whole, write_atomically
from odradek.model import TopicPartition, parse_uuid, uuid_text
from odradek.storage.directories.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.log.log import Log
from odradek.storage.log.services import LogServices, Steps
from odradek.storage.paths import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX

__all__ = [
    "MAX_NAME_LENGTH",
    "PARTITION_METADATA_FILE",
    "PartitionDirectory",
    "PartitionKind",
    "PartitionRemoval",
    "parse_directory_name",
    "read_topic_id",
    "remove_directory",
    "staged_name",
    "write_topic_id",
]

logger = logging.getLogger(__name__)

MAX_NAME_LENGTH = 255
PARTITION_METADATA_FILE = "partition.metadata"

_INT32_MAX = 2**31 - 1

_NAME = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})"
    r"(?:\.[0-9a-f]{32}(?P<suffix>-delete|-future|-stray))?"
)

# The last line may end with a line feed, as after an edit by hand.
_CONTENT = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?")

# Partitions per turn of the loop whose logs get the new paths of their directories; each takes some
# 25 us.
_LOGS_PER_TURN: Final = 40


class PartitionKind(Enum):
    """The purpose of a partition directory; the value ends its name."""

    LIVE = ""
    DELETED = DELETE_DIR_SUFFIX
    FUTURE = FUTURE_DIR_SUFFIX
    STRAY = STRAY_DIR_SUFFIX


class PartitionDirectory(NamedTuple):
    """A sub-directory of a data directory."""

    name: str
    topic_partition: TopicPartition  # Of a deleted or stray one the topic may be cut short.
    kind: PartitionKind


def parse_directory_name(name: str) -> PartitionDirectory | None:
    """Partition and kind of a directory by its name; None if it is not a partition directory."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    topic, partition = match["topic"], int(match["partition"])
    if partition > _INT32_MAX or topic in (".", ".."):
        return None
    kind = PartitionKind(match["suffix"] or "")
    return PartitionDirectory(name, TopicPartition(topic, partition), kind)


def staged_name(topic_partition: TopicPartition, kind: PartitionKind, unique_id: int) -> str:
    """The name of a partition directory that is not the live one.

    Args:
        topic_partition: The partition of the directory.
        kind: Any but `LIVE`.
        unique_id: 128 bits, so that a partition can be deleted many times over.

    Raises:
        ValueError: The name would be too long, and its topic is still needed.
    """
    assert kind is not PartitionKind.LIVE, "a live directory is named by its partition alone"
    topic, partition = topic_partition
    rest = f"-{partition}.{unique_id:032x}{kind.value}"
    room = MAX_NAME_LENGTH - len(rest)
    if kind is PartitionKind.FUTURE and len(topic) > room:
        raise ValueError(
            f"{topic_partition} cannot move to another directory: its topic has {len(topic)}"
            f" characters, {room} leave room for {rest!r}"
        )
    return topic[:room] + rest


def read_topic_id(disk: Disk, directory: str) -> uuid.UUID | None:
    """The topic id of a partition directory; None if it has none.

    Raises:
        CorruptCheckpointError: The file has another form.
    """
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    try:
        data = read_whole(disk, path)
    except FileNotFoundError:
        return None
    match = _CONTENT.fullmatch(data)
    if match is None:
        raise CorruptCheckpointError(
            path, 1, expected="the lines 'version: 0' and 'topic_id: <id>'", found=data[:80]
        )
    try:
        topic_id = parse_uuid(match[1].decode("ascii"))
    except ValueError as error:
        raise CorruptCheckpointError(
            path, 2, expected="an id of 22 characters", found=str(error)
        ) from None
    if not topic_id.int:
        raise CorruptCheckpointError(path, 2, expected="an id other than zero", found=match[1])
    return topic_id


def write_topic_id(disk: Disk, directory: str, topic_id: uuid.UUID) -> None:
    """Writes, durably, the id of the topic that the directory belongs to."""
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    write_atomically(disk, path, f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode("ascii"))


class PartitionRemoval:
    """Renames partition directories and removes them later."""

    def __init__(self, services: LogServices) -> None:
        self._services = services

    def put_aside_steps(self, logs: Sequence[Log], kind: PartitionKind) -> Steps[None]:
        """Renames the directories of live logs of one data directory.

        The logs refuse every call from the first step on. A pending swap of segments is abandoned:
        the files are not served any more, and a load of them would complete it.

        Raises:
            OSError: The disk refused; some of the directories may have been renamed.
            StorageError: The data directory failed meanwhile.
        """
        directory, disk = logs[0].log_directory, self._services.disk
        for log in logs:
            log.retire("the partition is gone")
        for start in range(0, len(logs), _LOGS_PER_TURN):
            portion = logs[start : start + _LOGS_PER_TURN]
            paths = {log: self.unused_path(directory, log.topic_partition, kind) for log in portion}
            names = {log: os.path.basename(path) for log, path in paths.items()}
            yield partial(_rename, disk, directory.path, {log.name: names[log] for log in portion})
            _check_online(directory)
            for log, name in names.items():
                directory.logs[name] = directory.logs.pop(log.name)
                log.follow_directory(os.path.join(directory.path, name))
                logger.debug("%s: renamed to %s", log.topic_partition, log.directory)
                self.forget_later(log, kind)
        yield partial(disk.fsync_dir, directory.path)
        _check_online(directory)

    def forget_later(self, log: Log, kind: PartitionKind) -> None:
        """Closes a log that was put aside, and removes it if it is deleted, after the delay."""
        directory, name = log.log_directory, log.name

        def forget() -> None:
            log.mark_offline("the partition is gone")
            directory.logs.pop(name, None)
            if kind is PartitionKind.DELETED:
                self._remove(directory, log.directory)

        self._services.tasks.call_later(log.config.file_delete_delay_ms, forget)

    def unused_path(self, directory: LogDirectory, tp: TopicPartition, kind: PartitionKind) -> str:
        """A path of that kind for a partition, which no file has.

        Raises:
            ValueError: As `staged_name`.
        """
        random = self._services.random
        while True:
            name = staged_name(tp, kind, random.getrandbits(128))
            path = os.path.join(directory.path, name)
            if not os.path.exists(path):
                return path

    def remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        """Removes a directory that an earlier process has renamed."""
        self._services.tasks.call_later(delay_ms, lambda: self._remove(directory, path))

    def _remove(self, directory: LogDirectory, path: str) -> None:
        if not directory.is_online:
            return  # Failed, or unlocked: then it may have another owner by now.
        disk = self._services.disk

        def done(error: BaseException | None) -> None:
            if error is None:
                logger.debug("removed %s", path)
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


def remove_directory(disk: Disk, path: str) -> None:
    """Removes a directory with its content; one that does not exist is no error.

    Raises:
        OSError: The disk refused; the rest can be removed another time.
    """
    try:
        with os.scandir(path) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except FileNotFoundError:
        return
    for child, is_directory in found:
        if is_directory:
            remove_directory(disk, child)
        else:
            with contextlib.suppress(FileNotFoundError):  # A segment's delayed removal came first.
                disk.unlink(child)
    with contextlib.suppress(FileNotFoundError):
        disk.rmdir(path)
