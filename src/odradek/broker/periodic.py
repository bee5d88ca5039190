"""Periodic work of a broker on its loop."""

import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.background import LoopTasks
from odradek.broker.config import BrokerSettings
from odradek.broker.parts.state import State
from odradek.errors import StorageError
from odradek.replication.isr_updates import IsrUpdates
from odradek.tasks import Tasks

__all__ = ["every", "start_periodic_work"]

logger = logging.getLogger(__name__)

_QUOTA_EXPIRY_MS: Final = 60_000  # How often measurements of disconnected clients are dropped.


def start_periodic_work(
    settings: BrokerSettings, state: State, isr_updates: IsrUpdates, tasks: Tasks
) -> None:
    """Starts the periodic work of a broker that serves."""
    background = state.storage.background
    replicas, groups, transactions = state.replication.replicas, state.groups, state.transactions
    state.storage.logs.start()
    every(
        background,
        settings.replication.high_watermark_checkpoint_interval_ms,
        lambda: replicas.checkpoint_high_watermarks(background),
    )
    tasks.spawn(isr_updates.run_expiration())
    tasks.spawn(isr_updates.run_announcements())
    every(background, _QUOTA_EXPIRY_MS, state.quotas.expire)
    every(background, settings.groups.retention_check_interval_ms, groups.expire)
    every(background, settings.transactions.abort_interval_ms, transactions.abort_timed_out)
    every(background, settings.transactions.expiry_interval_ms, transactions.expire)


def every(background: LoopTasks, interval_ms: int, action: Callable[[], None]) -> None:
    """Runs an action periodically; a failure is logged, and the action runs again."""

    def run() -> None:
        try:
            action()
        except StorageError as error:
            logger.warning("%s", error)
        background.call_later(interval_ms, run)

    background.call_later(interval_ms, run)
