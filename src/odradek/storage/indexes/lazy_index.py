"""An index that is opened when it is first needed.

A log has thousands of inactive segments whose indexes may never be used. Opening and mapping them
all would dominate start and stop, and each mapping costs a descriptor. All methods but `get` work
on the file alone while the index is not open.
"""

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from odradek.files import Disk
from odradek.storage.indexes.index import Index

__all__ = ["LazyIndex"]

T = TypeVar("T", bound=Index)


class LazyIndex(Generic[T]):
    """Wraps the path of an index and the function that opens it.

    Args:
        path: The file, which need not exist.
        factory: Opens the index at the path it is given.
        disk: Where the file lives.
    """

    __slots__ = ("_closed", "_disk", "_factory", "_index", "_lock", "_path")

    def __init__(self, path: str, factory: Callable[[str], T], *, disk: Disk) -> None:
        self._path = path
        self._factory = factory
        self._disk = disk
        self._lock = threading.Lock()
        self._index: T | None = None
        # A late reader must neither map a closed index again nor create a deleted file again.
        self._closed = False

    def get(self) -> T:
        """Returns the index, opening it the first time.

        Raises:
            ValueError: It was closed.
        """
        index = self._index
        if index is not None:
            return index
        with self._lock:
            if self._index is None:
                if self._closed:
                    raise ValueError(f"index {self._path} is closed")
                self._index = self._factory(self._path)
            return self._index

    @property
    def is_loaded(self) -> bool:
        """Whether the index has been opened."""
        return self._index is not None

    @property
    def path(self) -> str:
        """The current path of the file."""
        index = self._index
        return self._path if index is None else index.path

    def file_exists(self) -> bool:
        """Whether the file exists."""
        return os.path.exists(self.path)

    def flush(self) -> None:
        """Makes the entries durable; an index that was not opened has nothing to sync."""
        index = self._index
        if index is not None:
            index.flush()

    def rename_to(self, path: str) -> None:
        """Renames the file; one that is missing and not open is no error."""
        with self._lock:
            if self._index is not None:
                self._index.rename_to(path)
                return
            try:
                self._disk.rename(self._path, path)
            except FileNotFoundError:
                if os.path.exists(self._path):  # Then the target's directory is missing.
                    raise
            self._path = path

    def update_directory(self, directory: str) -> None:
        """Uses the new path of a renamed directory."""
        with self._lock:
            self._path = os.path.join(directory, os.path.basename(self._path))
            if self._index is not None:
                self._index.update_directory(directory)

    def close(self) -> None:
        """Trims and unmaps an open index; does not touch the file of one that is not open."""
        with self._lock:
            self._closed = True
            if self._index is not None:
                self._index.close()

    def close_without_trim(self) -> None:
        """Unmaps an open index and leaves its file unchanged."""
        with self._lock:
            self._closed = True
            if self._index is not None:
                self._index.close_without_trim()

    def delete_if_exists(self) -> bool:
        """Closes and removes the file; returns whether it existed."""
        with self._lock:
            self._closed = True
            if self._index is not None:
                return self._index.delete_if_exists()
            try:
                self._disk.unlink(self._path)
            except FileNotFoundError:
                return False
            return True
