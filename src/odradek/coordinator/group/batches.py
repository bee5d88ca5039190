"""Batches for the offsets topic, out of a group's records."""

from collections.abc import Iterator, Sequence
from typing import Final

from odradek.coordinator.group.decisions import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec

__all__ = ["build_batches"]

# Half of what a batch may have by default; records of one group that goes may be many.
_MAX_BATCH_BYTES: Final = 512 << 10
_RECORD_OVERHEAD: Final = 32  # More than the fields of a record beside key and value have.


def build_batches(records: Sequence[Record], wall_ms: int, codec: int) -> Iterator[bytearray]:
    """As few batches as can be of at most half a megabyte each; a larger record is one alone."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        key, value = record
        record_size = len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD
        if chunk and size + record_size > _MAX_BATCH_BYTES:
            yield _build(chunk, wall_ms, codec)
            chunk, size = [], 0
        chunk.append(record)
        size += record_size
    if chunk:
        yield _build(chunk, wall_ms, codec)


def _build(records: Sequence[Record], wall_ms: int, codec: int) -> bytearray:
    return build_batch([(wall_ms, key, value, ()) for key, value in records], codec=Codec(codec))
