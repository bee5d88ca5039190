"""Start and stop of data directories, in the order that a crash at any point demands.

Start:

1. `take_directories` creates missing directories and locks all. A directory whose disk refuses is
   offline from the start; one that another broker has locked ends the start before any change.
2. `find_partitions` lists them. One partition in two directories ends the start here, too, unless
   one of them was about to replace the other (`copies`).
3. `load_logs` removes the clean-stop marker, durably, **before** the first log is opened: a crash
   while loading must not leave a marker for half-loaded logs (KAFKA-10471).

Stop (`close_directory`): logs, recovery points, log starts, and only then the marker, which is
written for a directory of which every log was loaded and closed without an error (KAFKA-15375).

Logs are loaded and closed on threads, each by one of them, while the owner waits.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from odradek.clock import Clock
from odradek.errors import ConfigError, StorageError
from odradek.files import Disk, make_directories
from odradek.model import TopicPartition
from odradek.storage.directories.copies import is_replacement
from odradek.storage.directories.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.directories.partition_directories import (
    PartitionDirectory,
    PartitionKind,
    parse_directory_name,
)
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.services import LogServices
from odradek.storage.recovery.loader import load_log

__all__ = ["close_directory", "find_partitions", "load_logs", "take_directories"]

logger = logging.getLogger(__name__)

# The quorum's own log lives in a data directory but is opened by its owner.
_FOREIGN_TOPICS = frozenset({"__cluster_metadata"})

# Between two lines about the progress of loading.
_PROGRESS_INTERVAL_MS = 5_000

# By directory: the partition directories in it, in order of their names.
Contents = Mapping[LogDirectory, Sequence[PartitionDirectory]]


def take_directories(paths: Sequence[str], *, disk: Disk) -> list[LogDirectory]:
    """Creates and locks the data directories; one whose disk refuses is returned offline.

    Raises:
        ConfigError: No directory is given, or one is given twice.
        LogDirLockedError: Another broker has locked one; this one releases the others.
        StorageError: No directory can be used.
    """
    directories = [LogDirectory(path, disk=disk) for path in paths]
    if not directories:
        raise ConfigError("log.dirs", "", "expected at least one data directory")
    names: dict[str, str] = {}
    for path, directory in zip(paths, directories, strict=True):
        if directory.path in names:
            why = f"{names[directory.path]} and {path} are the same directory, {directory.path}"
            raise ConfigError("log.dirs", ",".join(paths), why)
        names[directory.path] = path
    with ExitStack() as on_error:
        for directory in directories:
            on_error.callback(directory.unlock)
            with _starting(directory):
                make_directories(disk, directory.path)
                directory.lock()
        _check_any_online(directories)
        on_error.pop_all()
    return directories


@contextmanager
def _starting(directory: LogDirectory) -> Iterator[None]:
    """A step in the start of a directory; takes it offline if its disk refuses."""
    try:
        yield
    except OSError as error:
        if is_out_of_descriptors(error):
            raise _out_of_descriptors(directory, error) from error
        directory.fail("start", error)


def _out_of_descriptors(directory: LogDirectory, error: OSError) -> StorageError:
    return StorageError(
        directory.path,
        f"cannot open the logs in {directory.path}: {error}; raise the limit on open files",
    )


def _check_any_online(directories: Iterable[LogDirectory]) -> None:
    offline = [directory for directory in directories if not directory.is_online]
    if any(directory.is_online for directory in directories):
        return
    reasons = "; ".join(str(directory.offline_reason) for directory in offline)
    raise StorageError(offline[0].path, f"no data directory can be used: {reasons}")


# Start


def find_partitions(
    directories: Sequence[LogDirectory],
) -> dict[LogDirectory, list[PartitionDirectory]]:
    """Lists the partitions of each directory that is online.

    Raises:
        ConfigError: Two directories have the same partition, and the right one is unknown.
        StorageError: No directory can be read.
    """
    contents: dict[LogDirectory, list[PartitionDirectory]] = {}
    for directory in directories:
        if directory.is_online:
            with _starting(directory):
                contents[directory] = _list(directory.path)
    _check_any_online(directories)
    homes: dict[TopicPartition, str] = {}
    for directory, partitions in contents.items():
        for partition in partitions:
            if partition.kind is PartitionKind.LIVE:
                _check_single(homes, partition, directory)
    return contents


def _check_single(
    homes: dict[TopicPartition, str], partition: PartitionDirectory, directory: LogDirectory
) -> None:
    path = os.path.join(directory.path, partition.name)
    other = homes.setdefault(partition.topic_partition, path)
    if other != path and not any(map(is_replacement, (other, path))):
        raise ConfigError(
            "log.dirs",
            directory.path,
            f"partition {partition.topic_partition} is in {other} and in {path}: expected it once;"
            " move one of them out of the data directories",
        )


def _list(path: str) -> list[PartitionDirectory]:
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    partitions = []
    for name in names:
        partition = parse_directory_name(name)
        if partition is None:
            logger.warning(
                "skipping %s: expected a directory named <topic>-<partition>",
                os.path.join(path, name),
            )
        elif partition.topic_partition.topic not in _FOREIGN_TOPICS:
            partitions.append(partition)
    return partitions


class _LoadProgress:
    """Logs now and then how many logs are loaded: loading may take minutes."""

    def __init__(self, total: int, clock: Clock) -> None:
        self._total = total
        self._clock = clock
        self._done = 0
        self._next_ms = clock.monotonic_ms() + _PROGRESS_INTERVAL_MS
        self._lock = threading.Lock()  # Logs are loaded on many threads.

    def add_one(self) -> None:
        """Counts a log that is loaded."""
        with self._lock:
            self._done += 1
            if self._clock.monotonic_ms() < self._next_ms or self._done == self._total:
                return
            self._next_ms = self._clock.monotonic_ms() + _PROGRESS_INTERVAL_MS
            logger.info(
                "loaded %d of %d logs",
                self._done, self._total, extra={"done": self._done, "total": self._total},
            )  # fmt: skip


class _Checkpoints(NamedTuple):
    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]


def load_logs(
    contents: Contents,
    *,
    config_for: Callable[[str], LogConfig],
    services: LogServices,
    threads_per_directory: int,
) -> None:
    """Opens the live and future logs into `LogDirectory.logs`.

    A directory whose disk refuses meanwhile is taken offline, the others are loaded.

    Raises:
        StorageError: No directory is left, or descriptors ran out.
        OdradekError: A log cannot be recovered; the logs that were opened are in `logs`.
    """
    begun: dict[LogDirectory, _Checkpoints] = {}
    for directory in contents:
        with _starting(directory):
            begun[directory] = _begin_load(directory, contents[directory])
    total = sum(_is_opened(partition) for directory in begun for partition in contents[directory])
    progress = _LoadProgress(total, services.clock)
    with ExitStack() as pools:
        loading: dict[LogDirectory, dict[str, Future[Log]]] = {}
        for directory, checkpoints in begun.items():
            pool = pools.enter_context(services.threads(threads_per_directory, "log-loader"))
            loading[directory] = {
                partition.name: pool.submit(
                    _load, directory, partition, checkpoints, config_for, services, progress
                )
                for partition in contents[directory]
                if _is_opened(partition)
            }
        errors = {directory: _collect(directory, futures) for directory, futures in loading.items()}
    for directory, error in errors.items():
        if error is None:
            _end_load(directory, begun[directory])
        elif isinstance(error, OSError) and not is_out_of_descriptors(error):
            directory.fail("load", error)
    for directory, error in errors.items():
        if isinstance(error, OSError) and is_out_of_descriptors(error):
            raise _out_of_descriptors(directory, error) from error
        if error is not None and not isinstance(error, OSError):
            raise error
    _check_any_online(contents)


def _is_opened(partition: PartitionDirectory) -> bool:
    return partition.kind in (PartitionKind.LIVE, PartitionKind.FUTURE)


def _begin_load(directory: LogDirectory, partitions: Sequence[PartitionDirectory]) -> _Checkpoints:
    directory.take_clean_shutdown_marker()
    count = sum(map(_is_opened, partitions))
    if count and not directory.had_clean_shutdown:
        logger.warning(
            "%s: the last stop was not clean (kill, power cut or crash); logs to check from"
            " their recovery points on: %d",
            directory.path, count, extra={"directory": directory.path},
        )  # fmt: skip
    return _Checkpoints(directory.read_recovery_points(), directory.read_log_starts())


def _load(
    directory: LogDirectory,
    partition: PartitionDirectory,
    checkpoints: _Checkpoints,
    config_for: Callable[[str], LogConfig],
    services: LogServices,
    progress: _LoadProgress,
) -> Log:
    topic_partition = partition.topic_partition
    log = load_log(
        os.path.join(directory.path, partition.name),
        topic_partition,
        config=config_for(topic_partition.topic),
        log_directory=directory,
        services=services,
        recovery_point=checkpoints.recovery_points.get(topic_partition, 0),
        log_start_offset=checkpoints.log_starts.get(topic_partition, 0),
        had_clean_shutdown=directory.had_clean_shutdown,
        closed=directory.closed_logs.get(topic_partition),
    )
    progress.add_one()
    return log


def _collect(directory: LogDirectory, futures: Mapping[str, Future[Log]]) -> BaseException | None:
    """Waits for all logs, keeps those that could be opened; returns the first error by name."""
    wait(futures.values(), return_when=FIRST_EXCEPTION)
    if any(future.done() and future.exception() is not None for future in futures.values()):
        for future in futures.values():
            future.cancel()
        wait(futures.values())
    first: BaseException | None = None
    for name, future in futures.items():
        if future.cancelled():
            continue
        error = future.exception()
        if error is None:
            directory.logs[name] = future.result()
        elif first is None:
            first = error
    return first


def _end_load(directory: LogDirectory, checkpoints: _Checkpoints) -> None:
    directory.is_loaded = True
    with _starting(directory):
        directory.forget_failure()
    logger.info("%s: opened %d logs", directory.path, len(directory.logs))
    # Recovery may have cut a log below its recovery point, and a partition may have been removed: a
    # log that grows past an outdated entry would not be recovered after the next crash.
    try:
        if directory.recovery_points() != checkpoints.recovery_points:
            directory.checkpoint_recovery_points()
        if directory.log_starts() != checkpoints.log_starts:
            directory.checkpoint_log_starts()
    except StorageError as failure:
        logger.debug("%s: no checkpoints: %s", directory.path, failure)


# Stop


def close_directory(
    directory: LogDirectory, *, closers: Callable[[], Executor], broker_epoch: int = -1
) -> None:
    """Closes the logs of a directory, writes the clean-stop marker, and unlocks the directory.

    After a failure the rest is closed without a flush and without a marker; the reason is logged.

    Args:
        closers: Makes the pool that closes the logs.
    """
    try:
        is_closed = directory.is_online and directory.is_loaded and _close_logs(directory, closers)
        if is_closed:
            directory.checkpoint_recovery_points()
            directory.checkpoint_log_starts()
            with directory.guard("write the clean-shutdown marker"):
                directory.write_clean_shutdown_marker(broker_epoch)
    except StorageError as error:
        logger.debug("%s: stopped without a marker: %s", directory.path, error)
    except OSError as error:
        logger.warning("%s: stopped without a marker: %s", directory.path, error)
    finally:
        directory.close()


def _close_logs(directory: LogDirectory, closers: Callable[[], Executor]) -> bool:
    """Closes all logs but those of deleted partitions; returns whether all were closed cleanly."""
    with closers() as pool:
        futures = {log: pool.submit(log.close_files) for log in directory.logs.values()}
    errors = [(log, error) for log, future in futures.items() if (error := future.exception())]
    for log, error in errors:
        if not isinstance(error, OSError):
            raise error
        logger.error("%s: closing it failed: %s", log.topic_partition, error)
        if not is_out_of_descriptors(error):
            directory.fail(f"close ({log.topic_partition})", error)
    return not errors
