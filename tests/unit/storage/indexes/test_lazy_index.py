"""Indexes that open on first use: 01 §7."""

from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.storage.indexes.lazy_index import LazyIndex
from odradek.storage.indexes.offset_index import OffsetIndex

DISK = Disk()


def open_index(path: str) -> OffsetIndex:
    return OffsetIndex(path, 50, max_index_size=80, disk=DISK)


def lazy(path: Path) -> LazyIndex[OffsetIndex]:
    return LazyIndex(str(path), open_index, disk=DISK)


def mapped_files(directory: Path) -> int:
    return Path("/proc/self/maps").read_text().count(f"{directory}/")


def test_first_lookup_maps_exactly_one_of_a_thousand(tmp_path: Path) -> None:
    entry = bytes.fromhex("0000000500000064")
    indexes = []
    for number in range(1000):
        path = tmp_path / f"{number:020}.index"
        path.write_bytes(entry)
        indexes.append(lazy(path))
    assert mapped_files(tmp_path) == 0
    assert indexes[500].get().lookup(60) == (55, 100)
    assert mapped_files(tmp_path) == 1
    assert [number for number, index in enumerate(indexes) if index.is_loaded] == [500]
    assert indexes[500].get() is indexes[500].get()
    for index in indexes:
        index.close()
    assert mapped_files(tmp_path) == 0


def test_nothing_but_get_opens_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    index = lazy(path)
    assert not index.file_exists()
    index.flush()
    index.rename_to(str(tmp_path / "y"))  # There is no file, and that is no error.
    assert index.path == str(tmp_path / "y")
    (tmp_path / "y").write_bytes(bytes(9))
    assert index.file_exists()
    index.rename_to(str(tmp_path / "z"))
    (tmp_path / "d").mkdir()
    (tmp_path / "z").rename(tmp_path / "d" / "z")
    index.update_directory(str(tmp_path / "d"))
    index.close()
    assert (tmp_path / "d" / "z").stat().st_size == 9
    assert index.delete_if_exists()
    assert not index.delete_if_exists()
    assert not index.is_loaded
    assert list((tmp_path / "d").iterdir()) == []


def test_rename_into_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    index = lazy(path)
    with pytest.raises(FileNotFoundError):
        index.rename_to(str(tmp_path / "nowhere" / "x"))
    assert index.path == str(path)


def test_closed_or_deleted_it_is_not_opened_again(tmp_path: Path) -> None:
    """A late reader must not bring a deleted file back."""
    for end in (LazyIndex.close, LazyIndex.close_without_trim, LazyIndex.delete_if_exists):
        index = lazy(tmp_path / "x")
        end(index)
        with pytest.raises(ValueError, match="closed"):
            index.get()
    assert list(tmp_path.iterdir()) == []


def test_loaded_it_follows_the_index(tmp_path: Path) -> None:
    index = lazy(tmp_path / "x")
    index.get().append(55, 100)
    index.flush()
    index.rename_to(str(tmp_path / "y"))
    assert index.path == index.get().path == str(tmp_path / "y")
    (tmp_path / "d").mkdir()
    (tmp_path / "y").rename(tmp_path / "d" / "y")
    index.update_directory(str(tmp_path / "d"))
    assert index.file_exists()
    index.close()
    assert (tmp_path / "d" / "y").stat().st_size == 8
    with pytest.raises(ValueError, match="closed"):
        index.get().lookup(1)
    assert index.delete_if_exists()


def test_loaded_close_without_trim_leaves_the_length(tmp_path: Path) -> None:
    index = lazy(tmp_path / "x")
    index.get().append(55, 100)
    index.close_without_trim()
    assert (tmp_path / "x").stat().st_size == 80


def test_failure_to_open_is_not_remembered(tmp_path: Path) -> None:
    index = lazy(tmp_path / "later" / "x")
    with pytest.raises(FileNotFoundError):
        index.get()
    assert not index.is_loaded
    (tmp_path / "later").mkdir()
    assert index.get().entries == 0
    index.close()
