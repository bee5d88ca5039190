"""What `dump_file` says of good files, and what it finds in bad ones."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.files import Disk
from odradek.model import AppendOrigin
from odradek.records.batch import (
    LENGTH_POSITION,
    MAGIC_POSITION,
    iter_headers,
    patch_offset_and_epoch,
)
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.dump import dump_file
from odradek.storage.log.config import LogConfig
from tests.support.logs import T0, LogFixture, batch, flip_bit, marker
from tests.unit.records.vectors import VECTORS

BASE = "00000000000000000000"


class ReadOnlyDisk(Disk):
    """A disk for a user with read permission only."""

    __slots__ = ()

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        forbidden = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        if flags & forbidden:
            raise PermissionError(13, "Permission denied", path)
        return super().open(path, flags, mode)


def dump(path: Path | str, *, records: bool = False) -> tuple[list[str], list[str]]:
    """Plain lines without the first, and problems."""
    lines = list(dump_file(str(path), disk=ReadOnlyDisk(), records=records))
    assert lines[0] == (f"Dumping {path}", False, None)
    plain = [line.text for line in lines[1:] if not line.is_problem]
    return plain, [line.text for line in lines if line.is_problem]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFixture]:
    """A live log of one segment, with index entries (5 -> 5000) and (10 -> 10000)."""
    with LogFixture(tmp_path, config=LogConfig(segment_index_bytes=1200)) as fixture:
        fixture.open()
        for number in range(12):
            assert fixture.log is not None
            fixture.log.append_as_leader(batch(size=1000, timestamp=T0 + number), leader_epoch=0)
        yield fixture


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A closed log with one file of every kind."""
    with LogFixture(tmp_path) as fixture:
        opened = fixture.open()
        fields: dict[str, Any] = {
            "producer_id": 4000,
            "producer_epoch": 2,
            "is_transactional": True,
        }
        for sequence in range(0, 14, 2):
            opened.append_as_leader(
                batch(2, size=1000, timestamp=T0 + sequence, base_sequence=sequence, **fields),
                leader_epoch=0,
            )
        opened.append_as_leader(
            marker(commit=False, producer_epoch=2, coordinator_epoch=9),
            leader_epoch=3,
            origin=AppendOrigin.COORDINATOR,
        )
        fixture.close()
        return Path(fixture.directory)


# Good files


def test_log_has_a_line_for_each_batch(partition: Path) -> None:
    plain, problems = dump(partition / f"{BASE}.log")
    assert problems == []
    assert plain[0] == "Log starting offset: 0"
    assert len(plain) == 1 + 8
    assert plain[2] == (
        "baseOffset: 2 lastOffset: 3 count: 2 baseSequence: 2 lastSequence: 3 producerId: 4000"
        " producerEpoch: 2 partitionLeaderEpoch: 0 isTransactional: true isControl: false"
        f" position: 1000 CreateTime: {T0 + 3} size: 1000 magic: 2 compresscodec: none"
        f" crc: {_crc_of(partition, 1)} isvalid: true"
    )


def _crc_of(partition: Path, number: int) -> int:
    data = (partition / f"{BASE}.log").read_bytes()
    return list(iter_headers(data))[number][1].crc


def test_records_are_shown_on_request(partition: Path) -> None:
    plain, problems = dump(partition / f"{BASE}.log", records=True)
    assert problems == []
    records = [line for line in plain if line.startswith("| ")]
    assert len(records) == 15
    assert records[2] == (
        f"| offset: 2 CreateTime: {T0 + 2} keySize: 1 valueSize: 1 sequence: 2 headers: []"
        " key: k payload: v"
    )
    assert records[-1] == (
        f"| offset: 14 CreateTime: {T0} keySize: 4 valueSize: 6 sequence: -1"
        " endTxnMarker: ABORT coordinatorEpoch: 9"
    )


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_compressed_records_and_odd_bytes(tmp_path: Path, codec: Codec) -> None:
    headers = (("a", b"1"), ("a", None), ("lone \udcff\n", "maß".encode()))
    records = [
        (T0, None, "größe\n\x00".encode(), headers),
        (T0, b"\xff", None, ()),
        (T0, b"", b"", ()),
    ]
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(build_batch(records, codec=codec))
    plain, problems = dump(path, records=True)
    assert problems == []
    assert f"compresscodec: {codec.name.lower()}" in plain[1]
    assert [line.partition("sequence: -1 ")[2] for line in plain[2:]] == [
        r"headers: [a=1,a=null,lone \udcff\n=maß] key: null payload: größe\n\x00",
        r"headers: [] key: \xff payload: null",
        "headers: [] key:  payload: ",
    ]


def test_append_time_and_delete_horizon_are_named(tmp_path: Path) -> None:
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(
        batch(1, log_append_time_ms=T0 + 77, delete_horizon_ms=T0 + 5)
        + batch(1, base_offset=5, last_offset_delta=3)
    )
    plain, problems = dump(path, records=True)
    assert problems == []
    assert f"deleteHorizonMs: {T0 + 5}" in plain[1]
    assert f"LogAppendTime: {T0 + 77}" in plain[1]
    assert plain[2].startswith(f"| offset: 0 LogAppendTime: {T0 + 77}")
    assert "baseOffset: 5 lastOffset: 8 count: 1" in plain[3]


@pytest.mark.parametrize(
    ("name", "magic", "record_count"), [("VEC-16", 1, 2), ("VEC-17", 0, 2), ("VEC-18", 1, 2)]
)
def test_old_formats(tmp_path: Path, name: str, magic: int, record_count: int) -> None:
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(VECTORS[name])
    plain, problems = dump(path, records=True)
    assert problems == []
    assert all(f"magic: {magic}" in line for line in plain if line.startswith("baseOffset"))
    assert sum(line.startswith("| ") for line in plain) == record_count


def test_control_records_of_other_kinds(tmp_path: Path) -> None:
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(
        build_batch([(T0, pack(">hh", 0, 2), b"", ())], is_control=True)
        + build_batch([(T0, pack(">hh", 0, 99), b"", ())], base_offset=1, is_control=True)
    )
    plain, problems = dump(path, records=True)
    assert problems == []
    assert plain[2].endswith(" controlType: LEADER_CHANGE(2)")
    assert plain[4].endswith(" controlType: unknown")


def test_indexes_of_a_closed_log(partition: Path) -> None:
    """01 section 4.5."""
    assert dump(partition / f"{BASE}.index") == (["offset: 11 position: 5000"], [])
    assert dump(partition / f"{BASE}.timeindex") == (
        [f"timestamp: {T0 + 11} offset: 11", f"timestamp: {T0 + 13} offset: 13"],
        [],
    )


def test_preallocated_room_is_no_entry(log: LogFixture) -> None:
    """A running broker's indexes: the zeros behind the entries are not compared with the log."""
    assert dump(log.path(f"{BASE}.index")) == (
        [
            "offset: 5 position: 5000",
            "offset: 10 position: 10000",
            "148 slots behind are preallocated and unused",
        ],
        [],
    )
    plain, problems = dump(log.path(f"{BASE}.timeindex"))
    assert (plain[-1], problems) == ("98 slots behind are preallocated and unused", [])


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_index_that_is_all_room(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"{BASE}.log").write_bytes(batch(3))
    path = tmp_path / f"{BASE}{suffix}"
    path.write_bytes(bytes(240))
    plain, problems = dump(path)
    assert len(plain) == 1
    assert problems == []


def test_first_entry_may_be_all_zeros(tmp_path: Path) -> None:
    """01 section 4.5: ``offset: 0 position: 0`` is a line like any other."""
    (tmp_path / f"{BASE}.log").write_bytes(batch(1, timestamp=0) + batch(1, base_offset=1))
    (tmp_path / f"{BASE}.index").write_bytes(pack(">iiii", 0, 0, 1, 70))
    (tmp_path / f"{BASE}.timeindex").write_bytes(bytes(12))
    plain, _ = dump(tmp_path / f"{BASE}.index")
    assert plain == ["offset: 0 position: 0", "offset: 1 position: 70"]
    assert dump(tmp_path / f"{BASE}.timeindex") == (["timestamp: 0 offset: 0"], [])


def test_index_without_its_log(tmp_path: Path) -> None:
    path = tmp_path / f"{BASE}.index"
    path.write_bytes(pack(">ii", 5, 5000))
    assert dump(path) == (
        [
            "offset: 5 position: 5000",
            f"Not compared with the log: there is no {tmp_path}/{BASE}.log",
        ],
        [],
    )


def test_offsets_are_absolute(tmp_path: Path) -> None:
    base = f"{700:020d}"
    (tmp_path / f"{base}.index").write_bytes(pack(">ii", 5, 5000))
    (tmp_path / f"{base}.timeindex").write_bytes(pack(">qi", T0, 5))
    assert dump(tmp_path / f"{base}.index")[0][0] == "offset: 705 position: 5000"
    assert dump(tmp_path / f"{base}.timeindex")[0][0] == f"timestamp: {T0} offset: 705"


def test_transactions_producers_and_checkpoints(partition: Path, tmp_path: Path) -> None:
    assert dump(partition / f"{BASE}.txnindex") == (
        ["version: 0 producerId: 4000 firstOffset: 0 lastOffset: 14 lastStableOffset: 15"],
        [],
    )
    assert dump(partition / f"{15:020d}.snapshot") == (
        [
            "producerId: 4000 producerEpoch: 2 coordinatorEpoch: 9 currentTxnFirstOffset: none"
            f" lastTimestamp: {T0} firstSequence: 12 lastSequence: 13 lastOffset: 13"
            f" offsetDelta: 1 timestamp: {T0}"
        ],
        [],
    )
    assert dump(partition / "leader-epoch-checkpoint") == (
        ["epoch: 0 startOffset: 0", "epoch: 3 startOffset: 14"],
        [],
    )
    checkpoint = tmp_path / "recovery-point-offset-checkpoint"
    checkpoint.write_bytes(b"0\n1\nt-a 0 4807\n")
    assert dump(checkpoint) == (["topic: t-a partition: 0 offset: 4807"], [])


@pytest.mark.parametrize("stage", [".deleted", ".cleaned", ".swap"])
def test_life_stages(partition: Path, stage: str) -> None:
    """An index is compared with the log of the same stage."""
    for path in list(partition.iterdir()):
        path.rename(f"{path}{stage}")
    for name, lines in ((f"{BASE}.log", 9), (f"{BASE}.index", 1), (f"{15:020d}.snapshot", 1)):
        plain, problems = dump(partition / f"{name}{stage}")
        assert (len(plain), problems) == (lines, [])


# The files are only read


def test_nothing_is_opened_for_writing_or_changed(partition: Path) -> None:
    """15:KAFKA-5104: who may read the files may dump them (`ReadOnlyDisk`)."""
    before = {path.name: path.read_bytes() for path in partition.iterdir()}
    for path in sorted(partition.iterdir()):
        assert dump(path, records=True)[1] == [], path
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == before


@pytest.mark.parametrize(
    "name",
    [f"{BASE}{s}" for s in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")]
    + ["leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "what"],
)
def test_missing_file_is_reported_and_not_created(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert dump(path) == ([], [f"{path}: No such file or directory"])
    assert list(tmp_path.iterdir()) == []


# Bad files


def test_directory_and_foreign_files(tmp_path: Path) -> None:
    directory = tmp_path / f"{BASE}.log"
    directory.mkdir()
    assert dump(directory)[1] == [f"{directory}: is a directory, expected a file of a log"]
    fifo = tmp_path / f"{BASE}.index"
    os.mkfifo(fifo)
    assert dump(fifo)[1] == [f"{fifo}: is no regular file, expected a file of a log"]
    for name in ("notes.txt", "0.log", "9" * 20 + ".log", "partition.metadata"):
        path = tmp_path / name
        path.write_bytes(b"x")
        assert "not a file of a log; expected twenty digits" in dump(path)[1][0]
    path = tmp_path / f"{BASE}.parquet"
    path.write_bytes(b"x")
    assert "unknown kind '.parquet'" in dump(path)[1][0]


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        (".log", None),
        (".index", None),
        (".timeindex", None),
        (".txnindex", None),
        (".snapshot", "expected a header of 10 bytes"),
    ],
)
def test_empty_file(tmp_path: Path, suffix: str, expected: str | None) -> None:
    """A new segment's files are empty; only a snapshot never is."""
    path = tmp_path / f"{BASE}{suffix}"
    path.touch()
    (tmp_path / f"{BASE}.log").touch()
    problems = dump(path)[1]
    assert problems == [] if expected is None else expected in problems[0]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_foreign_content(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"{BASE}{suffix}"
    path.write_bytes(b"#!/bin/sh\necho this is no file of a log at all, but a script\n")
    assert dump(path, records=True)[1]


@pytest.mark.parametrize("cut", [1, 7, 500])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_truncated_file(partition: Path, suffix: str, cut: int) -> None:
    path = max(partition.glob(f"*{suffix}"))
    size = path.stat().st_size
    if cut >= size:
        cut = size - 1
    os.truncate(path, size - cut)
    problems = dump(path)[1]
    assert len(problems) == 1
    assert str(path) in problems[0]


def test_torn_batch_says_where_and_how_much(log: LogFixture) -> None:
    path = log.path(f"{BASE}.log")
    os.truncate(path, 11_500)
    plain, problems = dump(path)
    assert len(plain) == 1 + 11
    assert problems == [
        f"{path}: the batch says 1000 bytes, 500 are left, at position 11000;"
        " 500 bytes behind it are not shown"
    ]


def test_flipped_bit_of_a_batch(log: LogFixture) -> None:
    path = log.path(f"{BASE}.log")
    flip_bit(path, (3000 + 500) * 8)
    plain, problems = dump(path)
    assert len(plain) == 1 + 12
    assert problems == [f"{path}: the batch at position 3000 fails its checksum"]
    assert plain[4].endswith("isvalid: false")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: patch_offset_and_epoch(data, 3000, 1, 0), "starts at offset 1, expected 3"),
        (lambda data: patch_offset_and_epoch(data, 0, -4, 0), "starts at offset -4, expected 0"),
        (lambda data: patch_offset_and_epoch(data, 3000, 1 << 40, 0), "ends at offset 10995116277"),
    ],
)
def test_wrong_offsets(log: LogFixture, change: Callable[[bytearray], None], expected: str) -> None:
    """The checksum does not cover the base offset; one wrong batch does not spoil the others."""
    path = log.path(f"{BASE}.log")
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    problems = dump(path)[1]
    assert len(problems) == 1
    assert expected in problems[0]


@pytest.mark.parametrize(
    ("position", "value", "expected"),
    [
        pytest.param(MAGIC_POSITION, b"\x03", "magic 3, expected 0, 1 or 2", id="future-magic"),
        pytest.param(LENGTH_POSITION, pack(">i", 5), "length 5 with magic 2", id="short"),
        pytest.param(LENGTH_POSITION, pack(">i", 1 << 30), "bytes, 9000 are left", id="long"),
    ],
)
def test_lost_chain(log: LogFixture, position: int, value: bytes, expected: str) -> None:
    path = log.path(f"{BASE}.log")
    data = bytearray(path.read_bytes())
    data[3000 + position : 3000 + position + len(value)] = value
    path.write_bytes(data)
    plain, problems = dump(path)
    assert len(plain) == 1 + 3
    assert len(problems) == 1
    assert expected in problems[0]
    assert "9000 bytes behind it are not shown" in problems[0]


def test_records_that_do_not_decompress(tmp_path: Path) -> None:
    path = tmp_path / f"{BASE}.log"
    data = batch(3, codec=Codec.ZSTD, value=b"x" * 100)
    data[70:80] = bytes(10)
    path.write_bytes(data + batch(1, base_offset=3))
    plain, problems = dump(path, records=True)
    assert len(problems) == 2  # The checksum, and the records.
    assert "records of the batch at position 0" in problems[1]
    assert plain[-1].startswith("| offset: 3 ")


def test_every_flipped_bit_of_an_offset_index_is_found(log: LogFixture) -> None:
    """01 section 4.6: entry by entry, against the log; also what keeps the order."""
    log.close()
    path = log.path(f"{BASE}.index")
    good = path.read_bytes()
    for bit in range(len(good) * 8):
        path.write_bytes(good)
        flip_bit(path, bit)
        assert dump(path)[1], bit


@pytest.mark.slow
def test_every_flipped_bit_of_a_time_index_is_found(log: LogFixture) -> None:
    log.close()
    path = log.path(f"{BASE}.timeindex")
    good = path.read_bytes()
    for bit in range(len(good) * 8):
        path.write_bytes(good)
        flip_bit(path, bit)
        assert dump(path)[1], bit


def test_wrong_entries_are_named(log: LogFixture) -> None:
    path = log.path(f"{BASE}.index")
    path.write_bytes(pack(">10i", 5, 5000, 6, 7000, 7, 7001, 6, 6000, 11, -1))
    assert dump(path)[1] == [
        f"{path}: entry 6 -> 7000: the batch ends at 7",
        f"{path}: entry 7 -> 7001: no batch starts there",
        f"{path}: entry 6 -> 6000: does not follow offset 7",
        f"{path}: entry 11 -> -1: no file has such a position",
    ]
    path = log.path(f"{BASE}.timeindex")
    path.write_bytes(pack(">qiqiqi", T0 + 5, 5, T0 + 6, 7, T0 + 4, 8) + pack(">qi", T0 + 9, 90))
    assert dump(path)[1] == [
        f"{path}: entry {T0 + 6} -> 7: the largest timestamp up to it is {T0 + 7}",
        f"{path}: entry {T0 + 4} -> 8: does not follow {T0 + 5} -> 5",
        f"{path}: entry {T0 + 9} -> 90: no batch ends there",
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (f"{BASE}.txnindex", pack(">hqqqq", 1, 1, 1, 2, 3), "version 1 at byte 0, expected 0"),
        (f"{9:020d}.txnindex", pack(">hqqqq", 0, 1, 1, 2, 3), "below the base offset 9"),
        (f"{BASE}.snapshot", pack(">hIi", 2, 0, 0), "version 1"),
        ("leader-epoch-checkpoint", b"1\n0\n", "version 0"),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "2 entries"),
        ("recovery-point-offset-checkpoint", b"0\n1\nt 0\n", "topic partition offset"),
        ("recovery-point-offset-checkpoint", b"\xff\xfe", "version 0"),
    ],
)
def test_other_versions_and_malformed_files(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    problems = dump(path)[1]
    assert len(problems) == 1
    assert expected in problems[0]
    assert str(path) in problems[0]


def test_snapshot_that_knows_too_much(partition: Path) -> None:
    path = partition / f"{13:020d}.snapshot"
    (partition / f"{15:020d}.snapshot").rename(path)
    assert dump(path)[1] == [f"{path}: producer 4000 is at offset 13, expected offsets below 13"]


def test_file_that_cannot_be_read(log: LogFixture) -> None:
    """The message names the file that was refused, which may be the log beside an index."""

    class Refusing(ReadOnlyDisk):
        __slots__ = ()

        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            if path.endswith(".log"):
                raise PermissionError(13, "Permission denied", path)
            return super().open(path, flags, mode)

    for suffix in (".log", ".index"):
        lines = list(dump_file(str(log.path(f"{BASE}{suffix}")), disk=Refusing()))
        assert lines[-1] == (f"{log.path(f'{BASE}.log')}: Permission denied", True, None)


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(choice=st.integers(0, 5), bits=st.lists(st.integers(0, 1 << 20), max_size=4))
def test_damage_never_raises(tmp_path: Path, choice: int, bits: list[int]) -> None:
    """Whatever stands in a file becomes lines."""
    good = [
        bytes(batch(3, codec=Codec.GZIP) + batch(2, base_offset=3, codec=Codec.SNAPPY)),
        bytes(batch(3, codec=Codec.LZ4) + batch(2, base_offset=3, codec=Codec.ZSTD)),
        bytes(batch(3) + marker(commit=True, base_offset=3)),
        VECTORS["VEC-16"] + VECTORS["VEC-18"],
        VECTORS["VEC-17"],
        VECTORS["VEC-1"],
    ][choice]
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(good)
    for bit in bits:
        flip_bit(path, bit)
    lines = [line.text for line in dump_file(str(path), disk=Disk(), records=True)]
    assert all("\n" not in line for line in lines)
