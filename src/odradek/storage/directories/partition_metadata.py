"""The file `partition.metadata`: which topic a partition directory belongs to, by id.

Content, two lines::

    version: 0
    topic_id: <22 characters of base64url>
"""

import os
import re
import uuid

from odradek.errors import CorruptCheckpointError
from odradek.files import Disk, read_whole, write_atomically
from odradek.model import parse_uuid, uuid_text

__all__ = ["PARTITION_METADATA_FILE", "read_topic_id", "write_topic_id"]

PARTITION_METADATA_FILE = "partition.metadata"

# The last line may end with a line feed, as after an edit by hand.
_CONTENT = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?")


def read_topic_id(disk: Disk, directory: str) -> uuid.UUID | None:
    """The topic id of a partition directory; None if it has none.

    Raises:
        CorruptCheckpointError: The file says something else.
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
    """Says durably which topic the directory belongs to."""
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    write_atomically(disk, path, f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode("ascii"))
