"""The commits of a consumer with a group: which offsets, as which member, and when by itself."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.client.client import Client
from odradek.client.consumer.commits import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetCommitOutcome,
    check_offsets,
)
from odradek.client.consumer.committer import CommitListener, Committer, Invoke
from odradek.client.consumer.config import ConsumerConfig
from odradek.client.consumer.coordinator import Coordinator
from odradek.client.consumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
)
from odradek.client.consumer.membership import NO_MEMBER, MemberIdentity, Phase
from odradek.client.consumer.membership_driver import MembershipDriver
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.consumer.partition_state import NO_EPOCH, Partitions
from odradek.client.consumer.subscription import SubscriptionState
from odradek.client.retry import Deadline
from odradek.errors import ApiError
from odradek.model import TopicPartition

__all__ = ["GroupCommits"]

logger = logging.getLogger(__name__)


class GroupCommits:
    """See the module's docstring."""

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        coordinator: Coordinator,
        subscription: SubscriptionState,
        partitions: Partitions,
        metrics: ConsumerMetrics,
        *,
        interceptors: Sequence[CommitListener],
        invoke: Invoke,
        on_change: Callable[[], None],
    ) -> None:
        """Begins without commits; `group` is set before the first one.

        Args:
            invoke: Runs a callback on the thread or loop of the application.
            on_change: Called when a callback is due.
        """
        self._client = client
        self._config = config
        self._coordinator = coordinator
        self._subscription = subscription
        self._partitions = partitions
        # The driver of this consumer's membership.
        self.group: MembershipDriver | None = None
        self.committer = Committer(
            client,
            coordinator,
            metrics,
            interceptors=interceptors,
            identify=self._identify,
            invoke=invoke,
            on_outcome=self._on_outcome,
            on_change=on_change,
        )
        # When the next automatic commit is due (monotonic ms).
        self._due_at_ms = 0

    def start(self) -> None:
        """Counts the interval from now on."""
        self._due_at_ms = self._now_ms() + self._config.auto_commit_interval_ms

    def to_commit(
        self, offsets: Mapping[Any, OffsetAndMetadata | int] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that the application gives, or all positions if it gives none.

        Raises:
            ValueError: An offset is negative.
        """
        if offsets is not None:
            return check_offsets(offsets)
        return {
            tp: OffsetAndMetadata(position, "", None if epoch == NO_EPOCH else epoch)
            for tp, (position, epoch) in self._partitions.positions().items()
        }

    async def committed(
        self, partitions: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Asks the coordinator for the group's offsets; None where nothing is committed.

        Raises:
            CallTimeoutError: The time is over.
            ApiError: The coordinator refuses to answer.
        """
        found = await self._client.retry(
            "committed", lambda: self._coordinator.fetch_offsets(partitions, deadline), deadline
        )
        return {tp: found.get(tp) for tp in partitions}

    def metadata(self) -> ConsumerGroupMetadata:
        """The group and its member that commits now; raises as `_identify`."""
        member = self._identify()
        return ConsumerGroupMetadata(
            self._coordinator.group_id, member.generation, member.member_id, member.instance_id
        )

    def _identify(self) -> MemberIdentity:
        """The member that commits now.

        Raises:
            CommitFailedError: This member is not in its group.
            RebalanceInProgressError: It is joining.
        """
        if not self._subscription.is_automatic or self.group is None:
            return NO_MEMBER
        membership = self.group.membership
        if membership.phase is Phase.FENCED:
            raise FencedInstanceIdError
        if self.group.is_joining:
            raise RebalanceInProgressError
        if not membership.is_in_group:
            raise CommitFailedError
        return membership.identity

    def _on_outcome(self, outcome: OffsetCommitOutcome, identity: MemberIdentity) -> None:
        group = self.group
        if outcome.error is None or group is None or identity is NO_MEMBER:
            return
        if identity != group.membership.identity:
            return  # It belongs to an earlier generation.
        if isinstance(outcome.error, FencedInstanceIdError):
            group.membership.on_fenced()
        elif outcome.resets_generation:
            group.membership.on_lost(outcome.error.code)
        elif isinstance(outcome.error, RebalanceInProgressError):
            group.request_join("a commit met a rebalance")

    @property
    def has_duties(self) -> bool:
        """Whether a callback or a commit is due. From any thread."""
        return self.committer.has_completed or self._is_due()

    def _is_due(self) -> bool:
        return self._config.enable_auto_commit and self._now_ms() >= self._due_at_ms

    def maybe_commit(self) -> None:
        """Commits if it is time: the application has processed the records of earlier polls."""
        if not self._is_due():
            return
        self._due_at_ms = self._now_ms() + self._config.auto_commit_interval_ms
        offsets = self.to_commit()
        is_idle = self.group is not None and self.group.is_joining
        if offsets and not is_idle:
            self.committer.commit_nowait(offsets, None)

    async def commit_before_loss(self, deadline: Deadline) -> None:
        """Commits before partitions are revoked, maybe while no call of the application waits."""
        await self.commit_quietly(deadline, runs_callbacks=False)

    async def commit_quietly(self, deadline: Deadline, *, runs_callbacks: bool = True) -> None:
        """Commits and waits, if that is automatic; after a failure records are read again.

        Args:
            runs_callbacks: Whether a call of the application waits for this.
        """
        offsets = self.to_commit() if self._config.enable_auto_commit else {}
        if not offsets:
            return
        # A coordinator that does not answer must not delay the rebalance for long.
        patience = deadline.within(self._client.options.request_timeout_ms)
        try:
            async with asyncio.timeout(patience.left_ms() / 1000):
                await self.committer.commit(offsets, patience, runs_callbacks=runs_callbacks)
        except (ApiError, TimeoutError) as error:
            logger.warning("Automatic commit failed: %s", error)

    def _now_ms(self) -> int:
        return self._client.clock.monotonic_ms()
