"""Damaged files of every kind, through loading, reading, appending and loading again.

Whatever happened to a file, after a clean as after an unclean stop:

1. the log opens, reads, searches by time and takes appends;
2. nothing below the recovery point is cut;
3. nothing in front of the damage is lost, and after damage below the recovery point neither are
   the segments behind it.
"""

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.model import AppendOrigin
from odradek.protocol.enums import MAX_TIMESTAMP
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.retention import delete_old_segments
from odradek.storage.paths import offset_from_name
from odradek.storage.segments.timestamp_search import fetch_offset_by_timestamp
from tests.support.logs import PARTITION, T0, LogFixture, batch, flip_bit, marker, readable_offsets

CONFIG = LogConfig(index_interval_bytes=400, segment_index_bytes=480)
SIZE = 150
LOG_END = 31
RECOVERY_POINT = 25  # After the unclean stop; in the middle of the last segment.
LOGS = [f"{base:020d}.log" for base in (0, 10, 20)]
OTHERS = [
    *(f"{base:020d}{kind}" for base in (0, 10, 20) for kind in (".index", ".timeindex")),
    f"{10:020d}.txnindex",
    f"{10:020d}.snapshot",
    f"{20:020d}.snapshot",
    "leader-epoch-checkpoint",
]


@dataclass(frozen=True)
class Stopped:
    """A directory as a stop left it."""

    directory: Path
    clean: bool
    recovery_point: int

    def damaged(self, target: Path, damage: Callable[[Path], None]) -> LogFixture:
        """A copy of it, after `damage` was done to its partition directory."""
        shutil.copytree(self.directory, target)
        damage(target / str(PARTITION))
        return LogFixture(target, config=CONFIG)


def write_log(fixture: LogFixture) -> Log:
    """Three segments, two epochs, an aborted transaction, an idempotent producer."""
    log = fixture.open()
    for offset in range(LOG_END):
        if offset in (10, 20):
            log.roll()
        if offset == RECOVERY_POINT:
            log.flush()
        if offset in (12, 14):
            one = marker(commit=offset == 14, producer_id=7, timestamp=T0 + offset)
            log.append_as_leader(one, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
            continue
        fields: dict[str, Any] = {}
        if offset in (11, 13):
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": offset // 2 - 5}
            fields["is_transactional"] = True
        elif offset % 5 == 0:
            fields = {"producer_id": 8, "producer_epoch": 0, "base_sequence": offset // 5}
        one = batch(size=SIZE, timestamp=T0 + offset, **fields)
        log.append_as_leader(one, leader_epoch=0 if offset < 15 else 3)
    return log


@pytest.fixture(scope="module", params=["clean", "unclean"])
def stopped(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stopped]:
    path = tmp_path_factory.mktemp("stopped")
    clean = request.param == "clean"
    with LogFixture(path, config=CONFIG) as fixture:
        log = write_log(fixture)
        if clean:
            log.close()
        else:
            fixture.abandon()
        assert log.recovery_point == (LOG_END if clean else RECOVERY_POINT)
        assert set(LOGS + OTHERS) <= fixture.names()
        yield Stopped(path, clean, log.recovery_point)


def check(
    stopped: Stopped,
    target: Path,
    damage: Callable[[Path], None],
    *,
    what: str,
    must_read: list[int],
    keeps_end: bool = True,
) -> None:
    """Does the damage to a copy, and checks the three promises of the module's docstring.

    Args:
        stopped: What is damaged.
        target: Where the copy goes; removed again.
        damage: Changes files in the partition directory it is given.
        what: For messages.
        must_read: Offsets that must still be readable.
        keeps_end: Whether the end of the log must be where a clean stop left it, at least.
    """
    with stopped.damaged(target, damage) as fixture:
        lengths = {
            name: fixture.path(name).stat().st_size for name in LOGS if fixture.path(name).exists()
        }
        try:
            log = fixture.open(clean=stopped.clean, recovery_point=stopped.recovery_point)
            use(log)
            readable = readable_offsets(log)
            missing = set(must_read) - set(readable)
            assert not missing, f"{what}: offsets {sorted(missing)} cannot be read"
            for name, length in lengths.items():
                assert_not_cut(stopped, fixture.path(name), length, what)
            if keeps_end:
                assert log.log_end_offset >= stopped.recovery_point, what
            end = log.log_end_offset
            info = log.append_as_leader(batch(size=SIZE, timestamp=T0 + 99), leader_epoch=4)
            assert info.first_offset == end, what
            for clean in (False, True):
                log = fixture.reopen(clean=clean)
                assert log.log_end_offset == end + 1, what
                assert set(readable) <= set(readable_offsets(log)), what
        except Exception as error:
            error.add_note(what)
            raise
    shutil.rmtree(target)


def use(log: Log) -> None:
    """What else the files are for: isolation levels, searches by time, retention."""
    log.update_high_watermark(log.log_end_offset)
    for offset in range(log.log_start_offset, log.log_end_offset, 3):
        log.read(offset, 1000, FetchIsolation.TXN_COMMITTED).read()
    for timestamp in (T0 - 1, T0, T0 + 13, T0 + 30, T0 + 31, MAX_TIMESTAMP):
        fetch_offset_by_timestamp(log, timestamp)
    delete_old_segments(log)


def assert_not_cut(stopped: Stopped, path: Path, length: int, what: str) -> None:
    """Only what is at or above the recovery point may be gone; one batch is one offset here."""
    base = offset_from_name(path.name)
    assert base is not None
    protected = min(length, max(0, min(stopped.recovery_point, base + 11) - base) * SIZE)
    if not path.exists():
        assert base >= stopped.recovery_point, f"{what}: {path.name} is gone"
    else:
        # Markers are shorter than SIZE, so this is a little less than the exact figure.
        assert path.stat().st_size >= protected - 200, f"{what}: {path.name} was cut"


def in_front(stopped: Stopped, name: str, position: int) -> list[int]:
    """Offsets that damage at a position of a segment leaves alone."""
    base = offset_from_name(name)
    assert base is not None
    data = (stopped.directory / str(PARTITION) / name).read_bytes()
    own, start = [], 0
    while start < len(data):
        offset, length = struct.unpack_from(">qi", data, start)
        start += length + 12
        if start <= position:
            own.append(offset)
    damaged = base + len(own)
    behind = range(base + 10, LOG_END) if damaged < stopped.recovery_point and base < 20 else ()
    return [*range(base), *own, *behind]


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
def test_a_flipped_bit_in_a_segment(name: str, stopped: Stopped, tmp_path: Path) -> None:
    size = (stopped.directory / str(PARTITION) / name).stat().st_size
    random = Random(name)
    # Bits of the header of a batch in the middle, others in each segment; the first and the last
    # byte, magic and checksum of the first batch, and some anywhere.
    middle = 4 * SIZE * 8
    bits = set(range(middle + 13 * LOGS.index(name), middle + 61 * 8, 39))
    bits |= {0, 16 * 8, 20 * 8, size * 8 - 1}
    bits |= {random.randrange(size * 8) for _ in range(6)}
    for bit in sorted(bits):
        check(
            stopped,
            tmp_path / "copy",
            lambda directory, bit=bit: flip_bit(directory / name, bit),  # type: ignore[misc]
            what=f"bit {bit % 8} of byte {bit // 8} of {name}",
            must_read=in_front(stopped, name, bit // 8),
        )


@pytest.mark.parametrize("name", OTHERS)
def test_a_flipped_bit_elsewhere_costs_no_record(
    name: str, stopped: Stopped, tmp_path: Path
) -> None:
    size = (stopped.directory / str(PARTITION) / name).stat().st_size
    random = Random(name)
    bits = {random.randrange(size * 8) for _ in range(5)} | {0, size * 8 - 1} if size else set()
    for bit in sorted(bits):
        check(
            stopped,
            tmp_path / "copy",
            lambda directory, bit=bit: flip_bit(directory / name, bit),  # type: ignore[misc]
            what=f"bit {bit % 8} of byte {bit // 8} of {name}",
            must_read=list(range(LOG_END)),
        )


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_by_one(path: Path) -> None:
    os.truncate(path, max(0, path.stat().st_size - 1))


def empty(path: Path) -> None:
    os.truncate(path, 0)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def noise(path: Path) -> None:
    path.write_bytes(Random(1).randbytes(path.stat().st_size + 5))


def foreign(path: Path) -> None:
    path.write_text("This is not the file you are looking for.\n" * 20)


def append_junk(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"junk" * 25)


KINDS = [cut_in_half, cut_by_one, empty, zeros, noise, foreign, append_junk, Path.unlink]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_files_beside_the_segments_are_dispensable(
    kind: Callable[[Path], None], stopped: Stopped, tmp_path: Path
) -> None:
    for name in OTHERS:
        check(
            stopped,
            tmp_path / "copy",
            lambda directory, name=name: kind(directory / name),  # type: ignore[misc]
            what=f"{kind.__name__} {name}",
            must_read=list(range(LOG_END)),
        )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_spoilt_segment_costs_its_own_records(
    kind: Callable[[Path], None], stopped: Stopped, tmp_path: Path
) -> None:
    for name in LOGS:
        size = (stopped.directory / str(PARTITION) / name).stat().st_size
        intact = {"cut_in_half": size // 2, "cut_by_one": size - 1, "append_junk": size}
        check(
            stopped,
            tmp_path / "copy",
            lambda directory, name=name: kind(directory / name),  # type: ignore[misc]
            what=f"{kind.__name__} {name}",
            must_read=[
                offset
                for offset in in_front(stopped, name, intact.get(kind.__name__, 0))
                # Without its first segment a log starts later.
                if kind is not Path.unlink or name != LOGS[0] or offset >= 10
            ],
            keeps_end=name != LOGS[-1],
        )


def future_batch(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4 * SIZE + 16] = 3
    path.write_bytes(data)


def future_version(path: Path) -> None:
    """Raises the version: text in the checkpoint, the first two bytes elsewhere."""
    data = path.read_bytes()
    start = b"9" if path.suffix == "" else struct.pack(">h", 9)
    path.write_bytes(start + data[len(start) :])


def test_files_of_a_later_release(stopped: Stopped, tmp_path: Path) -> None:
    for name in (name for name in OTHERS if "index" not in name or "txn" in name):
        check(
            stopped,
            tmp_path / "copy",
            lambda directory, name=name: future_version(directory / name),  # type: ignore[misc]
            what=f"future version of {name}",
            must_read=list(range(LOG_END)),
        )
    for name in (LOGS[0], LOGS[2]):
        check(
            stopped,
            tmp_path / "copy",
            lambda directory, name=name: future_batch(directory / name),  # type: ignore[misc]
            what=f"future batch in {name}",
            must_read=in_front(stopped, name, 4 * SIZE),
        )


def test_foreign_files_and_directories_are_ignored(stopped: Stopped, tmp_path: Path) -> None:
    def litter(directory: Path) -> None:
        for name in ("lost+found", "notes.txt", "12.log", f"{10:020d}.log.orig"):
            (directory / name).write_bytes(b"foreign")
        (directory / f"{15:020d}.log").mkdir()

    check(
        stopped,
        tmp_path / "copy",
        litter,
        what="foreign files",
        must_read=list(range(LOG_END)),
    )


def test_all_indexes_and_snapshots_missing(stopped: Stopped, tmp_path: Path) -> None:
    def strip(directory: Path) -> None:
        for entry in list(directory.iterdir()):
            if entry.suffix != ".log":
                entry.unlink()

    check(
        stopped,
        tmp_path / "copy",
        strip,
        what="nothing but segments",
        must_read=list(range(LOG_END)),
    )
