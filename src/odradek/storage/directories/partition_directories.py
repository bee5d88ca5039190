"""Names of the sub-directories of a data directory: one for each partition, by its stage of life.

| name                                  | kind    | meaning                                     |
|---------------------------------------|---------|---------------------------------------------|
| `<topic>-<partition>`                 | LIVE    | the partition's log                         |
| `<topic>-<partition>.<32 hex>-delete` | DELETED | waits for removal                           |
| `<topic>-<partition>.<32 hex>-future` | FUTURE  | a copy that is to replace the log elsewhere |
| `<topic>-<partition>.<32 hex>-stray`  | STRAY   | nobody placed it here; kept, never served   |

Topics may contain dots and dashes: the partition is what follows the last dash, in plain decimal.
A file system takes 255 bytes of name and a topic may have 249, so the topic of a deleted or stray
directory is shortened to fit; nobody reads it again. That of a future one must stay whole.
"""

import contextlib
import os
import re
from enum import Enum
from typing import NamedTuple

from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage.paths import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX

__all__ = [
    "MAX_NAME_LENGTH",
    "PartitionDirectory",
    "PartitionKind",
    "parse_directory_name",
    "remove_directory",
    "staged_name",
]

MAX_NAME_LENGTH = 255
_INT32_MAX = 2**31 - 1

_NAME = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})"
    r"(?:\.[0-9a-f]{32}(?P<suffix>-delete|-future|-stray))?"
)


class PartitionKind(Enum):
    """What a partition directory is for; the value ends its name."""

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
    """What a directory is by its name; None if it is none of ours."""
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
        topic_partition: Whose directory it is.
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


def remove_directory(disk: Disk, path: str) -> None:
    """Removes a directory and all it holds; one that is gone already is no error.

    Raises:
        OSError: The disk refused; what is left can be removed another time.
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
