"""Commits positions to groups, on a thread of its own: no query waits for a broker.

Of a partition only the newest position counts, so what waits is never more than one per partition
and group. A commit that fails is logged and counted; the next batch commits a newer one anyway. The
thread, and its connections, end when there is nothing to do for a while.
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
    """What is needed of an `Admin`."""

    def alter_group_offsets(
        self, group_id: str, offsets: _Offsets, *, timeout: float | None = None
    ) -> object: ...

    def close(self, timeout: float | None = None) -> None: ...


def _open_admin(settings: Mapping[str, str]) -> _Committing:
    return Admin({"client.id": "odradek-spark-progress", **settings})


def _close(admin: _Committing) -> None:
    try:
        admin.close(_COMMIT_TIMEOUT_S)
    except Exception:  # logged, and others wait for this thread
        logger.exception("a client for the progress of groups does not close")


class GroupCommitter:
    """See the module's docstring. May be used by several threads.

    Args:
        open_admin: Opens a client out of settings by Kafka's names.
        idle_s: How long the thread waits for more.
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
        self.committed_total = 0  # Commits that a broker took.
        self.failed_total = 0  # Commits that failed.

    def submit(self, target: ProgressTarget, offsets: _Offsets) -> None:
        """Has positions committed soon. Never waits, never fails."""
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
        """Waits until all that was submitted is committed or has failed; whether it is."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._is_committing, timeout_s
            )

    def close(self, timeout_s: float = _COMMIT_TIMEOUT_S) -> None:
        """Commits what waits, as far as the time goes, and ends."""
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
        except Exception:  # logged, and others wait for this thread
            # A mistake somewhere must not end the thread: nobody's progress would be seen again.
            # The client may be broken by it; the next commit opens another.
            logger.exception("progress of group %s not committed", target.group)
            if (admin := admins.pop(target.kafka, None)) is not None:
                _close(admin)
            self._count(failed=1)
        else:
            self._count(committed=1)

    def _next(self) -> dict[ProgressTarget, dict[TopicPartition, OffsetAndMetadata]] | None:
        """All that waits now; None if the thread shall end."""
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
