"""Stepping through the batches of a file: all of them, and damage as data."""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.storage.segments.scan import CHUNK_BYTES, Scan
from tests.support.logs import batch


class ShortReadDisk(Disk):
    """Reads at most seven bytes at once, which a disk may do at any time."""

    __slots__ = ()

    @staticmethod
    def pread(fd: int, length: int, offset: int, /) -> bytes:
        return os.pread(fd, min(length, 7), offset)


@pytest.fixture
def descriptors() -> Iterator[list[int]]:
    opened: list[int] = []
    yield opened
    for fd in opened:
        os.close(fd)


def scan_of(
    data: bytes | bytearray,
    tmp_path: Path,
    descriptors: list[int],
    *,
    start: int = 0,
    end: int | None = None,
    check_crc: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
    disk: Disk | None = None,
) -> Scan:
    path = tmp_path / "file"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    descriptors.append(fd)
    return Scan(
        disk or Disk(),
        fd,
        start,
        len(data) if end is None else end,
        check_crc=check_crc,
        chunk_bytes=chunk_bytes,
    )


def legacy_message(offset: int, *, magic: int = 1, value: bytes = b"value") -> bytes:
    body = struct.pack(">bb", magic, 0)
    if magic == 1:
        body += struct.pack(">q", 1_600_000_000_000)
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


THREE = [bytes(batch(size=size, base_offset=i)) for i, size in enumerate((100, 300, 200))]
WHOLE = b"".join(THREE)


@pytest.mark.parametrize("chunk_bytes", [61, 100, 128, 399, 600, CHUNK_BYTES])
@pytest.mark.parametrize("disk", [Disk(), ShortReadDisk()], ids=["disk", "short-reads"])
def test_every_batch_comes_whole_whatever_the_size_of_a_read(
    chunk_bytes: int, disk: Disk, tmp_path: Path, descriptors: list[int]
) -> None:
    scan = scan_of(WHOLE, tmp_path, descriptors, chunk_bytes=chunk_bytes, disk=disk)
    found = [(b.position, b.header.base_offset, bytes(b.view), b.is_crc_valid) for b in scan]
    assert found == [
        (0, 0, THREE[0], True),
        (100, 1, THREE[1], True),
        (400, 2, THREE[2], True),
    ]
    assert scan.valid_end == 600
    assert scan.damage is None


def test_views_stay_valid_while_the_scan_goes_on(tmp_path: Path, descriptors: list[int]) -> None:
    scan = scan_of(WHOLE, tmp_path, descriptors, chunk_bytes=100)
    assert [bytes(b.view) for b in list(scan)] == THREE


def test_a_scan_keeps_within_its_range(tmp_path: Path, descriptors: list[int]) -> None:
    scan = scan_of(WHOLE, tmp_path, descriptors, start=100, end=400)
    assert [b.position for b in scan] == [100]
    assert scan.damage is None


def test_nothing_in_an_empty_file(tmp_path: Path, descriptors: list[int]) -> None:
    scan = scan_of(b"", tmp_path, descriptors)
    assert list(scan) == []
    assert scan.damage is None


@pytest.mark.parametrize("check_crc", [True, False])
def test_a_bad_checksum_is_reported_and_the_chain_goes_on(
    check_crc: bool, tmp_path: Path, descriptors: list[int]
) -> None:
    data = bytearray(WHOLE)
    data[399] ^= 1
    scan = scan_of(data, tmp_path, descriptors, check_crc=check_crc)
    assert [b.is_crc_valid for b in scan] == [True, not check_crc, True]
    assert scan.damage is None


@pytest.mark.parametrize(
    ("data", "position", "reason"),
    [
        pytest.param(WHOLE[:-1], 400, "200 bytes, 199 are left", id="torn-batch"),
        pytest.param(WHOLE[:430], 400, "30 bytes do not hold", id="torn-header"),
        pytest.param(WHOLE + bytes(17), 600, "17 bytes|length 0", id="short-junk"),
        pytest.param(WHOLE + bytes(5000), 600, "length 0", id="zeros"),
        pytest.param(WHOLE[:100] + b"\xff" * 500, 100, "length -1", id="ones"),
        pytest.param(
            WHOLE[:116] + b"\x07" + WHOLE[117:], 100, "magic 7, expected 0, 1 or 2", id="future"
        ),
        pytest.param(
            WHOLE[:108] + b"\x7f" + WHOLE[109:], 100, "bytes, 500 are left", id="length-bit"
        ),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [100, CHUNK_BYTES])
def test_a_broken_chain_ends_the_scan_and_says_where(
    data: bytes,
    position: int,
    reason: str,
    chunk_bytes: int,
    tmp_path: Path,
    descriptors: list[int],
) -> None:
    scan = scan_of(data, tmp_path, descriptors, chunk_bytes=chunk_bytes)
    assert len(list(scan)) == (2 if position == 400 else 3 if position == 600 else 1)
    assert scan.valid_end == position
    assert scan.damage is not None
    assert scan.damage.position == position
    assert any(part in scan.damage.reason for part in reason.split("|"))


def test_a_file_shorter_than_it_was_is_damage(tmp_path: Path, descriptors: list[int]) -> None:
    scan = scan_of(WHOLE[:500], tmp_path, descriptors, end=600)
    assert len(list(scan)) == 2
    assert scan.damage is not None
    assert "the file ends after 100" in scan.damage.reason


@pytest.mark.parametrize("chunk_bytes", [40, 61, CHUNK_BYTES])
def test_old_formats_are_stepped_through_too(
    chunk_bytes: int, tmp_path: Path, descriptors: list[int]
) -> None:
    messages = [
        legacy_message(0, magic=0, value=b""),
        legacy_message(1, value=b"v" * 100),
        bytes(batch(base_offset=2)),
        legacy_message(3),
    ]
    scan = scan_of(b"".join(messages), tmp_path, descriptors, chunk_bytes=chunk_bytes)
    found = [(b.header.magic, b.header.last_offset, b.is_crc_valid) for b in scan]
    assert found == [(0, 0, True), (1, 1, True), (2, 2, True), (1, 3, True)]
    assert scan.damage is None


def test_an_old_message_has_a_checksum_as_well(tmp_path: Path, descriptors: list[int]) -> None:
    data = bytearray(legacy_message(0) + legacy_message(1))
    data[-1] ^= 1
    scan = scan_of(data, tmp_path, descriptors)
    assert [b.is_crc_valid for b in scan] == [True, False]
