"""SimDisk: planted errors, short writes, a full disk, crash points."""

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from odradek.files import read_whole, write_atomically
from odradek.testing import SimDisk, SimulatedCrash


@pytest.fixture
def disk(tmp_path: Path) -> SimDisk:
    return SimDisk(tmp_path)


def open_new(disk: SimDisk, name: str) -> int:
    return disk.open(os.path.join(disk.root, name), os.O_RDWR | os.O_CREAT)


def test_each_operation_can_fail_without_effect(disk: SimDisk, tmp_path: Path) -> None:
    a, b, d = (str(tmp_path / name) for name in ("a", "b", "d"))
    fd = disk.open(a, os.O_RDWR | os.O_CREAT)
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: disk.open(b, os.O_RDWR | os.O_CREAT),
        "write": lambda: disk.write(fd, b"x"),
        "writev": lambda: disk.writev(fd, [b"x"]),
        "pread": lambda: disk.pread(fd, 1, 0),
        "ftruncate": lambda: disk.ftruncate(fd, 9),
        "fsync": lambda: disk.fsync(fd),
        "fsync_dir": lambda: disk.fsync_dir(str(tmp_path)),
        "rename": lambda: disk.rename(a, b),
        "unlink": lambda: disk.unlink(a),
        "mkdir": lambda: disk.mkdir(d),
        "rmdir": lambda: disk.rmdir(d),
    }
    for operation, call in calls.items():
        disk.fail(operation)
        with pytest.raises(OSError, match="Input/output error") as raised:
            call()
        assert raised.value.errno == errno.EIO, operation
    disk.close(fd)

    assert os.listdir(tmp_path) == ["a"]
    assert os.path.getsize(a) == 0
    assert disk.durable_bytes(a) is None


def test_fail_is_aimed_by_path_count_and_error(disk: SimDisk) -> None:
    log, index = open_new(disk, "0.log"), open_new(disk, "0.index")
    disk.fail("write", path_contains=".log", after=1, times=2, error=OSError(errno.EROFS))

    results = []
    for fd in (log, index, log, index, log, log):
        try:
            results.append(disk.write(fd, b"x"))
        except OSError as error:
            results.append(-(error.errno or 0))
    disk.kill()

    assert results == [1, 1, -errno.EROFS, 1, -errno.EROFS, 1]


def test_errors_have_the_type_of_their_number(disk: SimDisk, tmp_path: Path) -> None:
    disk.fail("open", path_contains=str(tmp_path / "a"), error=errno.EACCES, times=None)

    for _ in range(3):
        with pytest.raises(PermissionError):
            open_new(disk, "a")
    disk.heal()
    disk.close(open_new(disk, "a"))


def test_an_unknown_operation_is_refused(disk: SimDisk) -> None:
    with pytest.raises(ValueError, match="no operation 'sync'"):
        disk.fail("sync")


def test_a_full_disk_writes_short_then_fails(disk: SimDisk, tmp_path: Path) -> None:
    disk.full_after(10)
    fd = open_new(disk, "a")
    assert disk.write(fd, b"12345678") == 8
    assert disk.writev(fd, [b"9", b"0abc"]) == 2
    with pytest.raises(OSError, match="No space left") as raised:
        disk.write(fd, b"d")
    assert raised.value.errno == errno.ENOSPC
    disk.full_after(None)
    assert disk.write(fd, b"d") == 1
    disk.close(fd)

    assert (tmp_path / "a").read_bytes() == b"1234567890d"


def test_short_writes_are_reported_by_their_count(disk: SimDisk, tmp_path: Path) -> None:
    disk.short_write(3, path_contains="checkpoint", after=1)
    path = str(tmp_path / "checkpoint")
    write_atomically(disk, path, b"first")

    with pytest.raises(OSError, match=r"short write to .*: 3 of 6 bytes"):
        write_atomically(disk, path, b"second")

    assert read_whole(disk, path) == b"first"


def test_repeating_a_failed_sync_loses_data(disk: SimDisk, tmp_path: Path) -> None:
    """Rule 4 of `odradek.files`: the second sync succeeds and saves nothing."""
    fd = open_new(disk, "a")
    disk.fsync_dir(str(tmp_path))
    disk.write(fd, b"data")
    disk.fail("fsync")
    with pytest.raises(OSError, match="Input/output"):
        disk.fsync(fd)

    disk.fsync(fd)

    assert disk.pread(fd, 4, 0) == b"data", "reads are served from the page cache"
    disk.crash()
    assert (tmp_path / "a").read_bytes() == bytes(4)


def test_pages_of_a_failed_sync_do_not_come_back_torn(disk: SimDisk, tmp_path: Path) -> None:
    for seed in range(10):
        fd = open_new(disk, str(seed))
        disk.fsync_dir(str(tmp_path))
        disk.write(fd, b"data")
        disk.fail("fsync")
        with pytest.raises(OSError, match="Input/output"):
            disk.fsync(fd)
        disk.crash(Random(seed), mode="torn")
        assert b"d" not in (tmp_path / str(seed)).read_bytes()


def test_a_file_written_anew_after_a_failed_sync_can_be_saved(
    disk: SimDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "checkpoint")
    disk.fail("fsync")
    with pytest.raises(OSError, match="Input/output"):
        write_atomically(disk, path, b"content")

    write_atomically(disk, path, b"content")

    disk.crash()
    assert (tmp_path / "checkpoint").read_bytes() == b"content"


def test_operations_tell_what_was_done_in_order(disk: SimDisk, tmp_path: Path) -> None:
    disk.mkdir(str(tmp_path / "t-0"))
    write_atomically(disk, str(tmp_path / "t-0" / "x"), b"1")
    read_whole(disk, str(tmp_path / "t-0" / "x"))

    assert disk.operations == [
        ("mkdir", "t-0"),
        ("open", "t-0/x.tmp"),
        ("write", "t-0/x.tmp"),
        ("fsync", "t-0/x.tmp"),
        ("rename", "t-0/x.tmp -> t-0/x"),
        ("fsync_dir", "t-0"),
    ]


def test_crash_at_counts_mutating_operations_from_now(disk: SimDisk, tmp_path: Path) -> None:
    fd = open_new(disk, "a")
    disk.crash_at(1)
    disk.write(fd, b"1")
    disk.pread(fd, 1, 0)
    with pytest.raises(SimulatedCrash, match="before fsync a"):
        disk.fsync(fd)

    with pytest.raises(SimulatedCrash):  # The machine is down, for readers too.
        disk.pread(fd, 1, 0)
    with pytest.raises(SimulatedCrash):
        disk.unlink(str(tmp_path / "a"))
    disk.close(fd)  # What a `finally` does on the way out.

    disk.crash(mode="keep")
    assert read_whole(disk, str(tmp_path / "a")) == b"1"


def test_no_handler_of_ours_swallows_a_crash() -> None:
    assert not issubclass(SimulatedCrash, Exception)


@pytest.mark.parametrize("seed", [None, *range(12)])
def test_write_atomically_leaves_old_or_new_at_every_crash_point(
    tmp_path: Path, seed: int | None
) -> None:
    """Whatever the moment of power loss, the file is whole."""
    old, new = b"old" * 3000, b"new" * 4000
    found = []
    for n in itertools.count():
        root = tmp_path / str(n)
        root.mkdir()
        path = str(root / "checkpoint")
        disk = SimDisk(root)
        write_atomically(disk, path, old)
        disk.crash_at(n)
        try:
            write_atomically(disk, path, new)
        except SimulatedCrash:
            completed = False
        else:
            completed = True
        if seed is None:
            disk.crash(mode="drop")
        else:
            disk.crash(Random(seed * 100 + n), mode="torn")
        found.append(read_whole(disk, path))
        if completed:
            break

    assert len(found) == 6, "before each of its five operations, and after all"
    assert set(found) <= {old, new}
    assert found[-1] == new
    assert found[:4] == [old] * 4
    if seed is None:
        assert found[4] == old, "a rename alone is not durable"


def test_a_rename_without_sync_of_its_bytes_is_caught(tmp_path: Path) -> None:
    """The mistake `write_atomically` is there to avoid: the bytes were never synced."""
    disk = SimDisk(tmp_path)
    path = str(tmp_path / "checkpoint")
    write_atomically(disk, path, b"old")
    fd = open_new(disk, "checkpoint.tmp")
    disk.write(fd, b"new")
    disk.close(fd)
    disk.rename(path + ".tmp", path)
    disk.fsync_dir(str(tmp_path))

    disk.crash()

    assert read_whole(disk, path) == b""
