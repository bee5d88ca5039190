"""Commits offsets for the application: sent and answered in order, callbacks in its own calls.

`commits` has the rules. Commits are sent in the order in which they were made, synchronous ones
behind asynchronous ones, over one connection, which the broker serves in order: an older offset
cannot overtake a newer one. No commit waits for the answer to an earlier one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from odradek.client.client import Client
from odradek.client.consumer.commits import (
    CommitCallback,
    CommitQueue,
    OffsetAndMetadata,
    OffsetCommitOutcome,
    PendingCommit,
    wrap_for_callback,
)
from odradek.client.consumer.coordinator import Coordinator
from odradek.client.consumer.errors import FencedInstanceIdError
from odradek.client.consumer.membership import MemberIdentity
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.errors import CallTimeoutError
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.tasks import TaskSet

__all__ = ["CommitListener", "Committer", "Invoke"]

logger = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Invoke = Callable[..., Awaitable[None]]


class CommitListener(Protocol):
    """The part of an interceptor that is called for commits."""

    def on_commit(self, offsets: Offsets) -> object:
        """Called when these offsets were committed."""
        ...


class Committer:
    """See the module's docstring."""

    def __init__(
        self,
        client: Client,
        coordinator: Coordinator,
        metrics: ConsumerMetrics,
        *,
        interceptors: Sequence[CommitListener],
        identify: Callable[[], MemberIdentity],
        invoke: Invoke,
        on_outcome: Callable[[OffsetCommitOutcome, MemberIdentity], None],
        on_change: Callable[[], None],
    ) -> None:
        """Begins without commits.

        Args:
            identify: Gives the member that commits; raises while a commit is not possible.
            invoke: Runs a callback on the thread or loop of the application.
            on_outcome: Called with the meaning of every answer for the member.
            on_change: Called when a callback is due.
        """
        self._client = client
        self._coordinator = coordinator
        self._metrics = metrics
        self._interceptors = interceptors
        self._identify = identify
        self._invoke = invoke
        self._on_outcome = on_outcome
        self._on_change = on_change
        self._queue = CommitQueue()
        # Held while a commit is sent.
        self._turn = asyncio.Lock()
        self._tasks = TaskSet()
        self._fenced: FencedInstanceIdError | None = None

    @property
    def has_completed(self) -> bool:
        """Whether a callback is due."""
        return self._queue.has_completed

    def commit_nowait(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None
    ) -> None:
        """Commits in the background, tried once.

        The member is the one of this moment. The commit may be sent after a rebalance that gave the
        partitions to a member with later positions: the broker must refuse it as of an earlier
        generation.
        """
        pending = self._queue.add(offsets, callback)
        identity = self._try_identify()
        self._tasks.start(self._commit_in_turn(pending, identity))

    async def commit(
        self, offsets: Offsets, deadline: Deadline, *, runs_callbacks: bool = True
    ) -> None:
        """Commits and waits; tries again after retriable errors.

        Args:
            runs_callbacks: Whether the application waits for this call, so that callbacks may run.

        Raises:
            CallTimeoutError: The time is over.
            ApiError: Trying again does not help.
        """
        if not offsets:
            return
        for pause_ms in self._client.pauses_ms():
            outcome = await self._commit_before(offsets, deadline, None)
            if runs_callbacks:
                await self.run_callbacks()
            if outcome.error is None:
                self._tell_interceptors(offsets)
                return
            if not outcome.is_retriable:
                raise outcome.error
            if deadline.left_ms() <= pause_ms:
                raise CallTimeoutError(
                    f"commit: gave up after {deadline.timeout_ms} ms: {outcome.error}"
                ) from outcome.error
            await asyncio.sleep(pause_ms / 1000)

    async def run_callbacks(self) -> None:
        """Runs the callbacks of finished commits, in the order in which these were made.

        Raises:
            FencedInstanceIdError: One was refused because another consumer has our instance id.
        """
        while (done := self._queue.pop_completed()) is not None:
            if done.error is None:
                self._tell_interceptors(done.offsets)
            if isinstance(done.error, FencedInstanceIdError):
                self._fenced = done.error
            if done.callback is not None:
                await self._invoke(done.callback, done.offsets, done.error)
            elif done.error is not None:
                logger.warning("Offsets were not committed: %s", done.error)
        if self._fenced is not None:
            fenced, self._fenced = self._fenced, None
            raise fenced

    async def finish(self, deadline: Deadline) -> None:
        """Waits for commits under way, cancels those that are late, runs the callbacks."""
        await self._tasks.wait(deadline.left_ms() / 1000)
        await self._tasks.stop()
        await self.run_callbacks()

    def _try_identify(self) -> MemberIdentity | ApiError:
        try:
            return self._identify()
        except ApiError as error:
            return error

    async def _commit_in_turn(
        self, pending: PendingCommit, identity: MemberIdentity | ApiError
    ) -> None:
        try:
            deadline = self._client.deadline()
            outcome = await self._commit_before(pending.offsets, deadline, identity)
            pending.error = wrap_for_callback(outcome)
        except asyncio.CancelledError:
            pending.error = ApiError(ErrorCode.NETWORK_EXCEPTION, "the consumer was closed")
            raise
        finally:
            pending.is_done = True
            self._on_change()

    async def _commit_before(
        self, offsets: Offsets, deadline: Deadline, identity: MemberIdentity | ApiError | None
    ) -> OffsetCommitOutcome:
        """Commits in turn, as the given member; None: as the member of that moment."""
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await self._turn.acquire()
        except TimeoutError:
            return OffsetCommitOutcome(
                error=CallTimeoutError("an earlier commit could not be sent in time"),
                is_retriable=True,
            )
        try:
            if identity is None:
                identity = self._try_identify()
            if isinstance(identity, ApiError):
                return OffsetCommitOutcome(error=identity)
            started_ms = self._client.clock.monotonic_ms()
            sent = await self._coordinator.send_commit(offsets, identity, deadline)
        finally:
            self._turn.release()
        outcome = await sent
        self._metrics.on_commit(self._client.clock.monotonic_ms() - started_ms)
        self._on_outcome(outcome, identity)
        return outcome

    def _tell_interceptors(self, offsets: Offsets) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:  # the application's code may raise anything
                logger.exception("%s.on_commit failed", type(interceptor).__name__)
