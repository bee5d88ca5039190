"""Removing segments: from the log at once, from the disk when no reader can be left.

A connection may be sending from a file that is not part of the log any more. So the files are
renamed first, with a suffix by which the next start recognizes them as garbage, and removed after a
delay; in the background, because removing a large file takes long.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from odradek.files import remove_files
from odradek.storage import paths
from odradek.storage.segments.segment import LogSegment

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

__all__ = ["delete_files", "delete_files_later", "remove_segments"]

# Delay before the next attempt while a swap, of three syncs of a directory, is not complete.
_UNTIL_SETTLED_MS: Final = 1_000


def remove_segments(log: "Log", segments: Sequence[LogSegment]) -> None:
    """Removes segments from a settled log; their files are removed after the delay."""
    assert log.pending_swap is None
    if segments and log.before_removal is not None:
        log.before_removal(log, segments)
    for segment in segments:
        log.segments.remove(segment)
        segment.change_stage(paths.DELETED_SUFFIX)
        log.producer_state.snapshots.rename_deleted(segment.base_offset)
        delete_files_later(log, [segment], [segment.base_offset])
        log.witnesses.remove(segment.base_offset)


def delete_files_later(
    log: "Log", segments: Sequence[LogSegment], snapshot_offsets: Sequence[int]
) -> None:
    """Removes files that have the suffix already, once no reader can use them any more."""
    disk, tasks = log.services.disk, log.services.tasks

    def done(error: BaseException | None) -> None:
        if isinstance(error, OSError):
            log.fail("delete segment", error)

    def delete() -> None:
        if log.pending_swap is not None:  # Its old segments may have the same names.
            tasks.call_later(_UNTIL_SETTLED_MS, delete)
            return
        names = [name for segment in segments for name in _release_files(log, segment)]
        suffix = paths.SNAPSHOT_SUFFIX
        names.extend(
            paths.segment_path(log.directory, offset, suffix, paths.DELETED_SUFFIX)
            for offset in snapshot_offsets
        )
        tasks.submit(lambda: remove_files(disk, names), done)

    tasks.call_later(log.config.file_delete_delay_ms, delete)


def delete_files(log: "Log", segment: LogSegment) -> None:
    """Removes the files of a segment that is not, or not any more, part of the log.

    Raises:
        OSError: The disk refused.
    """
    _follow(log, segment)
    segment.delete_if_exists()


def _release_files(log: "Log", segment: LogSegment) -> list[str]:
    """Closes a segment that is not part of the log any more; returns the files to be removed."""
    _follow(log, segment)
    segment.close_handles()
    return segment.files()


def _follow(log: "Log", segment: LogSegment) -> None:
    # The files moved with the directory; files of another topic may have their old names now.
    segment.update_directory(log.directory)
