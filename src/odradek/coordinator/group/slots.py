"""What a group keeps per partition: the committed offset, and the bytes its records begin with.

A commit of one partition becomes one record of the offsets topic. All of its `head` but the offset
delta never changes for that partition, so it is kept ready::

    length varint, attributes 0, timestamp delta 0
    offset delta                                        at `delta_position`, one byte below 64
    key length varint, key, value length varint 24, value version 3

Behind it: offset, leader epoch, metadata length 0, commit timestamp, header count 0.
"""

from typing import Final, TypeAlias

from odradek.coordinator.group.records import OffsetAndMetadata, encode_offset_key
from odradek.records.varint import encode_varint

__all__ = ["EMPTY_METADATA_VALUE_SIZE", "OffsetSlot", "TransactionalOffsets"]

EMPTY_METADATA_VALUE_SIZE: Final = 24
_HEAD_END: Final = encode_varint(EMPTY_METADATA_VALUE_SIZE) + b"\x00\x03"

# Producer id to what its open transaction committed: partition to offset of the batch and value.
TransactionalOffsets: TypeAlias = dict[int, dict[tuple[str, int], tuple[int, OffsetAndMetadata]]]


class OffsetSlot:
    """One partition's place in a group."""

    __slots__ = ("committed", "delta_position", "head", "pending_count", "record_offset")

    def __init__(self, group_id: str, topic: str, partition: int) -> None:
        key = encode_offset_key(group_id, topic, partition)
        back = encode_varint(len(key)) + key + _HEAD_END
        # Attributes, timestamp delta, offset delta before, value and header count behind.
        length = 3 + len(back) - 2 + EMPTY_METADATA_VALUE_SIZE + 1
        front = encode_varint(length) + b"\x00\x00"
        self.delta_position = len(front)
        self.head = front + b"\x00" + back  # With offset delta 0.
        self.committed: OffsetAndMetadata | None = None  # Durable. None: none yet.
        self.record_offset = -1  # Of the batch that holds `committed`.
        self.pending_count = 0  # Commits that are being written.

    @property
    def key(self) -> bytes:
        """The key of its records."""
        start = self.delta_position + 1
        while self.head[start] >= 0x80:
            start += 1
        return self.head[start + 1 : -len(_HEAD_END)]
