"""Commits positions to groups, on a thread of its own, so that no query waits for a broker.

Only the newest position of a partition matters, so at most one per partition and group waits. A
commit that fails is logged and counted; the next batch commits a newer position anyway. The thread
ends, and closes its connections, when no position was submitted for a while.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from odradek.client.admin.blocking import Admin
from odradek.client.consumer.commits import OffsetAndMetadata
from odradek.errors import OdradekError
from odradek.model import TopicPartition
from odradek.spark.progress.targets import ProgressTarget

__all__ = ["GroupCommitter"]

logger = logging.getLogger(__name__)

_COMMIT_TIMEOUT_S: Final = 15
_IDLE_S: Final = 20

_Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class _Committing(Protocol):
    """The part of `Admin` that is used here."""

    def alter_group_offsets(
        self, group_id: str, offsets: _Offsets, *, timeout: float | None = None
    ) -> object: ...

    def close(self, timeout: float | None = None) -> None: ...


def _open_admin(settings: Mapping[str, str]) -> _Committing:
    return Admin({"client.id": "odradek-spark-progress", **settings})


def _close(admin: _Committing) -> None:
    try:
        admin.close(_COMMIT_TIMEOUT_S)
    except Exception:  # logged, and the thread serves other groups
        logger.exception("the client that commits progress to groups could not be closed")


class GroupCommitter:
    """See the module's docstring. May be used by several threads.

    Args:
        open_admin: Opens a client with settings by Kafka's names.
        idle_s: How long the thread waits for positions before it ends.
    """

    def __init__(
        self,
        open_admin: Callable[[Mapping[str, str]], _Committing] = _open_admin,
        *,
        idle_s: float = _IDLE_S,
    ) -> None:
        self._open_admin = open_admin
        self._idle_s = idle_s
        self._changed = threading.Condition()
        # Invariant: all of these are read and written with `_changed` held.
        self._waiting: dict[ProgressTarget, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._is_committing = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.committed_total = 0  # Commits that a broker accepted.
        self.failed_total = 0  # Commits that failed.

    def submit(self, target: ProgressTarget, offsets: _Offsets) -> None:
        """Queues positions for the thread. Never waits, never fails."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting.setdefault(target, {}).update(offsets)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._live, name="odradek-progress", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def settle(self, timeout_s: float) -> bool:
        """Waits until all submitted positions are committed or failed; returns False on timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._is_committing, timeout_s
            )

    def close(self, timeout_s: float = _COMMIT_TIMEOUT_S) -> None:
        """Commits the waiting positions within the timeout, and ends the thread."""
        self.settle(timeout_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _live(self) -> None:
        admins: dict[tuple[tuple[str, str], ...], _Committing] = {}
        try:
            while (work := self._next()) is not None:
                for target, offsets in work.items():
                    self._commit(admins, target, offsets)
        finally:
            for admin in admins.values():
                _close(admin)

    def _commit(
        self,
        admins: dict[tuple[tuple[str, str], ...], _Committing],
        target: ProgressTarget,
        offsets: _Offsets,
    ) -> None:
        try:
            if target.kafka not in admins:
                admins[target.kafka] = self._open_admin(dict(target.kafka))
            admins[target.kafka].alter_group_offsets(
                target.group, offsets, timeout=_COMMIT_TIMEOUT_S
            )
        except (OdradekError, OSError) as error:
            logger.warning("progress of group %s not committed: %s", target.group, error)
            self._count(failed=1)
        except Exception:  # logged, and the thread serves other groups
            # A bug must not end the thread: it commits the progress of all queries. The client may
            # be broken; the next commit opens another.
            logger.exception("progress of group %s not committed", target.group)
            if (admin := admins.pop(target.kafka, None)) is not None:
                _close(admin)
            self._count(failed=1)
        else:
            self._count(committed=1)

    def _next(self) -> dict[ProgressTarget, dict[TopicPartition, OffsetAndMetadata]] | None:
        """All positions that wait now; None if the thread must end."""
        with self._changed:
            self._is_committing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._is_closed, self._idle_s)
            if self._is_closed or not self._waiting:
                self._thread = None
                return None
            self._is_committing = True
            work, self._waiting = self._waiting, {}
            return work

    def _count(self, *, committed: int = 0, failed: int = 0) -> None:
        with self._changed:
            self.committed_total += committed
            self.failed_total += failed
