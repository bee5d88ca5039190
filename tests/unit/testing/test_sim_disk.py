"""SimDisk: what a crash takes away. Its counterpart, the real disk, is in test_files.py."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from odradek.files import Disk, read_whole, write_atomically
from odradek.testing import SimDisk

CREATE = os.O_RDWR | os.O_CREAT


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SimDisk]:
    disk = SimDisk(tmp_path)
    yield disk
    disk.kill()


def put(disk: Disk, path: Path, data: bytes, *, sync: bool = True) -> None:
    fd = disk.open(str(path), CREATE | os.O_APPEND)
    assert disk.write(fd, data) == len(data)
    if sync:
        disk.fsync(fd)
    disk.close(fd)


def put_durably(disk: Disk, path: Path, data: bytes) -> None:
    put(disk, path, data)
    disk.fsync_dir(str(path.parent))


def test_what_was_there_before_is_durable(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "0.log").write_bytes(b"old")
    disk = SimDisk(tmp_path)

    disk.crash()

    assert (tmp_path / "t-0" / "0.log").read_bytes() == b"old"


def test_synced_bytes_under_a_synced_name_survive(disk: SimDisk, tmp_path: Path) -> None:
    put_durably(disk, tmp_path / "a", b"bytes")

    disk.crash()

    assert (tmp_path / "a").read_bytes() == b"bytes"


def test_bytes_after_the_last_sync_are_lost(disk: SimDisk, tmp_path: Path) -> None:
    put_durably(disk, tmp_path / "a", b"synced")
    put(disk, tmp_path / "a", b" not synced", sync=False)
    assert disk.durable_bytes(str(tmp_path / "a")) == b"synced"

    disk.crash()

    assert (tmp_path / "a").read_bytes() == b"synced"


def test_a_name_that_was_not_synced_is_lost_with_its_bytes(disk: SimDisk, tmp_path: Path) -> None:
    put(disk, tmp_path / "synced bytes", b"x")
    put(disk, tmp_path / "nothing synced", b"x", sync=False)
    assert disk.durable_bytes(str(tmp_path / "synced bytes")) is None

    disk.crash()

    assert os.listdir(tmp_path) == []


def test_a_synced_name_with_un_synced_bytes_is_an_empty_file(disk: SimDisk, tmp_path: Path) -> None:
    put(disk, tmp_path / "a", b"x", sync=False)
    disk.fsync_dir(str(tmp_path))

    disk.crash()

    assert (tmp_path / "a").read_bytes() == b""


def test_a_rename_without_directory_sync_is_lost(disk: SimDisk, tmp_path: Path) -> None:
    put_durably(disk, tmp_path / "target", b"old")
    put_durably(disk, tmp_path / "source", b"new")
    disk.rename(str(tmp_path / "source"), str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == b"new"

    disk.crash()

    assert (tmp_path / "target").read_bytes() == b"old"
    assert (tmp_path / "source").read_bytes() == b"new"


def test_removals_without_directory_sync_are_undone(disk: SimDisk, tmp_path: Path) -> None:
    put_durably(disk, tmp_path / "a", b"back again")
    disk.mkdir(str(tmp_path / "empty"))
    disk.fsync_dir(str(tmp_path))
    disk.unlink(str(tmp_path / "a"))
    disk.rmdir(str(tmp_path / "empty"))
    assert os.listdir(tmp_path) == []

    disk.crash()

    assert (tmp_path / "a").read_bytes() == b"back again"
    assert (tmp_path / "empty").is_dir()


def test_synced_removals_stay(disk: SimDisk, tmp_path: Path) -> None:
    put_durably(disk, tmp_path / "a", b"x")
    disk.unlink(str(tmp_path / "a"))
    disk.fsync_dir(str(tmp_path))

    disk.crash()

    assert os.listdir(tmp_path) == []


def test_a_directory_needs_its_parent_synced(disk: SimDisk, tmp_path: Path) -> None:
    for name in ("kept", "lost"):
        disk.mkdir(str(tmp_path / name))
        put_durably(disk, tmp_path / name / "0.log", b"x")
        if name == "kept":
            disk.fsync_dir(str(tmp_path))

    disk.crash()

    assert os.listdir(tmp_path) == ["kept"]
    assert (tmp_path / "kept" / "0.log").read_bytes() == b"x"


def test_a_renamed_directory_takes_its_files_along(disk: SimDisk, tmp_path: Path) -> None:
    disk.mkdir(str(tmp_path / "t-0"))
    put_durably(disk, tmp_path / "t-0" / "0.log", b"one")
    fd = disk.open(str(tmp_path / "t-0" / "0.log"), os.O_WRONLY | os.O_APPEND)
    disk.rename(str(tmp_path / "t-0"), str(tmp_path / "t-0.x-delete"))
    disk.write(fd, b" two")
    disk.fsync(fd)
    disk.close(fd)
    disk.fsync_dir(str(tmp_path))
    assert disk.operations[-2] == ("fsync", "t-0.x-delete/0.log")

    disk.crash()

    assert os.listdir(tmp_path) == ["t-0.x-delete"]
    assert (tmp_path / "t-0.x-delete" / "0.log").read_bytes() == b"one two"


def test_stores_into_a_mapping_need_flush_map(disk: SimDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "0.index")
    fd = disk.open(path, CREATE)
    disk.ftruncate(fd, 10 << 20)
    with mmap.mmap(fd, 10 << 20) as mapping:
        disk.close(fd)
        mapping[0:8] = b"entry  1"
        disk.flush_map(mapping, path)
        disk.fsync_dir(str(tmp_path))
        mapping[8:16] = b"entry  2"
        mapping[9 << 20] = 7

    disk.crash()

    content = (tmp_path / "0.index").read_bytes()
    assert len(content) == 10 << 20
    assert content.rstrip(b"\0") == b"entry  1"


def test_truncation_needs_a_sync(disk: SimDisk, tmp_path: Path) -> None:
    for name in ("cut", "cut and synced", "reopened with O_TRUNC"):
        put_durably(disk, tmp_path / name, b"0123456789")
    for name in ("cut", "cut and synced"):
        fd = disk.open(str(tmp_path / name), os.O_RDWR)
        disk.ftruncate(fd, 4)
        if name == "cut and synced":
            disk.fsync(fd)
        disk.close(fd)
    disk.close(disk.open(str(tmp_path / "reopened with O_TRUNC"), os.O_RDWR | os.O_TRUNC))

    disk.crash()

    assert (tmp_path / "cut").read_bytes() == b"0123456789"
    assert (tmp_path / "cut and synced").read_bytes() == b"0123"
    assert (tmp_path / "reopened with O_TRUNC").read_bytes() == b"0123456789"


def test_sync_by_path_and_by_gathered_write(disk: SimDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT)
    assert disk.writev(fd, [b"one", memoryview(b" two"), bytearray(b" three")]) == 13
    disk.close(fd)
    disk.fsync_path(path)
    disk.fsync_dir(str(tmp_path))

    disk.crash()

    assert read_whole(disk, path) == b"one two three"


def test_a_removed_file_can_still_be_synced_through_its_descriptor(
    disk: SimDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "a")
    put_durably(disk, tmp_path / "a", b"old")
    fd = disk.open(path, os.O_WRONLY)
    disk.unlink(path)
    disk.write(fd, b"new")
    disk.fsync(fd)

    disk.crash()

    assert (tmp_path / "a").read_bytes() == b"new"


def test_what_came_past_the_disk_is_not_durable(disk: SimDisk, tmp_path: Path) -> None:
    put_durably(disk, tmp_path / "a", b"through the seam")
    put_durably(disk, tmp_path / "removed", b"x")
    (tmp_path / "a").write_bytes(b"past it")
    (tmp_path / "b").write_bytes(b"past it")
    (tmp_path / "removed").unlink()

    disk.crash()

    assert sorted(os.listdir(tmp_path)) == ["a", "removed"]
    assert (tmp_path / "a").read_bytes() == b"through the seam"


def test_settle_makes_prepared_files_durable(disk: SimDisk, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"prepared")
    disk.settle()

    disk.crash()

    assert (tmp_path / "b").read_bytes() == b"prepared"


def test_keep_loses_nothing_and_makes_it_durable(disk: SimDisk, tmp_path: Path) -> None:
    put(disk, tmp_path / "a", b"x", sync=False)
    disk.crash(mode="keep")
    assert (tmp_path / "a").read_bytes() == b"x"

    disk.crash(mode="drop")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_kill_loses_nothing_but_owes_the_sync(disk: SimDisk, tmp_path: Path) -> None:
    """The page cache outlives the process, not the machine."""
    put_durably(disk, tmp_path / "a", b"synced")
    put(disk, tmp_path / "a", b" not synced", sync=False)
    disk.kill()
    assert (tmp_path / "a").read_bytes() == b"synced not synced"

    disk.crash()
    assert (tmp_path / "a").read_bytes() == b"synced"


@pytest.mark.parametrize("mode", ["drop", "keep"])
def test_what_a_crash_left_is_durable(
    disk: SimDisk, tmp_path: Path, mode: Literal["drop", "keep"]
) -> None:
    put_durably(disk, tmp_path / "a", b"1")
    disk.crash(mode=mode)
    put(disk, tmp_path / "a", b"2", sync=False)
    disk.crash()

    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_crash_closes_the_descriptors_of_the_dead(disk: SimDisk, tmp_path: Path) -> None:
    fd = disk.open(str(tmp_path / "a"), CREATE)
    closed_past_the_disk = disk.open(str(tmp_path / "b"), CREATE)
    os.close(closed_past_the_disk)
    foreign = os.open(tmp_path, os.O_RDONLY)
    assert foreign == closed_past_the_disk, "the kernel gives the lowest free number"

    disk.crash()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    os.close(foreign)
    with pytest.raises(OSError, match="closed or was opened past this disk"):
        disk.write(fd, b"x")


@pytest.mark.parametrize("seed", range(20))
def test_torn_keeps_what_was_synced_and_invents_nothing(
    disk: SimDisk, tmp_path: Path, seed: int
) -> None:
    put_durably(disk, tmp_path / "log", b"s" * 6000)
    put(disk, tmp_path / "log", b"n" * 20000, sync=False)
    put(disk, tmp_path / "second", b"2", sync=False)
    disk.rename(str(tmp_path / "second"), str(tmp_path / "third"))

    disk.crash(Random(seed), mode="torn")

    content = (tmp_path / "log").read_bytes()
    assert content[:6000] == b"s" * 6000
    assert len(content) <= 26000
    assert set(content[6000:]) <= set(b"n\0")
    assert set(os.listdir(tmp_path)) - {"log"} in (set(), {"second"}, {"third"})


def test_torn_is_drawn_from_the_given_random(tmp_path: Path) -> None:
    def left(name: str, seed: int) -> dict[str, bytes]:
        root = tmp_path / name
        root.mkdir()
        disk = SimDisk(root)
        for number in range(4):
            put(disk, root / str(number), b"x" * 9000, sync=False)
        disk.crash(Random(seed), mode="torn")
        return {path.name: path.read_bytes() for path in root.iterdir()}

    assert left("a", 3) == left("b", 3)
    assert len({len(left(f"seed{seed}", seed)) for seed in range(12)}) > 2
    with pytest.raises(ValueError, match="Random"):
        SimDisk(tmp_path).crash(mode="torn")


def test_torn_can_bring_back_a_removed_file_with_its_un_synced_bytes(tmp_path: Path) -> None:
    contents = set()
    for seed in range(30):
        root = tmp_path / str(seed)
        root.mkdir()
        disk = SimDisk(root)
        put_durably(disk, root / "a", b"1")
        put(disk, root / "a", b"2", sync=False)
        disk.unlink(str(root / "a"))
        disk.crash(Random(seed), mode="torn")
        contents.add((root / "a").read_bytes() if (root / "a").exists() else None)

    assert {None, b"1", b"12"} <= contents <= {None, b"1", b"12", b"1\0"}


def test_paths_outside_of_the_root_are_refused(disk: SimDisk) -> None:
    with pytest.raises(ValueError, match="outside of the disk"):
        disk.open("/elsewhere", os.O_RDONLY)


def test_syncing_a_missing_directory_fails_as_the_real_one(disk: SimDisk, tmp_path: Path) -> None:
    put(disk, tmp_path / "file", b"")
    with pytest.raises(FileNotFoundError):
        disk.fsync_dir(str(tmp_path / "none"))
    with pytest.raises(NotADirectoryError):
        disk.fsync_dir(str(tmp_path / "file"))


def test_write_atomically_is_durable_when_it_returns(disk: SimDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    write_atomically(disk, path, b"content")

    disk.crash()

    assert read_whole(disk, path) == b"content"
    assert os.listdir(tmp_path) == ["checkpoint"]
