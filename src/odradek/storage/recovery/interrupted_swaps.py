"""Replacements of segments that a crash interrupted: undone or completed before loading.

`replacement` has the order of the renames; this module reads it backwards:

* `.deleted` and `.cleaned` files are removed. If there is a `.cleaned`, every `.swap` at or above
  it belongs to an interrupted replacement, and is removed, too: all old segments still exist.
* The other `.swap` logs are complete, and replace the old segments.

**The segments that they replace** are given by a file that was made before the `.swap`
(`.replaced`): its name has the base of the new segment and that of the segment behind the last one
it replaces. The batches of the new segment are not reliable for that: no checksum covers their
offsets, and one flipped bit would cost every live segment behind. Without that file (Kafka makes
none, nor does the split of a segment) the offsets decide; then old segments are not removed, but
set aside (`set_aside`).

**A new segment may be damaged itself.** Old segments are renamed from the first one on, so if the
old segment of the same base still exists, all old ones do, and they stay: the damaged `.swap` is
set aside. So is a `.swap` without any sound batch that belongs under its name. Otherwise the old
segments are lost, and the damaged one is used.
"""

import itertools
import logging
import os
from collections.abc import Callable
from typing import NamedTuple

from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage import paths
from odradek.storage.log.roll_witnesses import RollWitnesses
from odradek.storage.recovery.set_aside import unused_suffix
from odradek.storage.segments.damage import NEVER_CUT

__all__ = ["InterruptedSwaps", "SegmentContent"]

logger = logging.getLogger(__name__)


class SegmentContent(NamedTuple):
    """The content of a segment that is not opened yet, by its batches."""

    next_offset: int  # Behind its last sound batch; its base offset without one.
    has_batches: bool  # Whether there is a sound one.
    is_sound: bool  # Whether there is nothing else.


class InterruptedSwaps:
    """The replacements in one partition directory that a crash interrupted.

    Args:
        topic_partition: For messages.
        directory: The partition directory; no file of it is open.
        disk: Where the files live.
        witnesses: Those of the log; those of replaced segments are removed.
        content_of: Reads the content of the segment with a base and a suffix.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        *,
        disk: Disk,
        witnesses: RollWitnesses,
        content_of: Callable[[int, str], SegmentContent],
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._disk = disk
        self._witnesses = witnesses
        self._content_of = content_of

    def settle(self) -> None:
        """Leaves nothing but live segments.

        Raises:
            OSError: The disk refused.
        """
        swaps = self._remove_temporary_files()
        replaced = self._read_replaced()
        live = {
            base
            for name in self._names()
            if name.endswith(paths.LOG_SUFFIX)
            and (base := paths.offset_from_name(name)) is not None
        }
        for base in swaps:
            live = self._complete(base, live, replaced.get(base))
        for base, end in replaced.items():
            self._disk.unlink(paths.replaced_path(self._directory, base, end))

    def _names(self) -> list[str]:
        with os.scandir(self._directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def _path(self, base: int, kind: str, stage: str = "") -> str:
        return paths.segment_path(self._directory, base, kind, stage)

    def _unlink_if_exists(self, path: str) -> None:
        if os.path.exists(path):
            self._disk.unlink(path)

    def _unlink_indexes(self, base: int, stage: str = "") -> None:
        for suffix in paths.INDEX_SUFFIXES:
            self._unlink_if_exists(self._path(base, suffix, stage))

    def _remove_temporary_files(self) -> list[int]:
        """Undoes incomplete replacements; returns the bases of complete swaps, ascending."""
        swaps: set[int] = set()
        swapped_indexes: list[tuple[int, str]] = []
        cleaned: list[str] = []
        lowest_cleaned = NEVER_CUT
        for name in self._names():
            base = paths.offset_from_name(name)
            if base is None:
                continue
            path = os.path.join(self._directory, name)
            if name.endswith(paths.DELETED_SUFFIX):
                self._disk.unlink(path)
            elif name.endswith(paths.CLEANED_SUFFIX):
                cleaned.append(path)
                lowest_cleaned = min(lowest_cleaned, base)
            elif name.endswith(paths.SWAP_SUFFIX):
                if name.removesuffix(paths.SWAP_SUFFIX).endswith(paths.LOG_SUFFIX):
                    swaps.add(base)
                else:
                    swapped_indexes.append((base, path))
        for base in [base for base in swaps if base >= lowest_cleaned]:
            logger.info("%s: undoing the replacement at %d", self._topic_partition, base)
            self._unlink_indexes(base, paths.SWAP_SUFFIX)
            self._disk.unlink(self._path(base, paths.LOG_SUFFIX, paths.SWAP_SUFFIX))
            swaps.discard(base)
        for path in cleaned:
            self._disk.unlink(path)
        for base, path in swapped_indexes:
            if base not in swaps:
                self._unlink_if_exists(path)
                if base < lowest_cleaned:  # Its log has taken its place, with whose indexes?
                    self._unlink_indexes(base)
        return sorted(swaps)

    def _read_replaced(self) -> dict[int, int]:
        """By the base of a new segment: where the segments that it replaces end.

        There is one of a base at most: an earlier one is removed before the next is made, and
        names of a directory become durable in order.
        """
        found: dict[int, int] = {}
        for name in self._names():
            if (pair := paths.parse_replaced(name)) is not None:
                found[pair[0]] = pair[1]
        return found

    def _complete(self, base: int, live: set[int], end: int | None) -> set[int]:
        """Puts a complete swap in its place; returns the live segments after it."""
        content = self._content_of(base, paths.SWAP_SUFFIX)
        is_sound = content.is_sound and (end is None or content.next_offset <= end)
        if not content.has_batches or (base in live and not is_sound):
            self._set_swap_aside(base)
            return live
        if end is not None:
            old = [other for other in sorted(live) if base <= other < end]
        else:
            old = self._overlapping(base, live, content.next_offset)
        logger.info(
            "%s: completing the replacement of the segments %s by %d",
            self._topic_partition, old, base,
        )  # fmt: skip
        if end is None and old:
            self._set_aside(old)
        for other in old:
            self._unlink_indexes(other)
            self._unlink_if_exists(self._path(other, paths.LOG_SUFFIX))
        self._unlink_indexes(base)
        live = live.difference(old) | {base}
        # The new segment is synced, and may end before the old ones did.
        following = sorted(other for other in live if other > base)[:1]
        for other in sorted({*old, *following} - {base}):
            self._witnesses.remove(other)
        self._disk.fsync_dir(self._directory)
        for kind in (*paths.INDEX_SUFFIXES, paths.LOG_SUFFIX):
            source = self._path(base, kind, paths.SWAP_SUFFIX)
            if os.path.exists(source):
                self._disk.rename(source, self._path(base, kind))
        self._disk.fsync_dir(self._directory)
        return live

    def _overlapping(self, base: int, live: set[int], next_offset: int) -> list[int]:
        """The live segments that a new one replaces, by the offsets of its batches."""
        old = [other for other in sorted(live) if base <= other < next_offset]
        below = max((other for other in live if other < base), default=None)
        if below is not None and self._content_of(below, "").next_offset > base:
            old.insert(0, below)  # A segment that was split: its first part starts later.
        return old

    def _set_swap_aside(self, base: int) -> None:
        suffix = unused_suffix(self._directory)
        path = self._path(base, paths.LOG_SUFFIX, paths.SWAP_SUFFIX)
        logger.error(
            "%s: %s is damaged, or holds nothing that belongs under its name: the segments stay as"
            " they are, and it is set aside with the suffix %s",
            self._topic_partition, path, suffix,
        )  # fmt: skip
        self._unlink_indexes(base, paths.SWAP_SUFFIX)
        self._disk.rename(path, path + suffix)
        self._disk.fsync_dir(self._directory)

    def _set_aside(self, bases: list[int]) -> None:
        suffix = unused_suffix(self._directory)
        logger.warning(
            "%s: the segments %s in %s are set aside: a `.swap` segment takes their place, by"
            " offsets that no checksum covers; if records are missing, stop the broker, take the"
            " suffix %s off their names, and start it again",
            self._topic_partition, bases, self._directory, suffix,
        )  # fmt: skip
        for base, kind in itertools.product(
            sorted(bases, reverse=True), (*paths.INDEX_SUFFIXES, paths.LOG_SUFFIX)
        ):
            path = self._path(base, kind)
            if os.path.exists(path):
                self._disk.rename(path, path + suffix)
