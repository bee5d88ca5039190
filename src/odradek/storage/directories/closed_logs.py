"""The logs of a data directory as a clean stop left them: the file ``closed-logs``.

Batches, indexes and checkpoints do not show every loss. A `.log` file that is gone, or ends between
two batches, looks like a compacted one; a segment whose transaction index is gone with its proof
looks like one without aborted transactions; and a checkpoint has no checksum. So a stop that closes
all logs cleanly records their state::

    0 5b3f00c2             format version; CRC-32C of all that follows
    orders 0 120 4807 2    topic, partition, log start as its checkpoint has it, log end, segments
    0 1048211 0 00000000   base offset, bytes; bytes and CRC-32C of its aborted transactions
    4000 88121 34 9a01e57c

The clean-shutdown marker, written last, names the checksum. The file is used only with the marker
that names it, and once: after any other stop, also of Apache Kafka, nothing is known. A transaction
index that could not be read at the stop has -1 bytes.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from odradek.errors import CorruptCheckpointError
from odradek.model import TopicPartition

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

__all__ = [
    "CLOSED_LOGS_FILE",
    "ClosedLog",
    "ClosedSegment",
    "checksum_of_closed_logs",
    "describe_closed_logs",
    "encode_closed_logs",
    "parse_closed_logs",
]

CLOSED_LOGS_FILE = "closed-logs"

_VERSION = b"0"
_HEAD = re.compile(rb"0 ([0-9a-f]{8})")
_LOG_LINE = re.compile(rb"([A-Za-z0-9._-]{1,249}) (\d{1,10}) (\d{1,19}) (\d{1,19}) (\d{1,10})")
_SEGMENT_LINE = re.compile(rb"(\d{1,19}) (\d{1,19}) (-1|\d{1,19}) ([0-9a-f]{8})")
_SHOWN_BYTES = 80


class ClosedSegment(NamedTuple):
    """A segment as a stop left it."""

    base_offset: int
    size: int  # Of the log file.
    transaction_bytes: int  # Of the transaction index; -1: not known.
    transaction_crc: int


class ClosedLog(NamedTuple):
    """A log as a stop left it."""

    log_start_offset: int  # As its checkpoint has it: 0 if the log starts with a segment.
    log_end_offset: int
    segments: tuple[ClosedSegment, ...]


def describe_closed_logs(
    logs: Iterable["Log"], log_starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ClosedLog]:
    """The state of logs that were closed just now; `log_starts` as checkpointed."""
    return {
        log.topic_partition: ClosedLog(
            log_starts.get(log.topic_partition, 0),
            log.log_end_offset,
            tuple(
                ClosedSegment(segment.base_offset, segment.size, *segment.transaction_index.sealed)
                for segment in log.segments
            ),
        )
        for log in logs
    }


def encode_closed_logs(logs: Mapping[TopicPartition, ClosedLog]) -> bytes:
    """The file for these logs, sorted by partition."""
    lines = []
    for tp in sorted(logs):
        start, end, segments = logs[tp]
        lines.append(
            b"%s %d %d %d %d\n" % (tp.topic.encode(), tp.partition, start, end, len(segments))
        )
        lines.extend(b"%d %d %d %08x\n" % segment for segment in segments)
    body = b"".join(lines)
    return b"%s %08x\n%s" % (_VERSION, crc32c(body), body)


def checksum_of_closed_logs(data: bytes) -> str:
    """The checksum by which a marker names the file with these bytes; empty without one."""
    match = _HEAD.match(data)
    return "" if match is None else match[1].decode()


def parse_closed_logs(data: bytes, path: str) -> dict[TopicPartition, ClosedLog]:
    """The logs in a file's bytes; `path` is for the error message.

    Raises:
        CorruptCheckpointError: The bytes are malformed, or do not match their checksum.
    """
    head, _, body = data.partition(b"\n")
    match = _HEAD.fullmatch(head)
    if match is None:
        raise _malformed(path, 1, "version 0 and a checksum", head)
    if int(match[1], 16) != crc32c(body):
        raise _malformed(path, 1, f"checksum {crc32c(body):08x}", match[1])
    lines = iter(enumerate(body.splitlines(), start=2))
    logs: dict[TopicPartition, ClosedLog] = {}
    for number, line in lines:
        match = _LOG_LINE.fullmatch(line)
        if match is None:
            raise _malformed(path, number, "'topic partition start end segments'", line)
        tp = TopicPartition(match[1].decode("ascii"), int(match[2]))
        segments = []
        for _ in range(int(match[5])):
            number, line = next(lines, (number + 1, b""))
            found = _SEGMENT_LINE.fullmatch(line)
            if found is None:
                raise _malformed(path, number, "'base bytes transaction-bytes crc'", line)
            base, size, length = int(found[1]), int(found[2]), int(found[3])
            segments.append(ClosedSegment(base, size, length, int(found[4], 16)))
        logs[tp] = ClosedLog(int(match[3]), int(match[4]), tuple(segments))
    return logs


def _malformed(path: str, line_number: int, expected: str, line: bytes) -> CorruptCheckpointError:
    return CorruptCheckpointError(path, line_number, expected=expected, found=line[:_SHOWN_BYTES])
