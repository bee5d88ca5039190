"""Leader-epoch cache: 01 §8.8."""

import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.errors import LogDataError
from odradek.files import Disk
from odradek.storage.log.leader_epochs import (
    UNDEFINED_END_OFFSET,
    EpochEndOffset,
    EpochEntry,
    LeaderEpochCache,
)
from odradek.testing import SimDisk, SimulatedCrash

THREE = ((0, 0), (2, 10), (5, 30))


def cache_of(
    directory: Path, entries: tuple[tuple[int, int], ...] = THREE, disk: Disk | None = None
) -> LeaderEpochCache:
    cache = LeaderEpochCache(str(directory / "leader-epoch-checkpoint"), disk=disk or Disk())
    for epoch, start_offset in entries:
        assert cache.assign(epoch, start_offset)
    return cache


def reloaded(cache: LeaderEpochCache) -> tuple[EpochEntry, ...]:
    other = LeaderEpochCache(cache.path, disk=Disk())
    other.load()
    return other.entries


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        pytest.param(0, (0, 10), id="01:EPO-1 epoch 0"),
        pytest.param(1, (0, 10), id="01:EPO-1 epoch 1"),
        pytest.param(2, (2, 30), id="01:EPO-1 epoch 2"),
        pytest.param(3, (2, 30), id="01:EPO-1 epoch 3"),
        pytest.param(5, (5, 40), id="01:EPO-1 epoch 5"),
        pytest.param(6, (-1, -1), id="01:EPO-1 epoch 6"),
        pytest.param(-1, (-1, -1), id="01:EPO-1 epoch -1"),
    ],
)
def test_end_offset_for(tmp_path: Path, epoch: int, expected: tuple[int, int]) -> None:
    answer = cache_of(tmp_path).end_offset_for(epoch, 40)

    assert answer == EpochEndOffset(*expected)


def test_end_offset_for_an_epoch_before_the_first(tmp_path: Path) -> None:
    """01:EPO-2."""
    assert cache_of(tmp_path, ((2, 10), (5, 30))).end_offset_for(1, 40) == (1, 10)


def test_end_offset_for_without_entries(tmp_path: Path) -> None:
    assert cache_of(tmp_path, ()).end_offset_for(0, 40) == UNDEFINED_END_OFFSET


@pytest.mark.parametrize(
    ("epoch", "start_offset", "changed", "expected"),
    [
        pytest.param(5, 35, False, THREE, id="01:EPO-3 (5,35)"),
        pytest.param(6, 40, True, (*THREE, (6, 40)), id="01:EPO-3 (6,40)"),
        pytest.param(4, 20, True, ((0, 0), (2, 10), (4, 20)), id="01:EPO-3 (4,20)"),
        pytest.param(6, 10, True, ((0, 0), (6, 10)), id="01:EPO-3 (6,10)"),
        pytest.param(5, 30, False, THREE, id="the latest again"),
        pytest.param(5, 29, True, ((0, 0), (2, 10), (5, 29)), id="the latest earlier"),
        pytest.param(0, 0, True, ((0, 0),), id="all over again"),
        pytest.param(2, 40, True, ((0, 0), (2, 40)), id="epoch goes back"),
    ],
)
def test_assign(
    tmp_path: Path,
    epoch: int,
    start_offset: int,
    changed: bool,
    expected: tuple[tuple[int, int], ...],
) -> None:
    cache = cache_of(tmp_path)

    assert cache.assign(epoch, start_offset) is changed

    assert cache.entries == expected
    assert cache.latest_epoch == expected[-1][0]
    assert reloaded(cache) == expected  # On disk without a flush.


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1), (5, -1), (-1, -1)])
def test_assign_refuses_negative_numbers(tmp_path: Path, epoch: int, start_offset: int) -> None:
    for cache in (cache_of(tmp_path), cache_of(tmp_path, ())):
        before = cache.entries
        with pytest.raises(ValueError, match=f"epoch {epoch} cannot start at offset"):
            cache.assign(epoch, start_offset)
        assert cache.entries == before


@pytest.mark.parametrize(
    ("truncate", "offset", "expected"),
    [
        pytest.param("end", 30, ((0, 0), (2, 10)), id="01:EPO-4 from end 30"),
        pytest.param("end", 31, THREE, id="01:EPO-4 from end 31"),
        pytest.param("start", 15, ((2, 15), (5, 30)), id="01:EPO-4 from start 15"),
        pytest.param("start", 10, ((2, 10), (5, 30)), id="01:EPO-4 from start 10"),
        pytest.param("end", 0, (), id="from end 0"),
        pytest.param("start", 0, THREE, id="from start 0"),
        pytest.param("start", 50, ((5, 50),), id="from start behind the latest"),
    ],
)
def test_truncate(
    tmp_path: Path, truncate: str, offset: int, expected: tuple[tuple[int, int], ...]
) -> None:
    cache = cache_of(tmp_path)
    method: Callable[[int], None] = getattr(cache, f"truncate_from_{truncate}")

    method(offset)

    assert cache.entries == expected
    assert cache.latest_epoch == (expected[-1][0] if expected else None)
    assert reloaded(cache) == THREE  # The file is written in the background,
    cache.flush()
    assert reloaded(cache) == expected  # by this.


def test_truncating_from_start_below_the_first_entry_keeps_all(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, ((2, 10), (5, 30)))
    cache.truncate_from_start(9)
    assert cache.entries == ((2, 10), (5, 30))


def test_file_of_three_entries(tmp_path: Path) -> None:
    """01:EPO-5."""
    cache = cache_of(tmp_path)

    assert Path(cache.path).read_bytes() == b"0\n3\n0 0\n2 10\n5 30\n"
    assert reloaded(cache) == THREE


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (29, 2), (30, 5), (99, 5), (-1, None)]
)
def test_epoch_for_offset(tmp_path: Path, offset: int, epoch: int | None) -> None:
    assert cache_of(tmp_path).epoch_for_offset(offset) == epoch


def test_epoch_for_offset_without_entries(tmp_path: Path) -> None:
    assert cache_of(tmp_path, ()).epoch_for_offset(3) is None


def test_clear_writes_at_once(tmp_path: Path) -> None:
    cache = cache_of(tmp_path)
    cache.clear()
    assert cache.entries == ()
    assert cache.latest_epoch is None
    assert reloaded(cache) == ()


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_load_without_entries(tmp_path: Path, content: bytes | None) -> None:
    cache = LeaderEpochCache(str(tmp_path / "leader-epoch-checkpoint"), disk=Disk())
    if content is not None:
        Path(cache.path).write_bytes(content)
    cache.load()
    assert cache.entries == ()
    assert cache.latest_epoch is None


def test_load_of_a_damaged_file_leaves_an_empty_cache_to_rebuild(tmp_path: Path) -> None:
    """15:KAFKA-16541: a damaged file is told from an empty one, and can be replaced."""
    cache = cache_of(tmp_path)
    Path(cache.path).write_bytes(b"\0" * 19)

    with pytest.raises(LogDataError, match="leader-epoch-checkpoint: line 1: expected version 0"):
        cache.load()

    assert cache.entries == ()
    for epoch, start_offset in THREE:
        cache.assign(epoch, start_offset, durable=False)
    assert Path(cache.path).read_bytes() == b"\0" * 19
    cache.flush()
    assert reloaded(cache) == THREE


def test_power_loss_never_damages_the_file(tmp_path: Path) -> None:
    """15:KAFKA-16541: whatever is lost, the file has the entries before or after the change."""
    for crash_point in itertools.count():
        root = tmp_path / str(crash_point)
        root.mkdir()
        path = cache_of(root).path
        disk = SimDisk(root)
        cache = LeaderEpochCache(path, disk=disk)
        cache.load()
        disk.crash_at(crash_point)
        try:
            cache.assign(6, 40)
        except SimulatedCrash:
            disk.crash(mode="drop")
            assert reloaded(cache) in (THREE, (*THREE, (6, 40)))
        else:
            disk.crash(mode="drop")
            assert reloaded(cache) == (*THREE, (6, 40))
            break
    assert crash_point >= 5


def test_unchanged_cache_touches_no_file(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    cache = cache_of(tmp_path, disk=disk)
    disk.operations.clear()

    cache.assign(5, 31)
    cache.truncate_from_end(31)
    cache.truncate_from_start(0)
    cache.flush()

    assert disk.operations == []


def test_postponed_assignments_are_one_write(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    cache = LeaderEpochCache(str(tmp_path / "leader-epoch-checkpoint"), disk=disk)

    for epoch, start_offset in THREE:
        assert cache.assign(epoch, start_offset, durable=False)
    assert disk.operations == []
    cache.flush()
    cache.flush()

    assert [operation for operation, _ in disk.operations].count("rename") == 1
    assert reloaded(cache) == THREE


def test_failed_write_is_not_forgotten(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    cache = cache_of(tmp_path, disk=disk)
    disk.fail("write", error=errno.ENOSPC)

    with pytest.raises(OSError, match="No space"):
        cache.assign(6, 40)
    cache.flush()

    assert reloaded(cache) == (*THREE, (6, 40))
