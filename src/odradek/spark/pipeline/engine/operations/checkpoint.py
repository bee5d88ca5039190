"""The folder of one sink's checkpoint: its owner, its fingerprint, and the run that uses it.

Spark keeps its own files there (`metadata`, `offsets`, `commits`, `state`, `sources`); beside them
is `odradek.json` with

1. the fingerprint of the part of the pipeline that the state in the folder depends on,
2. the pipeline and sink it belongs to, and the versions that wrote it,
3. the lock: host, process and heartbeat of the run that uses it.

Two runs with one checkpoint would write everything twice. A lock is void when its process has ended
(on this host) or when its heartbeat is older than a minute (on another host).
"""

import contextlib
import fcntl
import json
import os
import posixpath
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from odradek import __version__
from odradek.clock import Clock, SystemClock
from odradek.spark.pipeline.engine.operations.file_systems import (
    FileSystemError,
    failure_of,
    open_folder,
)
from odradek.spark.pipeline.engine.problems import PipelineError, RefusedError

__all__ = [
    "BEAT_SECONDS",
    "CheckpointFolder",
    "CheckpointHeldError",
    "Lock",
    "Notes",
    "has_stream_files",
]

BEAT_SECONDS = 10
_VOID_AFTER_MS = 60_000
_FILE = "odradek.json"


class CheckpointHeldError(RefusedError):
    """Another run uses the checkpoint."""


@dataclass(frozen=True, slots=True)
class Lock:
    """The run that uses a checkpoint."""

    host: str
    pid: int
    token: str
    heartbeat_ms: int
    # Start of the process: its number may be reused, after a reboot or in a container.
    born: str = ""

    def is_void(self, now_ms: int) -> bool:
        """Whether its run has ended."""
        if self.host == socket.gethostname():
            return _born(self.pid) != self.born
        return now_ms - self.heartbeat_ms > _VOID_AFTER_MS


@dataclass(frozen=True, slots=True)
class Notes:
    """The content of `odradek.json`.

    Attributes:
        start: Where a query without state begins, if a reset set it: a position in the form of the
            command line.
    """

    pipeline: str
    sink: str
    fingerprint: Mapping[str, Any]
    start: str | None = None
    odradek: str = __version__
    spark: str = ""
    lock: Lock | None = None


class CheckpointFolder:
    """One sink's checkpoint, on a local disk or at a URI that Arrow can open.

    Args:
        path: The path of the folder, or its URI.
        clock: The clock.
        what: The name of the folder in messages.

    Raises:
        FileSystemError: The folder cannot be reached; all methods raise it, too.
    """

    def __init__(
        self, path: str, clock: Clock | None = None, *, what: str = "the checkpoint"
    ) -> None:
        self.path = path
        self._what = what
        self._clock = clock or SystemClock()
        self._files, self._folder = open_folder(path, what)
        self._token = secrets.token_hex(8)

    def read(self) -> Notes | None:
        """The notes in the folder; None for a new folder."""
        text = self._text(posixpath.join(self._folder, _FILE))
        if text is None:
            return None
        try:
            fields = json.loads(text)
            lock = fields.pop("lock", None)
            return Notes(**fields, lock=Lock(**lock) if lock else None)
        except (ValueError, TypeError, AttributeError) as error:
            raise PipelineError(
                f"{self.path}/{_FILE} was not written by a run of a pipeline ({error}): restore it,"
                " or start anew with `odradek pipeline reset`"
            ) from error

    def holder(self) -> Lock | None:
        """The run that uses the checkpoint now, or None."""
        notes = self.read()
        if notes is None or notes.lock is None or notes.lock.is_void(self._clock.now_ms()):
            return None
        return notes.lock

    def refuse_if_held(self) -> None:
        """Checks that no run uses the checkpoint; notes that cannot be read have no lock.

        Raises:
            CheckpointHeldError: A run uses it.
        """
        try:
            held = self.holder()
        except FileSystemError:
            raise
        except PipelineError:
            return
        if held is not None:
            raise CheckpointHeldError(
                f"the checkpoint {self.path} is used by process {held.pid} on {held.host}: stop"
                " that run first; nothing was changed"
            )

    def take(self, notes: Notes) -> None:
        """Takes the lock and writes the notes.

        Raises:
            CheckpointHeldError: Another run has the lock.
        """
        with self._alone():
            held = self.holder()
            if held is not None and held.token != self._token:
                raise CheckpointHeldError(
                    f"the checkpoint {self.path} is used by process {held.pid} on {held.host}:"
                    " stop that run first, or give this one a checkpoint of its own"
                )
            self._write(replace(notes, lock=self._lock()))

    def beat(self) -> None:
        """Renews the heartbeat.

        Raises:
            CheckpointHeldError: Another run has taken the lock meanwhile.
        """
        with self._alone():
            self._write(replace(self._mine(), lock=self._lock()))

    def release(self) -> None:
        """Releases the lock; the notes stay."""
        with self._alone(), contextlib.suppress(CheckpointHeldError):
            self._write(replace(self._mine(), lock=None))

    def forget(self) -> None:
        """Removes the folder: the next run begins anew.

        Raises:
            CheckpointHeldError: A run uses it.
        """
        with self._alone():
            self.refuse_if_held()
            with self._reaching():
                self._files.delete_dir_contents(self._folder, missing_dir_ok=True)

    def newest(self, kind: str) -> tuple[int, str] | None:
        """The newest of Spark's files in `offsets` or `commits`: its batch, and its text."""
        folder = posixpath.join(self._folder, kind)
        chosen = fs.FileSelector(folder, allow_not_found=True)
        with self._reaching():
            found = self._files.get_file_info(chosen)
        numbers = [int(file.base_name) for file in found if file.base_name.isdecimal()]
        if not numbers:
            return None
        number = max(numbers)
        return number, self.file(kind, number) or ""

    def file(self, kind: str, number: int) -> str | None:
        """The text of one of Spark's files in `offsets` or `commits`; None if it does not exist."""
        return self._text(posixpath.join(self._folder, kind, str(number)))

    def has(self, name: str) -> bool:
        """Whether a file or folder of that name exists."""
        with self._reaching():
            found = self._files.get_file_info(posixpath.join(self._folder, name))
        return bool(found.type != fs.FileType.NotFound)

    def query_id(self) -> str | None:
        """Spark's id of the query, or None before its first start."""
        text = self._text(posixpath.join(self._folder, "metadata"))
        found: str | None = json.loads(text or "{}").get("id")
        return found

    def _text(self, name: str) -> str | None:
        with self._reaching():
            if self._files.get_file_info(name).type == fs.FileType.NotFound:
                return None
            with self._files.open_input_file(name) as file:
                return bytes(file.read()).decode()

    def _mine(self) -> Notes:
        notes = self.read()
        if notes is None or notes.lock is None or notes.lock.token != self._token:
            raise CheckpointHeldError(
                f"another run has taken the lock of the checkpoint {self.path}: this one must stop"
            )
        return notes

    def _lock(self) -> Lock:
        pid = os.getpid()
        now_ms = self._clock.now_ms()
        return Lock(socket.gethostname(), pid, self._token, now_ms, _born(pid) or "")

    def _write(self, notes: Notes) -> None:
        text = json.dumps(asdict(notes), indent=1, sort_keys=True).encode()
        name = posixpath.join(self._folder, _FILE)
        with self._reaching():
            self._files.create_dir(self._folder, recursive=True)
            with self._files.open_output_stream(f"{name}.{self._token}") as file:
                file.write(text)
            self._files.move(f"{name}.{self._token}", name)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Adds the folder to every error of the file system."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise failure_of(self.path, self._what, error) from error

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other processes of this host from taking the lock at the same time."""
        if not isinstance(self._files, fs.LocalFileSystem):
            yield
            return
        with self._reaching():
            os.makedirs(self._folder, exist_ok=True)
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def has_stream_files(path: str) -> bool:
    """Whether a folder of files was written by a stream of Spark."""
    folder = CheckpointFolder(path, what="the folder of files")
    return folder.has("_spark_metadata")


def _born(pid: int) -> str | None:
    """When a process began, and in which boot of the machine; None if there is no such process."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        with open(f"/proc/{pid}/stat") as file:
            # The name before it may have spaces and brackets.
            ticks = file.read().rpartition(")")[2].split()[19]
    except OSError:
        return None
    return f"{boot}/{ticks}"
