"""Checkpoint files: small text files of offsets that survive a restart.

    0                    format version
    2                    number of entries
    orders 0 4807        one line per entry, single spaces, each line ended by a line feed
    orders 1 4811

An entry is ``topic partition offset``, or ``epoch start_offset`` in ``leader-epoch-checkpoint``.

The file is read strictly, because it is only ever replaced as a whole: a file that does not have
exactly this form was damaged, and none of its entries is used. Numbers are plain decimal digits
without sign or leading zeros. A partition named twice counts as damage like a malformed line: one
of the two lines is wrong, and a recovery point that is too high would hide lost data.
A missing or empty file has no entries.

The owner of a damaged file decides how to continue without it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from odradek.errors import CorruptCheckpointError
from odradek.files import Disk, read_whole, write_atomically
from odradek.model import TopicPartition

__all__ = [
    "OffsetCheckpointFile",
    "encode_epoch_checkpoint",
    "encode_offset_checkpoint",
    "parse_epoch_checkpoint",
    "parse_offset_checkpoint",
]

_VERSION = b"0"
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1

# Nineteen digits hold every int64; the range is checked after the conversion.
_NUMBER = rb"(0|[1-9][0-9]{0,18})"
_TOPIC = rb"([A-Za-z0-9._-]{1,249})"
_COUNT_LINE = re.compile(_NUMBER)
_OFFSET_LINE = re.compile(_TOPIC + b" " + _NUMBER + b" " + _NUMBER)
_EPOCH_LINE = re.compile(_NUMBER + b" " + _NUMBER)

# Bytes of a damaged line in an error message: enough to recognise it.
_SHOWN_BYTES = 80


class OffsetCheckpointFile:
    """One file of offsets per partition: recovery points, log starts, high watermarks."""

    __slots__ = ("_disk", "path")

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def read(self) -> dict[TopicPartition, int]:
        """The entries; none when the file is missing or empty.

        Raises:
            CorruptCheckpointError: The file is malformed.
            OSError: It cannot be read.
        """
        try:
            data = read_whole(self._disk, self.path)
        except FileNotFoundError:
            return {}
        return parse_offset_checkpoint(data, self.path)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the entries; durable on return.

        Raises:
            OSError: The disk refused; the old content is still there.
        """
        write_atomically(self._disk, self.path, encode_offset_checkpoint(offsets))


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The file for these offsets, sorted by partition."""
    lines = [b"%s %d %d" % (tp.topic.encode(), tp.partition, offsets[tp]) for tp in sorted(offsets)]
    assert all(map(_OFFSET_LINE.fullmatch, lines)), "an entry that could not be read back"
    return _encode(lines)


def parse_offset_checkpoint(data: bytes, path: str) -> dict[TopicPartition, int]:
    """The offsets in a file's bytes; `path` is for the error message.

    Raises:
        CorruptCheckpointError: The bytes are malformed.
    """
    offsets: dict[TopicPartition, int] = {}
    for line_number, line in _entry_lines(data, path):
        match = _OFFSET_LINE.fullmatch(line)
        if match is None:
            raise _malformed(path, line_number, "'topic partition offset'", line)
        tp = TopicPartition(match[1].decode("ascii"), int(match[2]))
        offset = int(match[3])
        if tp.partition > _INT32_MAX or offset > _INT64_MAX:
            raise _malformed(path, line_number, "an int32 partition and an int64 offset", line)
        if tp in offsets:
            raise _malformed(path, line_number, "each partition once", line)
        offsets[tp] = offset
    return offsets


def encode_epoch_checkpoint(entries: Iterable[tuple[int, int]]) -> bytes:
    """The file for these (leader epoch, start offset) pairs."""
    return _encode([b"%d %d" % entry for entry in entries])


def parse_epoch_checkpoint(data: bytes, path: str) -> list[tuple[int, int]]:
    """The (leader epoch, start offset) pairs in a file's bytes, both strictly increasing.

    Raises:
        CorruptCheckpointError: The bytes are malformed, or the pairs do not increase.
    """
    entries: list[tuple[int, int]] = []
    last_epoch = last_start_offset = -1
    for line_number, line in _entry_lines(data, path):
        match = _EPOCH_LINE.fullmatch(line)
        if match is None:
            raise _malformed(path, line_number, "'epoch start_offset'", line)
        epoch, start_offset = int(match[1]), int(match[2])
        if epoch > _INT32_MAX or start_offset > _INT64_MAX:
            raise _malformed(path, line_number, "an int32 epoch and an int64 offset", line)
        if epoch <= last_epoch or start_offset <= last_start_offset:
            expected = f"an epoch above {last_epoch} and an offset above {last_start_offset}"
            raise _malformed(path, line_number, expected, line)
        entries.append((epoch, start_offset))
        last_epoch, last_start_offset = epoch, start_offset
    return entries


def _encode(lines: list[bytes]) -> bytes:
    return b"\n".join([_VERSION, b"%d" % len(lines), *lines, b""])


def _entry_lines(data: bytes, path: str) -> Iterator[tuple[int, bytes]]:
    """Numbered entry lines, after a check of version, count and end of the file."""
    if not data:
        return iter(())
    lines = data.split(b"\n")
    if lines[0] != _VERSION:
        raise _malformed(path, 1, "version 0", lines[0])
    if lines.pop():
        raise CorruptCheckpointError(
            path, len(lines) + 1, expected="a line feed at the end", found="none"
        )
    if len(lines) == 1:
        raise CorruptCheckpointError(path, 2, expected="the entry count", found="end of file")
    if _COUNT_LINE.fullmatch(lines[1]) is None:
        raise _malformed(path, 2, "the entry count", lines[1])
    if int(lines[1]) != len(lines) - 2:
        found = f"{len(lines) - 2} lines of them"
        raise CorruptCheckpointError(path, 2, expected=f"{int(lines[1])} entries", found=found)
    return enumerate(lines[2:], start=3)


def _malformed(path: str, line_number: int, expected: str, line: bytes) -> CorruptCheckpointError:
    return CorruptCheckpointError(path, line_number, expected=expected, found=line[:_SHOWN_BYTES])
