"""The group coordinator of one broker: requests in, answers out, state made durable in between.

Duties towards the pure functions of this package, in order, for every decision:

1. arm its timers;
2. append its write, if it has one, and carry out what `complete_write` makes of the outcome;
3. give its answers, after the two, once nothing else of this coordinator is on the stack: an answer
   may bring its client's next request at once.

Commits and heartbeats, which are most of what comes, take a shorter way: no decision is made of
them, and with this broker alone in sync a commit is answered before its function returns, or with
its neighbours of the same wake-up (`commit_lane`).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group import joining, leaving, sessions, syncing, writes
from odradek.coordinator.group.batches import build_batches
from odradek.coordinator.group.commit_lane import CommitAnswer, CommitLane, Rejected
from odradek.coordinator.group.decisions import (
    Decision,
    GroupWrite,
    JoinReply,
    JoinRequest,
    Now,
    Record,
    SyncReply,
    SyncRequest,
    TimerKey,
    TimerKind,
)
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.metrics import GroupMetrics
from odradek.coordinator.group.offsets import (
    CommitWrite,
    apply_commit,
    build_commit,
    check_commit,
    fail_commit,
    map_commit_error,
)
from odradek.coordinator.group.records import fits_string
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.runtime import PartitionWriter
from odradek.coordinator.stall_clock import StallClock
from odradek.errors import ErrorCode
from odradek.protocol.hot.offset_commit import OffsetCommitView
from odradek.purgatory.timer import Timer
from odradek.purgatory.timing_wheel import TimerTask

__all__ = ["MAX_PENDING_MEMBERS", "CommitAnswer", "GroupService", "Rejected"]

_log = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_FIRST_GROUP_ID_NOT_FOUND_VERSION: Final = 9  # Of OffsetCommit.

# Member ids of all groups together that were handed out and not used; the oldest makes room. Far
# more clients than begin to join within a second, and some ten megabytes at most.
MAX_PENDING_MEMBERS: Final = 10_000


class _GroupTimer(TimerTask):
    """One deadline of one group."""

    __slots__ = ("_key", "_service", "group")

    def __init__(self, service: "GroupService", group: Group, key: TimerKey, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._service = service
        self.group = group
        self._key = key

    def run(self) -> None:
        self._service.on_timer(self.group, self._key)


class GroupService:
    """Members, generations and offsets of the groups in a registry.

    Args:
        config: Limits and times.
        registry: The groups; shared with those that load and clean them.
        writer: Appends to the offsets topic.
        clock: What deadlines are measured by.
        timer: Rings at deadlines, by the same clock.
        new_id: Makes the unique part of member ids.
        metrics: Counts.
    """

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        registry: GroupRegistry,
        writer: PartitionWriter,
        *,
        clock: StallClock,
        timer: Timer,
        new_id: Callable[[], str],
        metrics: GroupMetrics,
    ) -> None:
        self._config = config
        self.registry = registry
        self._groups = registry.groups
        self._writer = writer
        self.commit_lane = CommitLane(writer, self._complete_commit)
        self._clock = clock
        self._timer = timer
        self._new_id = new_id
        self._metrics = metrics
        # Answers of decisions that were carried out, and whether somebody is giving them.
        self._answers: deque[tuple[Any, object]] = deque()
        self._depth = 0
        # Timers of ids that were handed out, oldest first, by (group id, member id). Invariant:
        # at most MAX_PENDING_MEMBERS; one that leaves it is cancelled, and so forgets its group.
        self._pending: dict[tuple[str, str], _GroupTimer] = {}
        # Topics that were deleted and are not forgotten by every group yet (`upkeep`).
        self.forget_first: Callable[[Group, Iterable[str]], None] | None = None

    def now(self) -> Now:
        """The moment, on both clocks."""
        return Now(self._clock.monotonic_ms(), self._clock.now_ms())

    # Members

    def join(self, request: JoinRequest, answer: Callable[[JoinReply], None]) -> None:
        """JoinGroup; answered when the generation is complete."""
        error = joining.check_join(self._config, request)
        if error in (_NONE, ErrorCode.INVALID_SESSION_TIMEOUT):
            error = self.registry.check(request.group_id) or error
        if error is not _NONE:
            answer(joining.refuse(request.member_id, error))
            return
        if request.member_id == "":
            group = self.registry.get_or_create(request.group_id)
        else:
            found = self._groups.get(request.group_id)
            if found is None:
                answer(joining.refuse(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
                return
            group = found
        self.carry_out(group, joining.decide_join(group, request, answer, self.now(), self._new_id))
        self._forget_pending(group, request.member_id)
        self._drop_oldest_pending()
        self._drop_if_disposable(group)

    def sync(
        self, group_id: str, request: SyncRequest, answer: Callable[[SyncReply], None]
    ) -> None:
        """SyncGroup; answered when the leader has assigned."""
        group = self._groups.get(group_id)
        if group is None:
            error = self._check_members_group(group_id)
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # What was going on is lost: the client is at the right place, and begins anew.
                error = ErrorCode.REBALANCE_IN_PROGRESS
            answer(SyncReply(error or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self.carry_out(group, syncing.decide_sync(group, request, answer, self.now()))

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        """Heartbeat."""
        group = self._groups.get(group_id)
        if group is not None:
            return sessions.heartbeat(
                group, member_id, generation_id, instance_id, self._clock.monotonic_ms()
            )
        error = self._check_members_group(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return _NONE  # It may well be a member: that is known when the group is loaded.
        return error or ErrorCode.UNKNOWN_MEMBER_ID

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """LeaveGroup: the error of the request, and those of the members if there is none."""
        group = self._groups.get(group_id)
        if group is None:
            error = self._check_members_group(group_id)
            if error is not _NONE:
                return error, []
            return _NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        if group.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        errors, decision = leaving.decide_leave(group, members, self.now())
        self.carry_out(group, decision)
        for member_id, _ in members:
            self._forget_pending(group, member_id)
        if decision.write is None:
            self._drop_if_disposable(group)
        return _NONE, errors

    def _forget_pending(self, group: Group, member_id: str) -> None:
        """Lets go of the timer of an id that was handed out, unless it is still to be used."""
        key = (group.group_id, member_id)
        if key in self._pending and member_id not in group.pending_members:
            self._pending.pop(key).cancel()

    def _drop_oldest_pending(self) -> None:
        while len(self._pending) > MAX_PENDING_MEMBERS:
            key = next(iter(self._pending))
            timer = self._pending.pop(key)
            timer.cancel()
            group = timer.group
            if self.registry.is_current(group):
                self.carry_out(group, sessions.drop_pending(group, key[1], self.now()))
                self._drop_if_disposable(group)

    def _drop_if_disposable(self, group: Group) -> None:
        if group.is_disposable:
            self.registry.drop(group)

    def _check_members_group(self, group_id: str) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self.registry.check(group_id)

    # Offsets

    def commit(
        self, view: OffsetCommitView, version: int, answer: CommitAnswer
    ) -> tuple[ErrorCode, Rejected] | None:
        """OffsetCommit; done when the offsets are in the log, on every replica in sync.

        Returns what `answer` would be given, if that is known at once; None if it comes later.
        """
        group = self._groups.get(view.group_id)
        if group is None:
            error, group = self._find_for_commit(view, version)
            if group is None:
                return error, None
        clock = self._clock
        error = check_commit(
            group, view.member_id, view.generation_id, view.group_instance_id, clock.monotonic_ms()
        )
        if error is not _NONE:
            self._drop_if_disposable(group)
            return error, None
        if self.forget_first is not None:
            self.forget_first(group, [topic for topic, _ in view.topics])
            if group.is_dead:  # That was all it had. It had no members either, or it would live.
                group = self.registry.get_or_create(view.group_id)
        lane = self.commit_lane
        wall_ms = lane.wall_ms or clock.now_ms()
        retention_ms = view.retention_time_ms
        write = build_commit(
            group,
            view.topics,
            wall_ms,
            expire_ms=-1 if retention_ms < 0 else wall_ms + retention_ms,
        )
        if write is None:
            self._drop_if_disposable(group)
            return ErrorCode.OFFSET_METADATA_TOO_LARGE, None
        if not self._config.compression_codec and self._config.commit_required_acks == -1:
            if lane.try_add(group, write, wall_ms, answer):
                return None
            lane.flush()
            outcome = self._writer.try_append(group.partition, write.batch)
            if outcome is not None:
                return self._complete_commit(group, write, *outcome), write.rejected
        self._commit_later(group, write, answer)
        return None

    def _commit_later(self, group: Group, write: CommitWrite, answer: CommitAnswer) -> None:
        def on_appended(error: ErrorCode, base_offset: int) -> None:
            answer(self._complete_commit(group, write, error, base_offset), write.rejected)

        if self._config.compression_codec:
            self.append_records(group.partition, write.records(), on_appended)
        else:
            self._writer.append(group.partition, write.batch, on_appended)

    def _complete_commit(
        self, group: Group, write: CommitWrite, error: ErrorCode, base_offset: int
    ) -> ErrorCode:
        if error is _NONE:
            self._metrics.commits.count += write.count
            apply_commit(group, write, base_offset)
            return _NONE
        fail_commit(group, write)
        self._drop_if_disposable(group)
        return map_commit_error(error)

    def _find_for_commit(
        self, view: OffsetCommitView, version: int
    ) -> tuple[ErrorCode, Group | None]:
        if not fits_string(view.group_id):
            return ErrorCode.INVALID_GROUP_ID, None
        error = self.registry.check(view.group_id)
        if error is not _NONE:
            return error, None
        if view.generation_id < 0:
            return _NONE, self.registry.get_or_create(view.group_id)
        if version >= _FIRST_GROUP_ID_NOT_FOUND_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND, None
        return ErrorCode.ILLEGAL_GENERATION, None

    def find_for_fetch(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """The group an OffsetFetch is about, None if there is none; or why that is not known."""
        self.commit_lane.flush()
        group = self._groups.get(group_id)
        if group is not None:
            return _NONE, None if group.is_dead else group
        error = self.registry.check(group_id)
        # Java consumers before 3.9 give up at COORDINATOR_NOT_AVAILABLE.
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = ErrorCode.NOT_COORDINATOR
        return error, None

    # Carrying out

    def on_timer(self, group: Group, key: TimerKey) -> None:
        """A deadline has come."""
        if key[0] is TimerKind.PENDING:
            self._pending.pop((group.group_id, key[1]), None)
        if self.registry.is_current(group):
            self.carry_out(group, sessions.on_timer(group, key, self.now()))
            self._drop_if_disposable(group)

    def on_loaded(self, group: Group) -> None:
        """A group was loaded, and is served."""
        if self.registry.is_current(group):
            self.carry_out(group, sessions.on_loaded(group, self.now()))

    def on_unloaded(self, group: Group) -> None:
        """A group is coordinated elsewhere from now on: whoever waits is told."""
        self.carry_out(group, sessions.unload(group, self.now()))

    def carry_out(self, group: Group, decision: Decision) -> None:
        """Does what a decision asks for; see the duties on top."""
        self._depth += 1
        try:
            if decision.timers:
                now_ms = self._clock.monotonic_ms()
                for key, due_ms in decision.timers:
                    timer = _GroupTimer(self, group, key, max(due_ms - now_ms, 0))
                    if key[0] is TimerKind.PENDING:
                        self._pending[group.group_id, key[1]] = timer
                    self._timer.add(timer)
                self._clock.watch()
            if decision.write is not None:
                self._append_write(group, decision.write)
            self._answers.extend(decision.replies)
        finally:
            self._depth -= 1
        if self._depth:
            return
        # Answers may make further decisions: those only add to the queue.
        self._depth += 1
        try:
            while self._answers:
                answer, reply = self._answers.popleft()
                try:
                    answer(reply)
                except Exception:  # noqa: BLE001 - the border between requests
                    # Others wait for theirs, and would until somebody makes the next decision.
                    _log.exception("group %s: an answer failed", group.group_id)
        finally:
            self._depth -= 1

    def _append_write(self, group: Group, write: GroupWrite) -> None:
        def on_appended(error: ErrorCode, _base_offset: int) -> None:
            if error is not _NONE:
                _log.warning("group %s: its state was not written: %s", group.group_id, error.name)
            self._metrics.note_write(write.kind, error)
            self.carry_out(group, writes.complete_write(group, write, error, self.now()))

        self.append_records(group.partition, write.records, on_appended)

    def append_records(
        self,
        partition: int,
        records: Sequence[Record],
        respond: Callable[[ErrorCode, int], None],
    ) -> None:
        """Appends records in as few batches as can be; answers when all are committed.

        All are given to the log before anything else can be: whoever compares offsets with that of
        the last batch, which `respond` gets, need not know that there are several. What was
        appended stays if another one fails; `respond` gets the first error.
        """
        batches = list(build_batches(records, self._clock.now_ms(), self._config.compression_codec))
        if not batches:
            respond(_NONE, -1)
            return
        left = len(batches)
        first_error = _NONE
        last_offset = -1

        def on_appended(error: ErrorCode, base_offset: int) -> None:
            nonlocal left, first_error, last_offset
            left -= 1
            first_error = first_error or error
            last_offset = max(last_offset, base_offset)
            if not left:
                respond(first_error, last_offset)

        self.commit_lane.flush()
        for batch in batches:
            self._writer.append(partition, batch, on_appended)
