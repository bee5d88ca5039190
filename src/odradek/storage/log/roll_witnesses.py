"""Witnesses of rolls: files that tell a short segment from one that lost its end.

A roll starts the next segment before the old one is synced. If the machine dies in between, the
disk may have kept the new segment and only the first batches of the old one. Every file is sound
then, and yet the log has a hole, which no follower would ever fetch again. So a roll leaves a
witness, an empty file whose name says where the records before the new segment end::

    00000000000000000012.00000000000000000010.rolled
    base of the new one  end of the records before it, lower where a follower's offsets jump

Names of a directory become durable in the order they were made. So where the new segment is, its
witness is, without a sync of its own.

| moment                                   | what becomes of the witness                          |
|------------------------------------------|------------------------------------------------------|
| roll, records before it not synced       | made, before any file of the new segment             |
| a flush passes the end it names          | removed: the records are on disk                     |
| its segment is removed                   | removed after it                                     |
| the segment before it is replaced        | removed: a replacement is synced, and may end sooner |
| load after a clean stop                  | removed: everything was flushed                      |
| load after an unclean stop               | the recovered segment must reach the end it names,   |
|                                          | or all later segments are removed; it stays until a  |
|                                          | flush passes, because recovery does not sync         |
| load, without its segment                | removed: the roll was cut short                      |
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterable

from odradek.files import Disk
from odradek.storage.paths import ROLLED_SUFFIX

__all__ = ["RollWitnesses"]

_NAME = re.compile(rf"([0-9]{{20}})\.([0-9]{{20}}){re.escape(ROLLED_SUFFIX)}")


class RollWitnesses:
    """The witnesses in one partition directory.

    Attributes:
        directory: The partition directory; follows its renames.
    """

    __slots__ = ("_disk", "_ends", "directory")

    def __init__(self, directory: str, *, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk
        # Base of the new segment to the end of the records before it.
        self._ends: dict[int, int] = {}

    def load(self, names: Iterable[str]) -> None:
        """Finds the witnesses among the names of the directory; of two of a base the higher."""
        for name in sorted(names):
            if (match := _NAME.fullmatch(name)) is not None:
                base, end = int(match[1]), int(match[2])
                self.remove(base)
                self._ends[base] = end

    def end_before(self, base_offset: int) -> int | None:
        """Where the records before a segment have to end; None if there is no witness."""
        return self._ends.get(base_offset)

    def add(self, base_offset: int, end: int) -> None:
        """Makes a witness, which replaces an older one of the same base."""
        self.remove(base_offset)
        self._disk.close(self._disk.open(self._path(base_offset, end), os.O_WRONLY | os.O_CREAT))
        self._ends[base_offset] = end

    def remove(self, base_offset: int) -> None:
        """Removes the witness of a segment, if it has one."""
        end = self._ends.get(base_offset)
        if end is not None:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(self._path(base_offset, end))
            del self._ends[base_offset]

    def remove_flushed(self, recovery_point: int) -> None:
        """Removes the witnesses of records that are on disk now."""
        if self._ends:
            for base, end in list(self._ends.items()):
                if end <= recovery_point:
                    self.remove(base)

    def keep_only(self, base_offsets: Collection[int]) -> None:
        """Removes the witnesses of all other segments."""
        for base in [base for base in self._ends if base not in base_offsets]:
            self.remove(base)

    def _path(self, base_offset: int, end: int) -> str:
        return f"{self.directory}/{base_offset:020d}.{end:020d}{ROLLED_SUFFIX}"
