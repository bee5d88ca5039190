"""Partitions that a start finds in several directories: a move between directories was under way.

The future log (`…-future`) is a copy of the beginning of the live one, until it replaces it
(`future_logs`). The replacement renames two directories, which may be on two disks, so a crash can
leave any mixture of old and new names. The file `replaces-current`, durable in the copy before the
replacement, tells that the copy may have records which the other log lacks::

    found                                      after the start
    live here, future there                    the same; the move goes on
    live here, future with the file there      the one whose records reach further is live
    live here, live with the file there        likewise
    no live one, every directory online        the future one is live
    no live one, a directory offline           the same; the live one may be in that directory
    several futures                            one of them

"Further" is a later leader epoch of the last record, or the same one and a larger log end; if they
are equal, the live one stays. A copy that belongs to another topic id than the live log is removed,
and so is one in the directory of the live log. Removed is renamed to `…-delete`, durably, before
the winner gets its name: a crash in between leaves the winner as the only copy.
"""

import logging
import os
import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.errors import CorruptCheckpointError, StorageError
from odradek.files import remove_files
from odradek.model import TopicPartition
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.partition_directories import (
    PartitionDirectory,
    PartitionKind,
    read_topic_id,
    staged_name,
)
from odradek.storage.log.log import Log
from odradek.storage.log.services import LogServices
from odradek.storage.paths import REPLACEMENT_FILE

__all__ = ["is_replacement", "settle_copies"]

logger = logging.getLogger(__name__)


class _Copy(NamedTuple):
    directory: LogDirectory
    log: Log
    is_marked: bool
    topic_id: uuid.UUID | None

    @property
    def reach(self) -> tuple[int, int]:
        """How far its records reach; the larger, the further."""
        epoch = self.log.leader_epochs.epoch_for_offset(max(0, self.log.log_end_offset - 1))
        return -1 if epoch is None else epoch, self.log.log_end_offset


class _Choice(NamedTuple):
    live: _Copy | None
    future: _Copy | None
    dropped: list[_Copy]


def is_replacement(partition_directory: str) -> bool:
    """Whether a partition directory may have records that another copy of it lacks."""
    return os.path.exists(os.path.join(partition_directory, REPLACEMENT_FILE))


def settle_copies(
    contents: Mapping[LogDirectory, list[PartitionDirectory]],
    directories: Iterable[LogDirectory],
    services: LogServices,
) -> None:
    """Leaves one live log of each partition; the logs are open, and `contents` is updated.

    A directory whose disk refuses is offline afterwards.
    """
    found: dict[TopicPartition, list[_Copy]] = {}
    wanted = {
        partition.topic_partition
        for partitions in contents.values()
        for partition in partitions
        if partition.kind is PartitionKind.FUTURE
    }
    lives: set[TopicPartition] = set()
    for partitions in contents.values():
        for partition in partitions:
            if partition.kind is PartitionKind.LIVE:
                if partition.topic_partition in lives:
                    wanted.add(partition.topic_partition)
                lives.add(partition.topic_partition)
    for directory, partitions in contents.items():
        for partition in partitions:
            log = directory.logs.get(partition.name)
            if log is not None and directory.is_online and partition.topic_partition in wanted:
                found.setdefault(partition.topic_partition, []).append(_copy_of(directory, log))
    all_online = all(directory.is_online for directory in directories)
    for tp, copies in found.items():
        try:
            _settle(_choose(copies, all_online=all_online), contents, services)
        except StorageError as error:  # The next start settles the rest.
            logger.warning("%s: %s", tp, error)


def _settle(
    choice: _Choice,
    contents: Mapping[LogDirectory, list[PartitionDirectory]],
    services: LogServices,
) -> None:
    changed = dict.fromkeys(copy.directory for copy in choice.dropped)
    for copy in choice.dropped:
        _rename(copy, PartitionKind.DELETED, contents, services)
    live = choice.live
    if live is not None and not live.log.is_live:
        _rename(live, PartitionKind.LIVE, contents, services)
        changed[live.directory] = None
    for directory in changed:
        directory.checkpoint_recovery_points()
        directory.checkpoint_log_starts()
    if live is not None and live.is_marked:
        _unmark(live, services)


def _copy_of(directory: LogDirectory, log: Log) -> _Copy:
    topic_id = None
    try:
        topic_id = read_topic_id(directory.disk, log.directory)
    except (CorruptCheckpointError, OSError) as error:
        logger.warning("%s: %s", log.topic_partition, error)
    return _Copy(directory, log, is_replacement(log.directory), topic_id)


def _choose(copies: list[_Copy], *, all_online: bool) -> _Choice:
    """The copies to keep."""
    lives = [copy for copy in copies if copy.log.is_live]
    futures = [copy for copy in copies if not copy.log.is_live]
    best: _Copy | None = None
    if lives:
        # The first of equals wins: a live one, and of two the one that was about to replace it.
        first = max(lives, key=lambda copy: copy.is_marked)
        contenders = [first, *(copy for copy in copies if copy is not first and _vies(copy, first))]
        best = max(contenders, key=lambda copy: copy.reach)
    elif all_online:
        best = max(futures, key=lambda copy: (copy.is_marked, copy.reach))
    rest = [
        copy
        for copy in futures
        if copy is not best
        and (best is None or (copy.directory is not best.directory and _is_same(copy, best)))
    ]
    kept = max(rest, key=lambda copy: (copy.is_marked, copy.reach), default=None)
    return _Choice(best, kept, [copy for copy in copies if copy is not best and copy is not kept])


def _vies(copy: _Copy, live: _Copy) -> bool:
    return (copy.log.is_live or copy.is_marked) and _is_same(copy, live)


def _is_same(copy: _Copy, other: _Copy) -> bool:
    """Whether both may be of the same topic."""
    return None in (copy.topic_id, other.topic_id) or copy.topic_id == other.topic_id


def _rename(
    copy: _Copy,
    kind: PartitionKind,
    contents: Mapping[LogDirectory, list[PartitionDirectory]],
    services: LogServices,
) -> None:
    """Gives the directory of an open log the name of another kind, durably."""
    directory, log = copy.directory, copy.log
    tp, old = log.topic_partition, log.name
    new = str(tp)
    if kind is not PartitionKind.LIVE:
        new = staged_name(tp, kind, services.random.getrandbits(128))
    with directory.guard("settle a move between directories"):
        services.disk.rename(log.directory, os.path.join(directory.path, new))
        services.disk.fsync_dir(directory.path)
    logger.warning("%s: %s is now %s: a move was interrupted", tp, log.directory, new)
    del directory.logs[old]
    log.follow_directory(os.path.join(directory.path, new))
    if kind is PartitionKind.LIVE:
        directory.logs[new] = log
    else:
        log.mark_offline("another copy of the partition is live")
    partitions = contents[directory]
    position = next(n for n, partition in enumerate(partitions) if partition.name == old)
    partitions[position] = PartitionDirectory(new, tp, kind)


def _unmark(copy: _Copy, services: LogServices) -> None:
    directory = copy.log.directory
    with copy.directory.guard("settle a move between directories"):
        remove_files(services.disk, [os.path.join(directory, REPLACEMENT_FILE)])
        services.disk.fsync_dir(directory)
