"""Writes the unsynced files of a log anew, after a failure of the disk in an earlier process.

When a sync fails, Linux marks the pages as clean: reads still show their bytes until the memory is
needed for others, the disk never gets them, and the next sync reports success. A broker that is
started meanwhile would read such bytes, find them sound, and count them as synced. Bytes in a new
file are dirty pages again, so the copy either reaches the disk or its sync fails::

    append 3, 4    the sync fails    restart: the page cache shows 3, 4; they are copied
    append 5       a sync succeeds   the recovery point may pass 3, 4: the disk has the copy

Files below the recovery point were synced before the failure. Indexes are not copied, because
recovery makes them again.
"""

import os
from typing import Final

from odradek.files import Disk
from odradek.storage import paths

__all__ = ["rewrite_unsynced"]

_COPIED: Final = (
    paths.LOG_SUFFIX,
    paths.TRANSACTION_INDEX_SUFFIX,
    paths.TRANSACTION_PROOF_SUFFIX,
    paths.SNAPSHOT_SUFFIX,
    paths.RECENT_SUFFIX,
)
_CHUNK_BYTES: Final = 1 << 20


def rewrite_unsynced(directory: str, recovery_point: int, disk: Disk) -> None:
    """Replaces each file that may have unsynced bytes by a synced copy.

    A crash leaves the file or its copy. The name of an incomplete copy is that of a file that waits
    for removal, so the next start removes it.

    Args:
        directory: Of the partition, with no replacement of segments pending.
        recovery_point: The end of the records that were synced before the failure.
        disk: Of the directory.

    Raises:
        OSError: The disk refused.
    """
    names = [
        (base, name)
        for name in sorted(os.listdir(directory))
        if name.endswith(_COPIED) and (base := paths.offset_from_name(name)) is not None
    ]
    bases = [base for base, name in names if name.endswith(paths.LOG_SUFFIX)]
    first = max((base for base in bases if base <= recovery_point), default=0)
    for base, name in names:
        if base >= first:
            _rewrite(os.path.join(directory, name), disk)
    disk.fsync_dir(directory)


def _rewrite(path: str, disk: Disk) -> None:
    copy = path + paths.DELETED_SUFFIX
    source = disk.open(path, os.O_RDONLY)
    try:
        target = disk.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            position = 0
            while chunk := disk.pread(source, _CHUNK_BYTES, position):
                written = disk.write(target, chunk)
                if written != len(chunk):
                    raise OSError(f"short write to {copy}: {written} of {len(chunk)} bytes")
                position += written
            disk.fsync(target)
        finally:
            disk.close(target)
    finally:
        disk.close(source)
    disk.rename(copy, path)
