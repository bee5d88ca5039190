"""The file beside a producer snapshot: its bytes, and that a wrong one is left out (10 §8.4)."""

from pathlib import Path

import pytest

from odradek.errors import CorruptSnapshotError
from odradek.files import Disk
from odradek.storage.dump import dump_file
from odradek.storage.producers.entry import CachedBatch, ProducerEntry
from odradek.storage.producers.recent_batches import (
    encode_recent,
    parse_recent,
    recent_path,
    restore_recent,
)
from odradek.storage.producers.snapshot import load_snapshot, snapshot_path, write_snapshot

CRC = 0x01020304


def entry(producer_id: int, *batches: CachedBatch) -> ProducerEntry:
    made = ProducerEntry(producer_id, 3, last_timestamp=9)
    made.batches.extend(batches)
    return made


def producer(producer_id: int = 4000, count: int = 5) -> ProducerEntry:
    """Batches of two records, at every tenth offset."""
    return entry(producer_id, *(CachedBatch(2 * n + 1, 10 * n + 1, 1, 7) for n in range(count)))


def newest_only(producer_id: int = 4000) -> ProducerEntry:
    return entry(producer_id, producer(producer_id).batches[-1])


def test_vector() -> None:
    data = encode_recent([producer(1, 1), producer(4000, 2)], 100, CRC)
    assert data is not None
    assert data.hex() == (
        "0001" + data[2:6].hex() + "0000000000000064" "01020304" "00000001"
        "0000000000000fa0" "02"
        "00000001" "0000000000000001" "00000001" "0000000000000007"
        "00000003" "000000000000000b" "00000001" "0000000000000007"
    )  # fmt: skip


def test_without_producers_there_is_no_file(tmp_path: Path) -> None:
    assert encode_recent([], 100, CRC) is None
    write_snapshot(Disk(), str(tmp_path), 100, [], sync=False)
    assert [path.suffix for path in tmp_path.iterdir()] == [".snapshot"]


def test_producers_with_one_batch_need_no_entry() -> None:
    """The file is there all the same: it vouches for the snapshot."""
    data = encode_recent([producer(1, 0), producer(2, 1)], 100, CRC)
    assert data is not None
    assert parse_recent(data, "path") == (100, CRC, [])


def test_each_flipped_bit_is_found() -> None:
    data = encode_recent([producer()], 100, CRC)
    assert data is not None
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 0x80 >> bit % 8
        with pytest.raises(CorruptSnapshotError):
            parse_recent(bytes(damaged), "path")
    for length in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            parse_recent(data[:length], "path")


@pytest.mark.parametrize(
    "known",
    [
        [newest_only(4001)],
        [entry(4000, CachedBatch(9, 40, 1, 7))],
        [entry(4000)],
    ],
    ids=["other producer", "other batch", "no batch"],
)
def test_what_disagrees_with_the_snapshot_is_left_out(known: list[ProducerEntry]) -> None:
    data = encode_recent([producer()], 100, CRC)
    assert data is not None
    before = [list(one.batches) for one in known]
    with pytest.raises(CorruptSnapshotError):
        restore_recent(parse_recent(data, "path"), "path", known)
    assert [list(one.batches) for one in known] == before


def test_one_of_another_offset_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = str(tmp_path)
    write_snapshot(Disk(), directory, 100, [producer(count=4)], sync=True)
    write_snapshot(Disk(), directory, 200, [producer()], sync=True)
    Path(recent_path(directory, 200)).write_bytes(Path(recent_path(directory, 100)).read_bytes())
    (loaded,) = load_snapshot(Disk(), directory, 200)
    assert len(loaded.batches) == 1
    assert "only the newest batch" in caplog.text


def test_a_sound_snapshot_of_another_offset_is_found_out(tmp_path: Path) -> None:
    """10 section 8.4: its checksum does not cover the offset, so it would pass for this one's."""
    directory = str(tmp_path)
    write_snapshot(Disk(), directory, 100, [producer(count=4)], sync=True)
    write_snapshot(Disk(), directory, 200, [producer()], sync=True)
    Path(snapshot_path(directory, 200)).write_bytes(
        Path(snapshot_path(directory, 100)).read_bytes()
    )
    with pytest.raises(CorruptSnapshotError, match="belongs to another offset"):
        load_snapshot(Disk(), directory, 200)


def test_a_snapshot_that_another_program_has_replaced_does_not_count(tmp_path: Path) -> None:
    """Kafka leaves the file beside it alone; the state comes from the batches then."""
    directory = str(tmp_path)
    write_snapshot(Disk(), directory, 100, [producer()], sync=True)
    left_behind = Path(recent_path(directory, 100)).read_bytes()
    assert list(load_snapshot(Disk(), directory, 100)[0].batches) == list(producer().batches)

    write_snapshot(Disk(), directory, 100, [entry(4000, CachedBatch(99, 99, 9, 7))], sync=True)
    Path(recent_path(directory, 100)).write_bytes(left_behind)

    with pytest.raises(CorruptSnapshotError):
        load_snapshot(Disk(), directory, 100)


def test_the_dump_shows_each_batch(tmp_path: Path) -> None:
    write_snapshot(Disk(), str(tmp_path), 100, [producer(count=2)], sync=True)
    path = recent_path(str(tmp_path), 100)
    lines = list(dump_file(path, disk=Disk()))
    assert [line.text for line in lines[2:]] == [
        "producerId: 4000 firstSequence: 0 lastSequence: 1 lastOffset: 1 offsetDelta: 1"
        " timestamp: 7",
        "producerId: 4000 firstSequence: 2 lastSequence: 3 lastOffset: 11 offsetDelta: 1"
        " timestamp: 7",
    ]
    assert not any(line.is_problem for line in lines)
    Path(path).write_bytes(b"x")
    assert [line.is_problem for line in dump_file(path, disk=Disk())] == [False, True]
