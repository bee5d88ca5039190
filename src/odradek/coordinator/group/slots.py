"""What a group keeps per partition: the committed offset, and the bytes its records begin with.

A commit of one partition becomes one record of the offsets topic. Most of it never changes for
that partition, so it is kept ready::

    front   length varint, attributes 0, timestamp delta 0
            offset delta                                     one byte below 64
    back    key length varint, key, value length varint 24, value version 3
            offset, leader epoch, metadata length 0, commit timestamp, header count 0
"""

from typing import Final, TypeAlias

from odradek.coordinator.group.records import OffsetAndMetadata, encode_offset_key
from odradek.records.varint import encode_varint

__all__ = ["EMPTY_METADATA_VALUE_SIZE", "OffsetSlot", "TransactionalOffsets"]

EMPTY_METADATA_VALUE_SIZE: Final = 24
_BACK_END: Final = encode_varint(EMPTY_METADATA_VALUE_SIZE) + b"\x00\x03"

# Producer id to what its open transaction committed: partition to offset of the batch and value.
TransactionalOffsets: TypeAlias = dict[int, dict[tuple[str, int], tuple[int, OffsetAndMetadata]]]


class OffsetSlot:
    """One partition's place in a group."""

    __slots__ = ("back", "committed", "front", "pending_count", "record_offset")

    def __init__(self, group_id: str, topic: str, partition: int) -> None:
        key = encode_offset_key(group_id, topic, partition)
        self.back = encode_varint(len(key)) + key + _BACK_END
        # Attributes, timestamp delta, offset delta before, value and header count behind.
        length = 3 + len(self.back) - 2 + EMPTY_METADATA_VALUE_SIZE + 1
        self.front = encode_varint(length) + b"\x00\x00"
        self.committed: OffsetAndMetadata | None = None  # Durable. None: none yet.
        self.record_offset = -1  # Of the batch that holds `committed`.
        self.pending_count = 0  # Commits that are being written.

    @property
    def key(self) -> bytes:
        """The key of its records."""
        head = 1 if self.back[0] < 0x80 else 2 if self.back[1] < 0x80 else 3
        return self.back[head : -len(_BACK_END)]
