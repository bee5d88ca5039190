"""One data directory of a broker: its lock, checkpoints, clean-stop marker and failure.

| file                               | content                                                  |
|------------------------------------|----------------------------------------------------------|
| `.lock`                            | empty; a POSIX record lock is held while a broker lives  |
| `.kafka_cleanshutdown`             | present: every log was closed in order                   |
| `recovery-point-offset-checkpoint` | first offset of each log that is not known to be on disk |
| `log-start-offset-checkpoint`      | first visible offset, where above the first segment      |
| `closed-logs`                      | each log as a clean stop left it (`closed_logs`)         |
| `.failed`                          | present: the disk refused, and may lack unsynced bytes   |

Failure is final: the first I/O error takes the directory offline, and from that moment no append
to any of its logs succeeds. Nothing is retried, because a failed sync may have dropped the pages
that a second sync would report as written. The process that fails leaves `.failed`, which is not
synced: it need not outlive the page cache. The next start, if the machine did not crash, reads
bytes from there that the disk may not have, so it writes them anew (`storage.recovery.rewriting`).
"""

import errno
import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.errors import CorruptCheckpointError, LogDirLockedError, StorageError
from odradek.files import Disk, read_whole, remove_files, write_atomically
from odradek.model import TopicPartition
from odradek.storage.directories.checkpoints import OffsetCheckpointFile
from odradek.storage.directories.closed_logs import (
    CLOSED_LOGS_FILE,
    ClosedLog,
    checksum_of_closed_logs,
    describe_closed_logs,
    encode_closed_logs,
    parse_closed_logs,
)
from odradek.storage.log.services import BackgroundTasks

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

__all__ = [
    "CLEAN_SHUTDOWN_FILE",
    "FAILED_FILE",
    "LOCK_FILE",
    "LogDirectory",
    "is_out_of_descriptors",
]

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
FAILED_FILE = ".failed"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"

_CLOSED_LOGS_FIELD = "closedLogs"  # Of the marker; Kafka's has none.

# A record lock does not exclude a second owner in the same process, and closing any descriptor of
# the file drops it: so the directories that this process has locked are listed here.
_held_by_this_process: set[str] = set()


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether the process or the system ran out of file descriptors, which is no disk failure."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class LogDirectory:
    """A data directory and the logs in it."""

    def __init__(self, path: str, *, disk: Disk) -> None:
        self.path = os.path.realpath(path)
        self.disk = disk
        # Why the directory is offline; None while it serves.
        self.offline_reason: str | None = None
        # The open logs by the names of their directories, those of deleted partitions included.
        self.logs: dict[str, Log] = {}
        # Whether the last process stopped cleanly; read once, before the first log is opened.
        self.had_clean_shutdown = False
        # The logs as it left them, if it recorded that; read likewise.
        self.closed_logs: dict[TopicPartition, ClosedLog] = {}
        # Whether the disk may lack unsynced bytes that reads still show; until all logs are open.
        self.has_doubtful_bytes = False
        # Whether `logs` has every partition found here. Before that neither checkpoints nor the
        # marker may be written: they are about all partitions.
        self.is_loaded = False
        # Called once when the directory fails.
        self.on_failure: Callable[[LogDirectory], None] | None = None
        self._recovery_points = _Checkpoint(self._file(RECOVERY_POINT_FILE), disk)
        self._log_starts = _Checkpoint(self._file(LOG_START_FILE), disk)
        self._lock_fd = -1

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def is_online(self) -> bool:
        return self.offline_reason is None

    # Ownership

    def lock(self) -> None:
        """Locks the directory for this broker.

        Raises:
            LogDirLockedError: Another broker, of this process or another one, has locked it.
            OSError: The lock file cannot be opened: the disk is not usable.
        """
        if self.path in _held_by_this_process:
            raise self._locked("another broker of this process")
        fd = self.disk.open(self._file(LOCK_FILE), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.disk.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise self._locked("another process") from None
            raise
        _held_by_this_process.add(self.path)
        self._lock_fd = fd

    def unlock(self) -> None:
        """Releases the lock."""
        if self._lock_fd >= 0:
            self.disk.close(self._lock_fd)
            self._lock_fd = -1
            _held_by_this_process.discard(self.path)

    def _locked(self, owner: str) -> LogDirLockedError:
        return LogDirLockedError(
            f"data directory {self.path} is in use by {owner}: expected its {LOCK_FILE} to be"
            " free; stop the other broker or give this one a directory of its own in log.dirs"
        )

    # Start and stop

    def take_clean_shutdown_marker(self) -> None:
        """Reads and removes the marker, durably, before any log is opened."""
        path = self._file(CLEAN_SHUTDOWN_FILE)
        self.had_clean_shutdown = os.path.exists(path)
        self.has_doubtful_bytes = os.path.exists(self._file(FAILED_FILE))
        if self.had_clean_shutdown:
            self.closed_logs = self._read_closed_logs(read_whole(self.disk, path))
            self.disk.unlink(path)
            self.disk.fsync_dir(self.path)

    def forget_failure(self) -> None:
        """Removes the mark of an earlier failure, when every log has been opened.

        Raises:
            OSError: The disk refused.
        """
        if self.has_doubtful_bytes:
            remove_files(self.disk, [self._file(FAILED_FILE)])
            self.has_doubtful_bytes = False

    def write_clean_shutdown_marker(self, broker_epoch: int = -1) -> None:
        """Writes the marker: every log here was closed cleanly; and the record that it names."""
        fields: dict[str, object] = {"version": 0, "brokerEpoch": broker_epoch}
        if logs := self.lasting_logs():
            closed = encode_closed_logs(describe_closed_logs(logs, self.log_starts()))
            write_atomically(self.disk, self._file(CLOSED_LOGS_FILE), closed)
            fields[_CLOSED_LOGS_FIELD] = checksum_of_closed_logs(closed)
        content = json.dumps(fields, separators=(",", ":"))
        write_atomically(self.disk, self._file(CLEAN_SHUTDOWN_FILE), content.encode())

    def _read_closed_logs(self, marker: bytes) -> dict[TopicPartition, ClosedLog]:
        """The record of the stop that left a marker; empty if there is none."""
        try:
            fields = json.loads(marker)
            checksum = fields.get(_CLOSED_LOGS_FIELD) if isinstance(fields, dict) else None
        except ValueError:  # Older releases of Kafka leave it empty.
            checksum = None
        path = self._file(CLOSED_LOGS_FILE)
        if checksum is None:
            return {}
        try:
            data = read_whole(self.disk, path)
            if checksum_of_closed_logs(data) == checksum:
                return parse_closed_logs(data, path)
            problem = f"{path}: expected the checksum {checksum}, as the marker says"
        except FileNotFoundError:
            problem = f"{path} is missing"
        except CorruptCheckpointError as error:
            problem = str(error)
        logger.warning("%s; losses since the last stop may stay unreported", problem)
        return {}

    def close(self) -> None:
        """Closes all files without a flush and releases the lock, for the next owner."""
        if self.offline_reason is None:
            self.offline_reason = "the broker has stopped"
        for log in self.logs.values():
            log.mark_offline(self.offline_reason)
        self.unlock()

    def read_recovery_points(self) -> dict[TopicPartition, int]:
        """Recovery points by partition; none, and a warning, if the file is damaged.

        Raises:
            OSError: The disk refused.
        """
        return self._recovery_points.read_or_forget("every log is recovered from its start")

    def read_log_starts(self) -> dict[TopicPartition, int]:
        """Log start offsets by partition; none, and a warning, if the file is damaged.

        Raises:
            OSError: The disk refused.
        """
        return self._log_starts.read_or_forget("logs start at their first segment")

    # Checkpoints

    def live_logs(self) -> list["Log"]:
        """Logs of live partitions, neither deleted nor future ones."""
        return [log for log in self.logs.values() if log.is_live]

    def lasting_logs(self) -> list["Log"]:
        """Logs of live and future partitions, not of deleted ones: those with checkpoints.

        A future log is in another directory than the one that it is to replace. Should both be
        here, the entries are those of the live one.
        """
        return [
            log
            for log in self.logs.values()
            if log.is_live or (log.is_future and str(log.topic_partition) not in self.logs)
        ]

    def recovery_points(self) -> dict[TopicPartition, int]:
        """The recovery points as of now."""
        return {log.topic_partition: log.recovery_point for log in self.lasting_logs()}

    def log_starts(self) -> dict[TopicPartition, int]:
        """The log starts as of now, where they lie above their first segment."""
        return {
            log.topic_partition: log.log_start_offset
            for log in self.lasting_logs()
            if log.has_log_start_above_first_segment
        }

    def checkpoint_recovery_points(self, tasks: BackgroundTasks | None = None) -> None:
        """Writes the recovery points of all logs.

        Args:
            tasks: Write the file in the background; without them it is durable on return.

        Raises:
            StorageError: The directory is offline, or failed now.
        """
        self._write("checkpoint recovery points", self.prepare_recovery_points(), tasks)

    def prepare_recovery_points(self) -> Callable[[], None]:
        """Returns work that writes the current recovery points; any thread may run it."""
        return self._recovery_points.prepare(self.recovery_points())

    def checkpoint_log_starts(self, tasks: BackgroundTasks | None = None) -> None:
        """Writes the log starts that lie above their first segment.

        Args:
            tasks: Write the file in the background; without them it is durable on return.

        Raises:
            StorageError: The directory is offline, or failed now.
        """
        self._write("checkpoint log start offsets", self.prepare_log_starts(), tasks)

    def prepare_log_starts(self) -> Callable[[], None]:
        """Returns work that writes the current log starts; any thread may run it."""
        return self._log_starts.prepare(self.log_starts())

    def _write(self, what: str, work: Callable[[], None], tasks: BackgroundTasks | None) -> None:
        def done(error: BaseException | None) -> None:
            if isinstance(error, OSError) and not is_out_of_descriptors(error):
                self.fail(what, error)

        with self.guard(what):
            if tasks is None:
                work()
            else:
                tasks.submit(work, done)

    # Failure

    def guard(self, what: str) -> "_Guard":
        """A context whose I/O errors take this directory offline."""
        return _Guard(self, what)

    def leave_failure_mark(self) -> None:
        """Tells the next start that the disk has refused; on any thread, and without a sync."""
        try:
            self.disk.close(self.disk.open(self._file(FAILED_FILE), os.O_WRONLY | os.O_CREAT))
        except OSError as error:
            logger.warning(
                "%s: cannot leave %s: %s; restart the machine rather than the broker, so that reads"
                " show what the disk has",
                self.path, FAILED_FILE, error,
            )  # fmt: skip

    def fail(self, what: str, error: OSError) -> StorageError:
        """Takes the directory offline at once; returns the error to raise."""
        reason = f"{what} failed in {self.path}: {error}"
        if self.offline_reason is None:
            # A full disk refuses bytes before it takes them; a sync leaves the mark by itself. With
            # the mark the next start would need as much room again.
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if self._lock_fd >= 0 and not is_full:  # Another broker may own the directory.
                self.leave_failure_mark()
            self.offline_reason = reason
            for log in self.logs.values():
                log.mark_offline(reason)
            logger.error(
                "log directory %s is offline: %s",
                self.path, reason, extra={"directory": self.path, "reason": reason},
            )  # fmt: skip
            if self.on_failure is not None:
                self.on_failure(self)
        return StorageError(self.path, reason)


class _Checkpoint:
    """A checkpoint file with writers on several threads, of which the newest content wins.

    A truncation writes at once, while an older content may still wait for its turn in the
    background: written last, it would count bytes as synced that the truncation has removed.
    """

    __slots__ = ("_file", "_lock", "_prepared", "_written")

    def __init__(self, path: str, disk: Disk) -> None:
        self._file = OffsetCheckpointFile(path, disk)
        self._lock = threading.Lock()
        # Contents are numbered in order; an older one is never written over a newer one.
        self._prepared = 0
        self._written = 0

    def read_or_forget(self, consequence: str) -> dict[TopicPartition, int]:
        try:
            return self._file.read()
        except CorruptCheckpointError as error:
            logger.warning("%s; %s", error, consequence)
            return {}

    def prepare(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """Returns work that writes `offsets`."""
        self._prepared += 1
        number = self._prepared

        def work() -> None:
            with self._lock:
                if number > self._written:
                    self._file.write(offsets)
                    self._written = number

        return work


class _Guard:
    """Context manager: turns an OSError of its block into the failure of the directory."""

    __slots__ = ("_directory", "_what")

    def __init__(self, directory: LogDirectory, what: str) -> None:
        self._directory = directory
        self._what = what

    def __enter__(self) -> None:
        if (reason := self._directory.offline_reason) is not None:
            raise StorageError(self._directory.path, f"{self._what}: offline because {reason}")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not is_out_of_descriptors(error):
            raise self._directory.fail(self._what, error) from error
