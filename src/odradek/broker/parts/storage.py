"""The logs of a broker, and the threads that do its blocking work."""

import asyncio
import logging
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final

from odradek.broker.background import LoopTasks, yield_to_requests
from odradek.broker.config import TopicConfigs
from odradek.broker.identity import check_directories
from odradek.broker.log_metrics import damage_meter, flush_timer, register_log_gauges
from odradek.broker.parts.base import Base
from odradek.lazy_dataclass import dataclass
from odradek.storage.cleaning.stats import register_cleaner_gauges
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.services import LogServices
from odradek.storage.producers.verifications import VerificationSwitch

__all__ = ["STORAGE_THREADS", "Storage", "build_storage", "loaded", "raise_open_file_limit"]

logger = logging.getLogger(__name__)

STORAGE_THREADS: Final = 4  # They mostly sync: they wait for the disk, not for the interpreter.
_MOST_CLEANERS: Final = 64  # The maximum of `log.cleaner.threads`; they start as needed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The logs, and the executors and tasks that work on them."""

    logs: LogManager
    topic_configs: TopicConfigs
    executor: Executor
    # Postponed and blocking work of logs; and the same for compaction.
    background: LoopTasks
    cleaning: LoopTasks
    # Expands produced batches that are too large for the loop, one at a time.
    expander: Executor


@contextmanager
def build_storage(
    base: Base,
    executor: Executor,
    *,
    on_directory_failed: Callable[[LogDirectory], None],
    on_all_directories_failed: Callable[[], None],
) -> Iterator[Storage]:
    """Builds the logs, not loaded yet; on exit it waits for the threads of compaction."""
    settings, around = base.settings, base.around
    loop = asyncio.get_running_loop()
    # A pass of compaction takes long, and sleeps to keep its rate: flushes must not wait for it.
    with (
        around.threads(_MOST_CLEANERS, "cleaner", yield_to_requests) as cleaners,
        around.threads(1, "expander") as expander,
    ):
        background, cleaning = LoopTasks(loop, executor), LoopTasks(loop, cleaners)
        topic_configs = TopicConfigs(settings)
        logs = LogManager(
            settings.log.log_dirs,
            services=LogServices(
                disk=around.disk,
                clock=around.clock,
                random=around.random,
                tasks=background,
                threads=around.threads,
                producer_id_expiration_ms=settings.log.producer_id_expiration_ms,
                verification_switch=VerificationSwitch(
                    is_on=settings.log.transaction_verification_enabled
                ),
                on_flushed=flush_timer(base.metrics).update,
                on_damage=damage_meter(base.metrics).mark,
            ),
            config=settings.log.log_manager_config(settings.cleaner),
            cleaner_tasks=cleaning,
            default_log_config=topic_configs.default.log,
            topic_config=topic_configs.log_config,
            on_directory_failed=on_directory_failed,
            on_all_directories_failed=on_all_directories_failed,
        )
        yield Storage(
            logs=logs,
            topic_configs=topic_configs,
            executor=executor,
            background=background,
            cleaning=cleaning,
            expander=expander,
        )


@asynccontextmanager
async def loaded(
    base: Base,
    storage: Storage,
    *,
    cluster_id: str,
    release: Callable[[], Awaitable[None]],
    close: Callable[[], None],
) -> AsyncIterator[None]:
    """Loads the logs and starts their work; on exit the work stops, then they are closed.

    Args:
        release: Ends the work of other parts on the logs.
        close: Closes the logs, when no other part uses them.

    Raises:
        ConfigError: A data directory belongs to another broker or cluster.
        LogDirLockedError: A data directory is in use.
        StorageError: No data directory can be used.
    """
    logs = storage.logs
    async with AsyncExitStack() as stack:
        stack.callback(close)
        stack.push_async_callback(storage.background.stop)
        stack.push_async_callback(storage.cleaning.stop)
        stack.callback(logs.stop_cleaning)
        stack.push_async_callback(release)
        loop = asyncio.get_running_loop()
        await _to_its_end(loop.run_in_executor(storage.executor, logs.load))
        logs.take_into_service()
        register_log_gauges(logs, base.metrics)
        register_cleaner_gauges(logs.cleaner, logs.online_directories, base.metrics)
        check_directories(
            [directory.path for directory in logs.online_directories],
            broker_id=base.settings.node.id,
            cluster_id=cluster_id,
            disk=base.around.disk,
        )
        yield


async def _to_its_end(work: asyncio.Future[None]) -> None:
    """Waits for work on a thread, even if cancelled, since the work cannot be cancelled."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if (error := work.exception()) is not None:
            logger.warning("the start was given up, and would have failed: %s", error)
        raise


def raise_open_file_limit() -> int:
    """Raises the soft limit on open files to the hard one; returns the resulting limit.

    An open log costs a descriptor per segment and one per mapped index, because a mapping keeps a
    duplicate of its descriptor. The usual soft limit of 1024 is meant for programs that use
    ``select``, and is used up by a few hundred partitions.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning(
            "the limit on open files stays at %d: raising it to %d failed: %s", soft, hard, error
        )
        return soft
    return hard
