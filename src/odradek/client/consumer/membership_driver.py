"""Drives the membership of a consumer: joins, sends heartbeats, hands assignments over.

Tasks and calls:

* One task joins, so that a join goes on when `poll` reaches its timeout. Another one sends
  heartbeats, independent of the application.
* Everything that the application notices happens in `advance`, which only `poll` calls: revoking
  before a join, assigning after it, and the calls of the listener for both (CL-23).

The order of a rebalance: offsets are committed, if that is automatic; the listener gets the revoked
partitions; the member joins; the leader assigns; the listener gets the new partitions. An eager
member gives up all partitions before the join, a cooperative one only those that the new assignment
lacks, after it.

A poll waits for that commit no longer than its own timeout; the next one goes on waiting. Meanwhile
no record of the revoked partitions is returned, or it would be read twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.client.assignors import (
    Assignor,
    Subscription,
    encode_subscription,
    is_cooperative,
    parse_assignment,
)
from odradek.client.client import Client
from odradek.client.consumer.config import ConsumerConfig
from odradek.client.consumer.coordinator import Coordinator
from odradek.client.consumer.errors import FencedInstanceIdError
from odradek.client.consumer.group_requests import GroupRequests
from odradek.client.consumer.leader_assignment import assign_as_leader
from odradek.client.consumer.membership import (
    Membership,
    Next,
    Phase,
    decide_next,
    decide_transfer,
)
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.consumer.partition_state import Partitions
from odradek.client.consumer.subscription import SubscriptionState
from odradek.client.retry import Deadline
from odradek.errors import ApiError, DecodeError, ErrorCode
from odradek.model import TopicPartition
from odradek.tasks import TaskSet

__all__ = ["MembershipDriver"]

logger = logging.getLogger(__name__)


Listen = Callable[
    [Callable[[Sequence[TopicPartition]], object], Sequence[TopicPartition]], Awaitable[None]
]


@dataclass(frozen=True, slots=True)
class _Joined:
    """The result of a join."""

    assignor: Assignor
    assigned: tuple[TopicPartition, ...]


class MembershipDriver:
    """See the module's docstring."""

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        assignors: tuple[Assignor, ...],
        coordinator: Coordinator,
        subscription: SubscriptionState,
        partitions: Partitions,
        metrics: ConsumerMetrics,
        *,
        listen: Listen,
        commit_positions: Callable[[Deadline], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        """Begins outside of the group.

        Args:
            listen: Runs a method of the listener on the thread or loop of the application.
            commit_positions: Commits before partitions are revoked, if commits are automatic.
            on_change: Called when `advance` has something to do.
        """
        self._client = client
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = is_cooperative(assignors)
        self._coordinator = coordinator
        self._subscription = subscription
        self._partitions = partitions
        self._metrics = metrics
        self._listen = listen
        self._commit_positions = commit_positions
        self._on_change = on_change
        self.membership = Membership(config.group_instance_id)
        self._requests = GroupRequests(client, config, coordinator, self.membership)
        # The last assignment and its generation: the sticky strategies build on them.
        self._remembered: tuple[TopicPartition, ...] = ()
        self._remembered_generation = -1
        self._tasks = TaskSet()
        self._join: asyncio.Task[_Joined | None] | None = None
        # An assignment that the application has not taken over yet.
        self._joined: _Joined | None = None
        # The commit before partitions are revoked.
        self._commit: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        # Tells the coordinator that this member left because its application stopped polling.
        self._leave_request: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        # Why the last attempt to join failed, while another one is to come.
        self.join_failure: ApiError | None = None
        # As leader: the topics of the group and how many partitions each had when it assigned them.
        self._partition_counts: dict[str, int] | None = None
        self._polled_at_ms = client.clock.monotonic_ms()
        self._is_polling = False

    # For poll

    @property
    def needs_advance(self) -> bool:
        """Whether `advance` has something to do."""
        membership = self.membership
        return (
            membership.phase is not Phase.STABLE
            or membership.wants_join
            or membership.has_lost
            or self._failure is not None
            or (self._heartbeats is not None and self._heartbeats.done())
        )

    @property
    def is_joining(self) -> bool:
        """Whether a join is under way: a commit would wait behind it."""
        return self._join is not None and not self._join.done()

    def note_poll(self) -> None:
        """Notes that the application polls."""
        self._polled_at_ms = self._client.clock.monotonic_ms()

    def request_join(self, why: str) -> None:
        """Joins again, at the next poll: the subscription or the topics changed."""
        if not self.membership.wants_join:
            logger.info("Group %s: joining again: %s", self._coordinator.group_id, why)
        self.membership.wants_join = True
        self._on_change()

    async def advance(self, deadline: Deadline) -> None:
        """Revokes, begins to join, assigns: all that needs no wait beyond the deadline.

        Raises:
            FencedInstanceIdError: Another consumer has this one's instance id.
            Exception: Joining failed for good, or a listener failed.
        """
        self._is_polling = True
        try:
            await self._advance(deadline)
        finally:
            self._is_polling = False
            self.note_poll()

    async def _advance(self, deadline: Deadline) -> None:
        membership = self.membership
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if (
            membership.phase is Phase.STABLE
            and self._heartbeats is not None
            and self._heartbeats.done()
            and not membership.has_lost
        ):
            # They ended with a failure, and the application polls on after it.
            self._start_heartbeats()
        if membership.has_lost:
            await self._lose()
        if membership.phase is Phase.FENCED:
            raise FencedInstanceIdError
        if self._join is not None:
            if not self._join.done():
                return
            join, self._join = self._join, None
            self._joined = join.result()
        if self._joined is not None:
            if membership.phase is not Phase.ASSIGNED:
                self._joined = None  # It was lost meanwhile.
            elif not await self._take_over(self._joined, deadline):
                return
        if membership.wants_join and self._join is None and not membership.has_lost:
            if not self._subscription.is_automatic:
                return
            if not await self._let_go(deadline) or self.membership.has_lost:
                return
            membership.wants_join = False
            if not membership.is_in_group:
                membership.phase = Phase.JOINING
            # The join is a sign of life, and a heartbeat would wait behind it.
            self._stop_heartbeats()
            self._join = self._tasks.start(self._join_group())
            self._join.add_done_callback(self._on_join_done)

    def _on_join_done(self, join: "asyncio.Task[_Joined | None]") -> None:
        if join.cancelled():
            return
        failure = join.exception()
        if failure is not None:
            self._join = None
            self.membership.wants_join = True
            if not self.membership.is_in_group and self.membership.phase is not Phase.FENCED:
                self.membership.phase = Phase.OUTSIDE
            self._failure = failure if isinstance(failure, Exception) else RuntimeError(failure)
            self._metrics.on_failed_rebalance()
        self._on_change()

    # Revoking and assigning

    async def _lose(self) -> None:
        lost = tuple(sorted(self._partitions.names()))
        self.membership.has_lost = False
        self._partitions.assign(())
        self._stop_heartbeats()
        self._joined = None
        if self._commit is not None:
            self._commit.cancel()
            self._commit = None
        if lost:
            logger.warning("Group %s: partitions are lost", self._coordinator.group_id)
            await self._listen(self._subscription.listener.on_partitions_lost, lost)

    async def _let_go(self, deadline: Deadline) -> bool:
        """Revokes partitions before a join; returns whether that is done."""
        owned = self._partitions.names()
        if self._is_cooperative:
            # Partitions of topics that are no longer subscribed to are revoked at once.
            gone = tuple(sorted(tp for tp in owned if tp.topic not in self._subscription.topics))
        else:
            gone = tuple(sorted(owned))
        if not await self._commit_before_loss(gone, deadline):
            return False
        await self._revoke(gone)
        return True

    async def _commit_before_loss(
        self, gone: tuple[TopicPartition, ...], deadline: Deadline
    ) -> bool:
        """Commits before a revocation, if that is automatic; returns whether it is done."""
        if not gone or not self._config.enable_auto_commit:
            return True
        self._partitions.give_up(gone)
        if self._commit is None:
            # It goes on after the poll that began it has returned.
            limit = self._client.deadline(self._config.max_poll_interval_ms)
            self._commit = self._tasks.start(self._commit_all(limit))
            self._commit.add_done_callback(lambda _done: self._on_change())
        commit = self._commit
        await asyncio.wait((commit,), timeout=deadline.left_ms() / 1000)
        if not commit.done() or self.membership.has_lost:
            return False
        self._commit = None
        if not commit.cancelled():
            commit.result()
        return True

    async def _commit_all(self, deadline: Deadline) -> None:
        await self._commit_positions(deadline)

    async def _revoke(self, gone: tuple[TopicPartition, ...]) -> None:
        if not gone:
            return
        try:
            await self._listen(self._subscription.listener.on_partitions_revoked, gone)
        finally:
            self._partitions.assign(
                [state.tp for state in self._partitions if state.tp not in set(gone)]
            )

    async def _take_over(self, joined: _Joined, deadline: Deadline) -> bool:
        """Assigns partitions after a join; returns whether that is done."""
        transfer = decide_transfer(
            self._partitions.names(), joined.assigned, is_cooperative=self._is_cooperative
        )
        if not await self._commit_before_loss(transfer.revoked, deadline):
            return False
        self._joined = None
        self._remembered = transfer.assigned
        self._remembered_generation = self.membership.generation
        try:
            await self._revoke(transfer.revoked)
        finally:
            if not self.membership.has_lost:
                self._partitions.assign(transfer.assigned)
                self.membership.on_applied()
                if transfer.rejoins:
                    self.request_join("partitions were given up")
                self._metrics.on_rebalance()
            self._on_change()
        if not self.membership.has_lost:
            await self._listen(self._subscription.listener.on_partitions_assigned, transfer.added)
        # Else the membership was lost during the revocation: the new partitions were never its own.
        return True

    # Joining

    async def _join_group(self) -> _Joined | None:
        """Joins and syncs; None: something has to happen in `advance` first."""
        if self._leave_request is not None:
            # The coordinator must have removed the old member id, or the group would wait for it.
            await asyncio.wait((self._leave_request,))
            self._leave_request = None
        started_ms = self._client.clock.monotonic_ms()
        pauses_ms = self._client.pauses_ms()
        while True:
            try:
                joined = await self._join_once()
            except ApiError as error:
                self.join_failure = error
                match decide_next(error.code):
                    case Next.LOST:
                        if self.membership.generation >= 0 or error.code is (
                            ErrorCode.ILLEGAL_GENERATION
                        ):
                            self._be_lost(error)
                            return None
                        self.membership.member_id = ""
                    case Next.FENCED:
                        self.membership.on_fenced()
                        return None
                    case Next.JOIN_AGAIN | Next.SAME_AGAIN:
                        logger.info("Group %s: %s", self._coordinator.group_id, error)
                    case Next.JOIN_WITH_ID:
                        continue
                    case Next.RAISE | Next.GO_ON:
                        raise
            else:
                self.join_failure = None
                self._metrics.on_join(self._client.clock.monotonic_ms() - started_ms)
                return joined
            await asyncio.sleep(next(pauses_ms) / 1000)

    def _be_lost(self, why: ApiError) -> None:
        logger.warning("Group %s: %s", self._coordinator.group_id, why)
        self.membership.on_lost(why.code)
        self._on_change()

    async def _join_once(self) -> _Joined:
        membership = self.membership
        await self._match_pattern()
        answer = await self._requests.join(
            {name: self._subscribe_with(assignor) for name, assignor in self._assignors.items()}
        )
        # From now on in this generation; heartbeats of an older one would be refused.
        membership.on_joined(answer.member_id, answer.generation_id)
        assignor = self._assignors.get(answer.protocol_name or "")
        if assignor is None:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the group chose the strategy {answer.protocol_name!r}, "
                f"we offered {', '.join(self._assignors)}",
            )
        assignments: Mapping[str, bytes] = {}
        self._partition_counts = None
        if answer.leader == answer.member_id:
            # Assigning may take long, and heartbeats keep the leader's session alive meanwhile.
            # Members that wait for the assignments need none.
            self._start_heartbeats()
            try:
                made = await assign_as_leader(self._client, answer, assignor)
            finally:
                self._stop_heartbeats()
            assignments, self._partition_counts = made.assignments, made.partition_counts
        return await self._sync(assignor, assignments)

    async def _match_pattern(self) -> None:
        """Looks the topics of a pattern up, if the subscription has one."""
        if self._subscription.pattern is not None:
            await self._client.topics(None)
            self._subscription.match(self._client.cluster)

    def _subscribe_with(self, assignor: Assignor) -> bytes:
        owned = tuple(sorted(self._partitions.names())) if self._is_cooperative else ()
        return encode_subscription(
            Subscription(
                topics=tuple(sorted(self._subscription.topics)),
                user_data=assignor.user_data(self._remembered, self._remembered_generation),
                owned=owned,
                generation=self._remembered_generation,
                rack=self._config.client_rack or None,
            )
        )

    async def _sync(self, assignor: Assignor, assignments: Mapping[str, bytes]) -> _Joined:
        answer = await self._requests.sync(assignor.name, assignments)
        try:
            assigned = parse_assignment(answer.assignment)
        except DecodeError as error:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the assignment is unreadable: {error}"
            ) from error
        self.membership.on_synced()
        self._start_heartbeats()
        return _Joined(assignor, assigned)

    # Heartbeats

    def _start_heartbeats(self) -> None:
        self._stop_heartbeats()
        self._heartbeats = self._tasks.start(self._keep_sending_heartbeats())

    def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            self._heartbeats = None

    async def _keep_sending_heartbeats(self) -> None:
        """Sends heartbeats until the member leaves or the coordinator has removed it."""
        interval_ms = self._config.heartbeat_interval_ms
        pause_ms = interval_ms
        while True:
            await asyncio.sleep(pause_ms / 1000)
            if self._is_silent():
                self._leave_in_silence()
                return
            generation = self.membership.generation
            try:
                await self._send_heartbeat()
            except ApiError as error:
                if generation != self.membership.generation:
                    return  # Another round has begun; it sends its own heartbeats.
                if not self._goes_on(error):
                    return
                pause_ms = min(self._client.options.retry_backoff_ms, interval_ms)
                if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                    pause_ms = interval_ms
            else:
                pause_ms = interval_ms

    async def _send_heartbeat(self) -> None:
        started_ms = self._client.clock.monotonic_ms()
        answer = await self._requests.heartbeat()
        self._metrics.on_heartbeat(self._client.clock.monotonic_ms() - started_ms)
        self._coordinator.check(answer.error_code, "HEARTBEAT")

    def _goes_on(self, error: ApiError) -> bool:
        if self.is_joining:
            return True  # The answer to the join's next request says the same.
        match decide_next(error.code):
            case Next.JOIN_AGAIN:
                self.request_join("the group is rebalancing")
            case Next.SAME_AGAIN:
                logger.info("Group %s: %s", self._coordinator.group_id, error)
            case Next.LOST:
                self._be_lost(error)
                return False
            case Next.FENCED:
                self.membership.on_fenced()
                self._on_change()
                return False
            case _:
                self._failure = error
                self._on_change()
                return False
        return True

    def _is_silent(self) -> bool:
        if self._is_polling or self.is_joining:
            return False
        silent_ms = self._client.clock.monotonic_ms() - self._polled_at_ms
        return silent_ms > self._config.max_poll_interval_ms

    def _leave_in_silence(self) -> None:
        logger.warning(
            "Group %s: no poll for more than max.poll.interval.ms=%d: leaving; poll more often, "
            "or take fewer records at once (max.poll.records)",
            self._coordinator.group_id,
            self._config.max_poll_interval_ms,
        )
        identity = self.membership.identity
        self.membership.on_lost()
        self._on_change()
        if identity.instance_id is None:
            # Not in this task, which ends when the application polls again.
            deadline = self._client.deadline(self._client.options.request_timeout_ms)
            self._leave_request = self._tasks.start(
                self._requests.leave(identity.member_id, "no poll in time", deadline)
            )

    # Metadata and the end

    def check_metadata(self) -> None:
        """Joins again if new metadata changes the topics or partitions of the group."""
        if self._subscription.match(self._client.cluster):
            self.request_join("other topics match the pattern")
        if self._partition_counts is not None and self.membership.is_in_group:
            topics = self._client.cluster.topics
            now = {
                name: len(topics[name].partitions) if name in topics else 0
                for name in self._partition_counts
            }
            if now != self._partition_counts:
                self._partition_counts = now
                self.request_join("topics of the group changed")

    def topics_of_interest(self) -> Iterable[str]:
        """Topics whose metadata this member needs: as leader, those of the whole group."""
        return {*self._subscription.topics, *(self._partition_counts or ())}

    async def leave(self, deadline: Deadline, *, reason: str) -> None:
        """Revokes all partitions and leaves; a static member stays until its session ends.

        The listener is called for the partitions that are owned, as revoked or as lost.
        """
        is_lost = self.membership.has_lost or not self.membership.is_in_group
        owned = tuple(sorted(self._partitions.names()))
        failure: Exception | None = None
        if owned:
            listener = self._subscription.listener
            told = listener.on_partitions_lost if is_lost else listener.on_partitions_revoked
            try:
                await self._listen(told, owned)
            except Exception as error:  # noqa: BLE001 - raised below, when the member has left
                failure = error
            self._partitions.assign(())
        if self._leave_request is not None:
            await asyncio.wait((self._leave_request,), timeout=deadline.left_ms() / 1000)
        await self._end_tasks()
        identity = self.membership.identity
        self.membership.leave()
        self.membership.has_lost = False
        self._partition_counts = None
        if identity.member_id and identity.instance_id is None:
            await self._requests.leave(identity.member_id, reason, deadline)
        if failure is not None:
            raise failure

    async def stop(self) -> None:
        """Ends the tasks, without a request to the coordinator."""
        await self._end_tasks()

    async def _end_tasks(self) -> None:
        tasks = [
            task
            for task in (self._join, self._heartbeats, self._commit, self._leave_request)
            if task is not None
        ]
        is_joining = self.is_joining
        self._join = self._heartbeats = self._commit = self._leave_request = None
        self._joined = None
        await self._tasks.stop()
        await asyncio.gather(*tasks, return_exceptions=True)  # Those that have failed before.
        if is_joining:
            # The coordinator answers in order: a leave would wait behind the join.
            self._coordinator.drop_connection()
