"""The disk seam. The fake passes the same tests as the real disk; what only it can do is tested in
tests/unit/testing."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.files import Disk, make_directories, read_whole, write_atomically
from odradek.testing import SimDisk
from tests.support.descriptors import open_below


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    makers: dict[str, Callable[[], Disk]] = {"real": Disk, "simulated": lambda: SimDisk(tmp_path)}
    return makers[request.param]()


def test_the_real_disk_adds_nothing_to_the_calls_of_the_hot_path() -> None:
    disk = Disk()

    assert (disk.write, disk.writev, disk.pread, disk.close) == (
        os.write,
        os.writev,
        os.pread,
        os.close,
    )


def test_bytes_written_are_read_back(disk: Disk, tmp_path: Path) -> None:
    fd = disk.open(str(tmp_path / "a"), os.O_RDWR | os.O_CREAT | os.O_APPEND)
    assert disk.write(fd, memoryview(b"one")) == 3
    assert disk.writev(fd, [b" two", bytearray(b" three")]) == 10
    disk.fsync(fd)
    assert disk.pread(fd, 5, 4) == b"two t"
    assert disk.pread(fd, 5, 13) == b""
    disk.ftruncate(fd, 3)
    disk.close(fd)

    assert read_whole(disk, str(tmp_path / "a")) == b"one"


def test_descriptors_are_not_inherited(disk: Disk, tmp_path: Path) -> None:
    fd = disk.open(str(tmp_path / "a"), os.O_RDWR | os.O_CREAT)
    assert not os.get_inheritable(fd)
    disk.close(fd)


def test_a_mapped_file_can_be_flushed(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "0.index")
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    disk.ftruncate(fd, 8192)
    with mmap.mmap(fd, 8192) as mapping:
        mapping[4096:4100] = b"data"
        disk.flush_map(mapping, path)
    disk.close(fd)

    assert read_whole(disk, path) == bytes(4096) + b"data" + bytes(4092)


def test_names_come_move_and_go(disk: Disk, tmp_path: Path) -> None:
    a, b, d = (str(tmp_path / name) for name in ("a", "b", "d"))
    write_atomically(disk, a, b"1")
    write_atomically(disk, b, b"2")
    disk.mkdir(d)
    disk.rename(a, b)
    assert sorted(os.listdir(tmp_path)) == ["b", "d"]
    assert read_whole(disk, b) == b"1"

    disk.rename(b, os.path.join(d, "b"))
    with pytest.raises(OSError, match="not empty"):
        disk.rmdir(d)
    disk.unlink(os.path.join(d, "b"))
    disk.rmdir(d)
    disk.fsync_dir(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_errors_are_those_of_the_system(disk: Disk, tmp_path: Path) -> None:
    missing, present = str(tmp_path / "missing"), str(tmp_path / "present")
    disk.mkdir(present)

    with pytest.raises(FileNotFoundError):
        disk.open(missing, os.O_RDONLY)
    with pytest.raises(FileNotFoundError):
        disk.fsync_path(missing)
    with pytest.raises(FileNotFoundError):
        disk.fsync_dir(missing)
    with pytest.raises(FileNotFoundError):
        disk.rename(missing, present + "/a")
    with pytest.raises(FileNotFoundError):
        disk.unlink(missing)
    with pytest.raises(FileNotFoundError):
        disk.mkdir(missing + "/inner")
    with pytest.raises(FileExistsError):
        disk.mkdir(present)
    with pytest.raises(OSError, match=r"Bad file descriptor|closed"):
        disk.close(987_654)
    assert os.listdir(tmp_path) == ["present"]


def test_no_descriptor_is_left_open(disk: Disk, tmp_path: Path) -> None:
    before = open_below(tmp_path)
    path = str(tmp_path / "a")
    write_atomically(disk, path, b"x")
    read_whole(disk, path)
    disk.fsync_path(path)
    disk.mkdir(str(tmp_path / "directory"))
    with pytest.raises(IsADirectoryError):
        write_atomically(disk, str(tmp_path / "directory"), b"x")

    assert open_below(tmp_path) == before


@pytest.mark.parametrize("size", [0, 1, (1 << 18) - 1, 1 << 18, (1 << 18) + 1])
def test_read_whole_reads_any_size(disk: Disk, tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * (size // 256 + 1))
    os.truncate(tmp_path / "a", size)

    assert read_whole(disk, str(tmp_path / "a")) == (tmp_path / "a").read_bytes()


def test_write_atomically_replaces_and_leaves_nothing_behind(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    (tmp_path / "checkpoint.tmp").write_bytes(b"left over from a crash, and longer")

    write_atomically(disk, path, b"old")
    write_atomically(disk, path, b"new")

    assert read_whole(disk, path) == b"new"
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_write_atomically_keeps_the_old_content_when_it_fails(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    path = str(tmp_path / "checkpoint")
    write_atomically(disk, path, b"old")
    for operation in ("open", "write", "fsync", "rename"):
        disk.fail(operation)
        with pytest.raises(OSError, match="Input/output error"):
            write_atomically(disk, path, b"new")
        assert read_whole(disk, path) == b"old", operation
    disk.short_write(2)
    with pytest.raises(OSError, match="2 of 3 bytes"):
        write_atomically(disk, path, b"new")

    disk.crash()
    assert read_whole(disk, path) == b"old"


def test_reserved_room_is_not_length_and_a_cut_gives_it_back(tmp_path: Path) -> None:
    disk = Disk()
    fd = disk.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    try:
        disk.write(fd, b"x" * 4096)
        before = os.fstat(fd)
        if not disk.reserve(fd, 4096, 8 << 20):
            pytest.skip("this file system reserves nothing")
        reserved = os.fstat(fd)
        disk.ftruncate(fd, 4096)
        after = os.fstat(fd)
    finally:
        disk.close(fd)
    assert (before.st_size, reserved.st_size, after.st_size) == (4096, 4096, 4096)
    assert reserved.st_blocks >= (8 << 20) // 512
    assert after.st_blocks < reserved.st_blocks


def test_reserving_is_only_a_hint() -> None:
    assert not Disk().reserve(-1, 0, 1 << 20)


def test_directories_are_made_with_those_above_them(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    for _ in range(2):  # What is there is left alone.
        make_directories(disk, str(path))
        assert path.is_dir()
    (path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directories(disk, str(path / "file"))


def test_made_directories_outlast_a_crash(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    make_directories(disk, str(tmp_path / "a" / "b"))
    disk.crash()
    assert (tmp_path / "a" / "b").is_dir()


def test_somebody_else_makes_a_directory_at_the_same_time(tmp_path: Path) -> None:
    class Hurried(Disk):
        def mkdir(self, path: str) -> None:
            super().mkdir(path)
            super().mkdir(path)

    make_directories(Hurried(), str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()


class _SweptDisk(Disk):
    """Somebody removes a temporary file just before it gets its name."""

    def __init__(self, times: int) -> None:
        self.times = times

    def rename(self, source: str, target: str) -> None:
        if self.times:
            self.times -= 1
            os.unlink(source)
        super().rename(source, target)


def test_a_temporary_file_that_was_removed_is_written_again(tmp_path: Path) -> None:
    """01 §8.7: a missing optional file is no failure of the disk."""
    path = str(tmp_path / "checkpoint")
    write_atomically(_SweptDisk(1), path, b"x")
    assert read_whole(Disk(), path) == b"x"
    with pytest.raises(FileNotFoundError):
        write_atomically(_SweptDisk(2), path, b"y")
    assert read_whole(Disk(), path) == b"x"
