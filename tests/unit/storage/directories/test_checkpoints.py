"""Checkpoint files: 01 §8.7."""

import itertools
import os
from pathlib import Path

import pytest

from odradek.errors import CorruptCheckpointError, LogDataError
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage.directories.checkpoints import (
    OffsetCheckpointFile,
    encode_epoch_checkpoint,
    encode_offset_checkpoint,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
)
from odradek.testing import SimDisk, SimulatedCrash

DIR_1 = b"0\n1\nt-a 0 4807\n"


def test_reads_an_entry_and_writes_it_back_byte_identical(tmp_path: Path) -> None:
    """01:DIR-1."""
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(DIR_1)
    file = OffsetCheckpointFile(str(path), Disk())

    offsets = file.read()
    path.unlink()
    file.write(offsets)

    assert offsets == {TopicPartition("t-a", 0): 4807}
    assert path.read_bytes() == DIR_1
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("data", "line_number", "expected", "found"),
    [
        pytest.param(b"1\n1\nt 0 5\n", 1, "version 0", "b'1'", id="01:DIR-2 version"),
        pytest.param(b"0\n2\nt 0 5\n", 2, "2 entries", "1 lines", id="01:DIR-2 count"),
        pytest.param(
            b"0\n1\nt 0\n", 3, "'topic partition offset'", "b't 0'", id="01:DIR-2 two fields"
        ),
        pytest.param(b"0\n0\nt 0 5\n", 2, "0 entries", "1 lines", id="more lines than counted"),
        pytest.param(b"0\n1\nt 0 5", 3, "line feed", "none", id="torn last line"),
        pytest.param(b"0", 1, "line feed", "none", id="torn version"),
        pytest.param(b"0\n", 2, "entry count", "end of file", id="no count"),
        pytest.param(b"0\nx\n", 2, "entry count", "b'x'", id="count is no number"),
        pytest.param(b"0\n-1\n", 2, "entry count", "b'-1'", id="negative count"),
        pytest.param(b"\n", 1, "version 0", "b''", id="blank file"),
        pytest.param(b"0\r\n0\r\n", 1, "version 0", "\\r", id="carriage return"),
        pytest.param(b"0\n1\n\n", 3, "'topic", "b''", id="blank line"),
        pytest.param(b"0\n1\nt  0 5\n", 3, "'topic", "t  0 5", id="two spaces"),
        pytest.param(b"0\n1\nt 0 5 \n", 3, "'topic", "t 0 5 ", id="space at the end"),
        pytest.param(b"0\n1\nt\t0\t5\n", 3, "'topic", "\\t", id="tabs"),
        pytest.param(b"0\n1\nt 0 5 6\n", 3, "'topic", "t 0 5 6", id="four fields"),
        pytest.param(b"0\n1\n 0 5\n", 3, "'topic", "b' 0 5'", id="no topic"),
        pytest.param(b"0\n1\nt 0 -5\n", 3, "'topic", "-5", id="negative offset"),
        pytest.param(b"0\n1\nt -1 5\n", 3, "'topic", "-1", id="negative partition"),
        pytest.param(b"0\n1\nt 0 +5\n", 3, "'topic", "+5", id="sign"),
        pytest.param(b"0\n1\nt 0 05\n", 3, "'topic", "05", id="leading zero"),
        pytest.param(b"0\n1\nt 0 5_0\n", 3, "'topic", "5_0", id="underscore"),
        pytest.param(
            "0\n1\nt 0 \u0665\n".encode(), 3, "'topic", "\\xd9", id="digit that is not ASCII"
        ),
        pytest.param("0\n1\nt\u00e9 0 5\n".encode(), 3, "'topic", "\\xc3", id="topic not ASCII"),
        pytest.param(
            b"0\n1\nt 0 9223372036854775808\n", 3, "int64 offset", "808", id="above int64"
        ),
        pytest.param(b"0\n1\nt 2147483648 5\n", 3, "int32 partition", "648", id="above int32"),
        pytest.param(
            b"0\n1\nt 0 " + b"9" * 5000 + b"\n", 3, "'topic", "t 0 999", id="endless number"
        ),
        pytest.param(
            b"0\n2\nt 0 5\nt 0 6\n", 4, "each partition once", "t 0 6", id="partition named twice"
        ),
    ],
)
def test_malformed_file_is_bad_as_a_whole(
    data: bytes, line_number: int, expected: str, found: str
) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_offset_checkpoint(data, "/d/some-checkpoint")

    assert isinstance(caught.value, LogDataError)
    assert caught.value.path == "/d/some-checkpoint"
    assert caught.value.line_number == line_number
    message = str(caught.value)
    assert message.startswith(f"/d/some-checkpoint: line {line_number}: expected ")
    assert expected in message
    assert found in message.split("found ")[1]
    assert len(message) < 300


def test_flipped_bit_is_bad_or_another_value() -> None:
    """01:DIR-2, each bit of the file."""
    original = parse_offset_checkpoint(DIR_1, "f")
    for position, bit in itertools.product(range(len(DIR_1)), range(8)):
        damaged = bytearray(DIR_1)
        damaged[position] ^= 1 << bit
        try:
            value = parse_offset_checkpoint(bytes(damaged), "f")
        except CorruptCheckpointError:
            continue
        assert value != original


@pytest.mark.parametrize("content", [None, b""], ids=["missing file", "01:DIR-2 empty file"])
def test_no_file_and_an_empty_one_have_no_entries(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_bytes(content)

    assert OffsetCheckpointFile(str(path), Disk()).read() == {}


def test_no_entries_are_written_and_read() -> None:
    assert encode_offset_checkpoint({}) == b"0\n0\n"
    assert parse_offset_checkpoint(b"0\n0\n", "f") == {}


def test_entries_are_sorted_whatever_order_they_came_in() -> None:
    offsets = {
        TopicPartition("b", 0): 1,
        TopicPartition("a", 10): 2,
        TopicPartition("a", 9): 2**63 - 1,
    }

    data = encode_offset_checkpoint(offsets)

    assert data == b"0\n3\na 9 9223372036854775807\na 10 2\nb 0 1\n"
    assert parse_offset_checkpoint(data, "f") == offsets


@pytest.mark.parametrize(
    "offsets",
    [{TopicPartition("a b", 0): 1}, {TopicPartition("a", 0): -1}, {TopicPartition("", 0): 1}],
)
def test_what_could_not_be_read_back_is_not_written(offsets: dict[TopicPartition, int]) -> None:
    with pytest.raises(AssertionError):
        encode_offset_checkpoint(offsets)


def test_crash_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    """A crash at each operation, and each of them with nothing kept that was not synced."""
    tp = TopicPartition("t", 0)
    for crash_point in itertools.count():
        root = tmp_path / str(crash_point)
        root.mkdir()
        path = str(root / "checkpoint")
        OffsetCheckpointFile(path, Disk()).write({tp: 1})
        disk = SimDisk(root)
        file = OffsetCheckpointFile(path, disk)
        disk.crash_at(crash_point)
        try:
            file.write({tp: 2})
        except SimulatedCrash:
            disk.crash(mode="drop")
            assert file.read() in ({tp: 1}, {tp: 2})
        else:
            disk.crash(mode="drop")
            assert file.read() == {tp: 2}
            break
    assert crash_point >= 5


def test_unreadable_file_is_an_error_of_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(DIR_1)
    disk = SimDisk(tmp_path)
    disk.fail("pread", path_contains="checkpoint")

    with pytest.raises(OSError, match="Input/output"):
        OffsetCheckpointFile(str(path), disk).read()


def test_epochs_are_written_and_read() -> None:
    entries = [(0, 0), (2, 10), (2**31 - 1, 2**63 - 1)]

    data = encode_epoch_checkpoint(entries)

    assert data == b"0\n3\n0 0\n2 10\n2147483647 9223372036854775807\n"
    assert parse_epoch_checkpoint(data, "f") == entries
    assert parse_epoch_checkpoint(b"", "f") == []


@pytest.mark.parametrize(
    ("lines", "line_number", "expected"),
    [
        pytest.param(b"0 0 0\n", 3, "'epoch start_offset'", id="three fields"),
        pytest.param(b"-1 0\n", 3, "'epoch start_offset'", id="negative epoch"),
        pytest.param(b"2147483648 0\n", 3, "int32 epoch", id="above int32"),
        pytest.param(b"0 9223372036854775808\n", 3, "int64 offset", id="above int64"),
        pytest.param(b"2 0\n2 10\n", 4, "an epoch above 2", id="epoch repeated"),
        pytest.param(b"2 0\n1 10\n", 4, "an epoch above 2", id="epoch goes back"),
        pytest.param(b"2 10\n3 10\n", 4, "an offset above 10", id="offset repeated"),
        pytest.param(b"2 10\n3 9\n", 4, "an offset above 10", id="offset goes back"),
    ],
)
def test_epochs_that_cannot_be(lines: bytes, line_number: int, expected: str) -> None:
    data = b"0\n%d\n" % lines.count(b"\n") + lines

    with pytest.raises(CorruptCheckpointError, match=expected) as caught:
        parse_epoch_checkpoint(data, "f")

    assert caught.value.line_number == line_number
