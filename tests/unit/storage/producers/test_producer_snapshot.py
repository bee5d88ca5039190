"""Producer snapshots: 10 §8.4."""

import itertools
import os
from pathlib import Path

import pytest
from crc32c import crc32c

from odradek.errors import CorruptSnapshotError, LogDataError
from odradek.files import Disk
from odradek.storage.producers.entry import CachedBatch, ProducerEntry
from odradek.storage.producers.snapshot import (
    encode_snapshot,
    list_snapshots,
    load_snapshot,
    parse_snapshot,
    sync_snapshot,
    write_snapshot,
)
from odradek.testing import SimDisk, SimulatedCrash

T = 1_700_000_000_000
VEC_21 = bytes.fromhex(
    "0001dfe43d4d000000010000000000000fa00003000000080000000000000065000000010000018bcfe5680000000005"
    "ffffffffffffffff"
)


def entry_of_the_vector() -> ProducerEntry:
    entry = ProducerEntry(4000, 3, last_timestamp=T, coordinator_epoch=5)
    entry.batches.append(CachedBatch(last_sequence=8, last_offset=101, offset_delta=1, timestamp=T))
    return entry


FIELDS = (
    "batches",
    "coordinator_epoch",
    "current_transaction_first_offset",
    "last_timestamp",
    "producer_epoch",
    "producer_id",
)


def fields(entry: ProducerEntry) -> dict[str, object]:
    return {name: getattr(entry, name) for name in FIELDS}


def with_crc(data: bytes) -> bytes:
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


def patched(position: int, replacement: bytes) -> bytes:
    return with_crc(VEC_21[:position] + replacement + VEC_21[position + len(replacement) :])


def test_vector_is_written() -> None:
    """10:VEC-21."""
    assert encode_snapshot([entry_of_the_vector()]) == VEC_21


def test_vector_is_read() -> None:
    """10:VEC-21."""
    (entry,) = parse_snapshot(VEC_21, "f")
    assert fields(entry) == fields(entry_of_the_vector())
    assert (entry.batches[0].first_sequence, entry.batches[0].first_offset) == (7, 100)


def test_no_producers_are_ten_bytes() -> None:
    data = encode_snapshot([])
    assert data == with_crc(b"\0\1\0\0\0\0\0\0\0\0")
    assert parse_snapshot(data, "f") == []


def test_producer_known_by_a_marker_only_and_one_in_a_transaction() -> None:
    marked = ProducerEntry(1, 7, last_timestamp=T, coordinator_epoch=2)
    in_transaction = ProducerEntry(2, 0, last_timestamp=T, current_transaction_first_offset=0)
    in_transaction.batches.append(CachedBatch(0, 0, 0, T))

    data = encode_snapshot([marked, in_transaction])

    assert data[10 + 10 : 10 + 26].hex() == "ffffffff" + "ffffffffffffffff" + "00000000"
    assert [fields(entry) for entry in parse_snapshot(data, "f")] == [
        fields(marked),
        fields(in_transaction),
    ]


def test_only_the_newest_batch_survives_and_takes_the_time_of_a_later_marker() -> None:
    entry = ProducerEntry(1, 0, last_timestamp=T + 9, coordinator_epoch=0)
    entry.batches.extend([CachedBatch(4, 4, 4, T), CachedBatch(9, 9, 4, T + 1)])

    (read,) = parse_snapshot(encode_snapshot([entry]), "f")

    assert list(read.batches) == [CachedBatch(9, 9, 4, T + 9)]


def test_batch_of_a_coordinator_has_offsets_but_no_sequence() -> None:
    entry = ProducerEntry(1, 0, last_timestamp=T)
    entry.batches.append(CachedBatch(-1, 20, 2, T))

    (read,) = parse_snapshot(encode_snapshot([entry]), "f")

    assert list(read.batches) == [CachedBatch(-1, 20, 2, T)]
    assert (read.batches[0].first_sequence, read.batches[0].first_offset) == (-1, 18)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "a header of 10 bytes, found 0 bytes", id="empty"),
        pytest.param(VEC_21[:9], "a header of 10 bytes, found 9 bytes", id="torn header"),
        pytest.param(b"\0\2" + VEC_21[2:], "version 1, found 2", id="version"),
        pytest.param(VEC_21[:-1] + b"\xfe", "CRC [0-9a-f]{8}, found dfe43d4d", id="crc"),
        pytest.param(VEC_21[:-1], "CRC", id="torn entry"),
        pytest.param(bytes(56), "version 1, found 0", id="zeros"),
        pytest.param(
            with_crc(VEC_21 + b"\0"), "56 bytes for 1 entries, found 57 bytes", id="too long"
        ),
        pytest.param(with_crc(VEC_21[:-1]), "56 bytes for 1 entries, found 55", id="too short"),
        pytest.param(patched(6, b"\0\0\0\2"), "102 bytes for 2 entries, found 56", id="count"),
        pytest.param(patched(6, b"\xff" * 4), "-36 bytes for -1 entries", id="negative count"),
        pytest.param(patched(10, b"\xff" * 8), "a producer id >= 0, found -1", id="producer id"),
        pytest.param(
            patched(32, b"\xff" * 4), "last offset 101, offset delta -1", id="offset delta"
        ),
        pytest.param(
            patched(32, b"\0\0\0\x66"), "last offset 101, offset delta 102", id="first offset"
        ),
        pytest.param(patched(48, b"\xff" * 7 + b"\xfe"), "first offset >= -1, found -2", id="txn"),
        pytest.param(
            with_crc(VEC_21[:6] + b"\0\0\0\2" + VEC_21[10:] * 2),
            "each producer id once, found 4000 twice",
            id="producer twice",
        ),
    ],
)
def test_damaged_snapshot_is_told_with_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(
        CorruptSnapshotError, match=f"^/d/7.snapshot: expected .*{message}"
    ) as caught:
        parse_snapshot(data, "/d/7.snapshot")

    assert isinstance(caught.value, LogDataError)
    assert caught.value.path == "/d/7.snapshot"


def test_each_flipped_bit_is_found() -> None:
    for position, bit in itertools.product(range(len(VEC_21)), range(8)):
        damaged = bytearray(VEC_21)
        damaged[position] ^= 1 << bit
        with pytest.raises(CorruptSnapshotError):
            parse_snapshot(bytes(damaged), "f")


def test_snapshot_that_knows_the_future_is_damaged(tmp_path: Path) -> None:
    disk = Disk()
    in_transaction = ProducerEntry(1, 0, current_transaction_first_offset=102)
    for entry, bad_offset in ((entry_of_the_vector(), 101), (in_transaction, 102)):
        write_snapshot(disk, str(tmp_path), bad_offset, [entry], sync=False)
        with pytest.raises(CorruptSnapshotError, match=f"offsets below {bad_offset}, found"):
            load_snapshot(disk, str(tmp_path), bad_offset)
        write_snapshot(disk, str(tmp_path), bad_offset + 1, [entry], sync=False)
        assert len(load_snapshot(disk, str(tmp_path), bad_offset + 1)) == 1


def test_only_snapshots_are_listed(tmp_path: Path) -> None:
    for name in (
        "00000000000000000100.snapshot",
        "00000000000000000020.snapshot",
        "00000000000000000030.snapshot.deleted",
        "00000000000000000040.log",
        "00000000000000000050.snapshots",
        "99999999999999999999.snapshot",
        "7.snapshot",
        "x.snapshot",
    ):
        (tmp_path / name).touch()

    assert list_snapshots(str(tmp_path)) == [20, 100]
    assert list_snapshots(str(tmp_path / "missing")) == []


def test_synced_snapshot_survives_a_crash(tmp_path: Path) -> None:
    for crash_point in itertools.count():
        root = tmp_path / str(crash_point)
        root.mkdir()
        disk = SimDisk(root)
        disk.crash_at(crash_point)
        try:
            path = write_snapshot(disk, str(root), 102, [entry_of_the_vector()], sync=True)
        except SimulatedCrash:
            disk.crash(mode="keep")  # The worst here is a name without its bytes.
            for offset in list_snapshots(str(root)):
                try:
                    load_snapshot(disk, str(root), offset)
                except CorruptSnapshotError:
                    continue
        else:
            disk.crash(mode="drop")
            assert Path(path).read_bytes() == VEC_21
            break
    assert crash_point == 7  # Create, write, sync two files each, sync the directory.


def test_snapshot_synced_later_survives_a_crash(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    for offset in (102, 103):
        write_snapshot(disk, str(tmp_path), offset, [entry_of_the_vector()], sync=False)

    assert sync_snapshot(disk, str(tmp_path), 103)
    disk.crash(mode="drop")

    assert len(load_snapshot(disk, str(tmp_path), 103)) == 1
    assert not sync_snapshot(disk, str(tmp_path), 999)


def test_older_content_under_the_same_name_is_replaced(tmp_path: Path) -> None:
    for entries in ([entry_of_the_vector()], []):
        path = write_snapshot(Disk(), str(tmp_path), 102, entries, sync=False)
    assert len(Path(path).read_bytes()) == 10


def test_short_write_is_a_failure(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    disk.short_write(20, path_contains="snapshot")

    with pytest.raises(OSError, match=r"short write to .*snapshot: 20 of 56 bytes"):
        write_snapshot(disk, str(tmp_path), 102, [entry_of_the_vector()], sync=True)

    names = [f"{102:020d}.recent", f"{102:020d}.snapshot"]
    assert sorted(os.listdir(tmp_path)) == names
    with pytest.raises(CorruptSnapshotError):
        load_snapshot(disk, str(tmp_path), 102)
