"""The group coordinator of one broker: serves requests, makes state durable, then answers.

Handlers and the broker call `GroupCoordinator` and no other part of this package. Its duties
towards the pure functions, in order, for every decision:

1. arm its timers;
2. append its write, if it has one, and carry out the decision that `complete_write` returns for the
   outcome;
3. send its answers after that, once nothing else of this coordinator is on the stack: an answer may
   start its client's next request at once.

Commits and heartbeats, which are most of the requests, have a shorter path without a decision. With
this broker alone in sync a commit is answered before its function returns, or together with the
others of the same wake-up (`commit_batching`).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final

from odradek.clock import PreciseClock
from odradek.coordinator.answers import AnswerQueue
from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group import admin, membership, sessions, syncing, writes
from odradek.coordinator.group.commit_batching import (
    CommitAnswer,
    CommitBatcher,
    Rejected,
    WakeUps,
)
from odradek.coordinator.group.decisions import (
    Decision,
    GroupWrite,
    JoinReply,
    JoinRequest,
    Now,
    SyncReply,
    SyncRequest,
    TimerKey,
    TimerKind,
)
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.metrics import GroupMetrics, register_gauges
from odradek.coordinator.group.offsets import (
    CommitWrite,
    GroupOffsets,
    apply_commit,
    build_commit,
    complete_transaction,
    fail_commit,
)
from odradek.coordinator.group.partition_load import OFFSETS_TOPIC, OffsetsTopic, PartitionLoad
from odradek.coordinator.group.records import fits_string
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.group.replay import GroupReplay
from odradek.coordinator.group.transactional_commits import (
    TransactionalCommit,
    TransactionGate,
    build_staged_commit,
    check_transactional_commit,
    stage_commit,
)
from odradek.coordinator.group.upkeep import GroupUpkeep
from odradek.coordinator.loading import LoadPhase, StateLoader
from odradek.coordinator.stall_clock import StallClock
from odradek.coordinator.timers import Alarm, Deadlines
from odradek.coordinator.writing import Asked, StateWriter, append_error
from odradek.errors import ErrorCode
from odradek.metadata.delta import LocalDelta
from odradek.metrics import MetricRegistry
from odradek.protocol.hot.offset_commit import OffsetCommitView
from odradek.purgatory.timer import Timer
from odradek.tasks import Tasks

__all__ = [
    "MAX_PENDING_MEMBERS",
    "OFFSETS_TOPIC",
    "CommitAnswer",
    "GroupCoordinator",
    "Rejected",
]

_NONE: Final = ErrorCode.NONE
_FIRST_GROUP_ID_NOT_FOUND_VERSION: Final = 9  # Of OffsetCommit.

# Member ids of all groups that were handed out and not used yet; beyond it the oldest is dropped.
# Far more clients than begin to join within a second, and some ten megabytes at most.
MAX_PENDING_MEMBERS: Final = 10_000


class GroupCoordinator:
    """Members, generations and offsets of the groups that this broker coordinates.

    Args:
        config: Limits and times.
        topic: The offsets topic.
        partition_count: The number of its partitions, also before it is created.
        has_topic: Whether a topic exists, as far as this broker knows.
        high_watermark: Of a partition (topic, number) that this broker leads; None of others.
        clock: The machine's clock.
        deadlines: The clock of members' deadlines.
        timer: Calls back at deadlines, by the same clock.
        tasks: Runs loads and removals.
        new_id: Makes the unique part of member ids.
        metrics: Where to count.
        wake_ups: Groups commits that arrive together; None: every commit is a batch.
    """

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        topic: OffsetsTopic,
        *,
        partition_count: Callable[[], int],
        has_topic: Callable[[str], bool],
        high_watermark: Callable[[str, int], int | None],
        clock: PreciseClock,
        deadlines: StallClock,
        timer: Timer,
        tasks: Tasks,
        new_id: Callable[[], str],
        metrics: MetricRegistry,
        wake_ups: WakeUps | None = None,
    ) -> None:
        self._config = config
        self._max_metadata_size = config.max_metadata_size
        # Whether a commit may take the short path: not compressed, and answered when committed.
        self._is_plain = not config.compression_codec and config.commit_required_acks == -1
        self._topic = topic
        self._clock = deadlines
        self._wall_ms = clock.now_ms
        self._new_id = new_id
        self._metrics = GroupMetrics(metrics)
        self._loader = StateLoader(
            OFFSETS_TOPIC,
            topic,
            begin=self._begin_load,
            clock=clock,
            tasks=tasks,
            read_bytes=config.load_buffer_bytes,
            stats=self._metrics,
        )
        self._registry = GroupRegistry(
            config, self._loader, partition_count=partition_count, now_ms=clock.now_ms
        )
        self._groups = self._registry.groups
        self._offsets = self._registry.offsets
        register_gauges(metrics, self._registry, high_watermark)
        self._batcher = CommitBatcher(topic, self._complete_commit, wake_ups)
        self._writer = StateWriter(
            topic,
            now_ms=clock.now_ms,
            codec=config.compression_codec,
            before_append=self._batcher.flush,
        )
        self._upkeep = GroupUpkeep(
            self._registry,
            self._writer,
            has_topic=has_topic,
            clock=clock,
            tasks=tasks,
            metrics=self._metrics,
        )
        self._sweeps = self._upkeep.sweeps
        # Confirms transactions with their coordinators; None: they need no confirmation.
        self.transaction_gate: TransactionGate | None = None
        self._answers = AnswerQueue()
        self._deadlines = Deadlines(deadlines, timer)
        # Ends of transactions, (producer id, is commit), by the partition that is being loaded;
        # with its leader epoch.
        self._ended: dict[int, tuple[int, list[tuple[int, bool]]]] = {}
        # Groups and alarms of ids that were handed out, oldest first, by (group id, member id).
        # Invariant: at most MAX_PENDING_MEMBERS; an alarm that leaves it is cancelled.
        self._pending: dict[tuple[str, str], tuple[Group, Alarm]] = {}

    # Leadership

    def follow_leadership(self, delta: LocalDelta, broker_id: int) -> None:
        """Loads the groups of partitions that this broker now leads, and unloads the others."""
        self._loader.follow_leadership(delta, broker_id)

    def stop(self) -> None:
        """Stops serving: the answer to later requests makes clients look for the coordinator."""
        self._loader.stop()
        self._registry.clear()
        self._deadlines.stop()

    # Members

    def join(self, request: JoinRequest, answer: Callable[[JoinReply], None]) -> None:
        """Serves JoinGroup; answers when the generation is complete."""
        error = membership.check_join(self._config, request)
        if error in (_NONE, ErrorCode.INVALID_SESSION_TIMEOUT):
            error = self._registry.check(request.group_id) or error
        if error is not _NONE:
            answer(membership.refuse(request.member_id, error))
            return
        if request.member_id == "":
            group = self._registry.get_or_create(request.group_id)
        else:
            found = self._groups.get(request.group_id)
            if found is None:
                answer(membership.refuse(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
                return
            group = found
        self._carry_out(group, membership.join(group, request, answer, self._now(), self._new_id))
        self._forget_pending(group, request.member_id)
        self._drop_oldest_pending()
        self._registry.drop_if_disposable(group)

    def sync(
        self, group_id: str, request: SyncRequest, answer: Callable[[SyncReply], None]
    ) -> None:
        """Serves SyncGroup; answers when the leader has assigned."""
        group = self._groups.get(group_id)
        if group is None:
            error = self._check_members_group(group_id)
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # The rebalance is lost with the old coordinator: the client joins again here.
                error = ErrorCode.REBALANCE_IN_PROGRESS
            answer(SyncReply(error or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self._carry_out(group, syncing.sync(group, request, answer, self._now()))

    def heartbeat(
        self, group_id: str, generation_id: int, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        """Serves Heartbeat."""
        group = self._groups.get(group_id)
        if group is not None:
            return sessions.heartbeat(
                group, member_id, generation_id, instance_id, self._clock.monotonic_ms()
            )
        error = self._check_members_group(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return _NONE  # The sender may be a member: that is known when the group is loaded.
        return error or ErrorCode.UNKNOWN_MEMBER_ID

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Serves LeaveGroup: the error of the request, or the errors of the members."""
        group = self._groups.get(group_id)
        if group is None:
            error = self._check_members_group(group_id)
            if error is not _NONE:
                return error, []
            return _NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)
        if group.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        errors, decision = membership.leave(group, members, self._now())
        self._carry_out(group, decision)
        for member_id, _ in members:
            self._forget_pending(group, member_id)
        if decision.write is None:
            self._registry.drop_if_disposable(group)
        return _NONE, errors

    def _forget_pending(self, group: Group, member_id: str) -> None:
        """Cancels the alarm of a handed-out id, unless the id is still unused."""
        key = (group.group_id, member_id)
        if key in self._pending and member_id not in group.pending_members:
            self._pending.pop(key)[1].cancel()

    def _drop_oldest_pending(self) -> None:
        while len(self._pending) > MAX_PENDING_MEMBERS:
            key = next(iter(self._pending))
            group, alarm = self._pending.pop(key)
            alarm.cancel()
            if self._registry.is_current(group):
                self._carry_out(group, sessions.drop_pending(group, key[1], self._now()))
                self._registry.drop_if_disposable(group)

    def _check_members_group(self, group_id: str) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        return self._registry.check(group_id)

    # Offsets

    def commit(
        self, view: OffsetCommitView, version: int, answer: CommitAnswer
    ) -> tuple[ErrorCode, Rejected] | None:
        """Serves OffsetCommit; answers when the offsets are on every replica in sync.

        Returns the arguments of `answer` if they are known at once, or None if it is called later.
        """
        group = self._groups.get(view.group_id)
        if group is None:
            error, group = self._find_for_commit(view, version)
            if group is None:
                return error, None
        clock = self._clock
        error = sessions.check_commit(
            group, view.member_id, view.generation_id, view.group_instance_id, clock.monotonic_ms()
        )
        if error is not _NONE:
            self._registry.drop_if_disposable(group)
            return error, None
        if self._sweeps:
            self._upkeep.forget_before_commit(group, [topic for topic, _ in view.topics])
            if group.is_dead:  # These were its last offsets, and it has no members.
                group = self._registry.get_or_create(view.group_id)
        batcher = self._batcher
        wall_ms = batcher.wall_ms or clock.now_ms()
        retention_ms = view.retention_time_ms
        write = build_commit(
            self._offsets.of(view.group_id),
            view.topics,
            wall_ms,
            self._max_metadata_size,
            expire_ms=-1 if retention_ms < 0 else wall_ms + retention_ms,
        )
        if write is None:
            self._registry.drop_if_disposable(group)
            return ErrorCode.OFFSET_METADATA_TOO_LARGE, None
        if self._is_plain:
            if batcher.try_add(group, write, wall_ms, answer):
                return None
            batcher.flush()
            outcome = self._topic.try_append(group.partition, group.leader_epoch, write.batch)
            if outcome is not None:
                return self._complete_commit(group, write, *outcome), write.rejected
        self._commit_later(group, write, answer)
        return None

    def _commit_later(self, group: Group, write: CommitWrite, answer: CommitAnswer) -> None:
        def on_committed(error: ErrorCode, base_offset: int) -> None:
            answer(self._complete_commit(group, write, error, base_offset), write.rejected)

        if self._config.compression_codec:
            self._writer.write(group.partition, group.leader_epoch, write.records(), on_committed)
        else:
            self._topic.append(group.partition, group.leader_epoch, write.batch, on_committed)

    def _complete_commit(
        self, group: Group, write: CommitWrite, error: ErrorCode, base_offset: int
    ) -> ErrorCode:
        if error is _NONE:
            self._metrics.commits.count += len(write.values)
            apply_commit(write, base_offset)
            return _NONE
        fail_commit(write)
        self._registry.drop_if_disposable(group)
        return append_error(error, Asked.OFFSETS)

    def _find_for_commit(
        self, view: OffsetCommitView, version: int
    ) -> tuple[ErrorCode, Group | None]:
        if not fits_string(view.group_id):
            return ErrorCode.INVALID_GROUP_ID, None
        error = self._registry.check(view.group_id)
        if error is not _NONE:
            return error, None
        if view.generation_id < 0:
            return _NONE, self._registry.get_or_create(view.group_id)
        if version >= _FIRST_GROUP_ID_NOT_FOUND_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND, None
        return ErrorCode.ILLEGAL_GENERATION, None

    def commit_in_transaction(self, commit: TransactionalCommit, answer: CommitAnswer) -> None:
        """Serves TxnOffsetCommit; answers when the offsets are on every replica in sync.

        They count once the transaction has ended (`end_transaction`).
        """
        error, group = self._find_for_transaction(commit)
        if group is None:
            answer(error, None)
            return
        if self.transaction_gate is None:
            self._stage(commit, answer)
            return

        def on_confirmed(error: ErrorCode) -> None:
            if error is _NONE:
                self._stage(commit, answer)  # The group may be another one meanwhile.
            else:
                answer(error, None)

        self._registry.drop_if_disposable(group)
        self.transaction_gate.confirm(group.partition, commit, on_confirmed)

    def _stage(self, commit: TransactionalCommit, answer: CommitAnswer) -> None:
        error, group = self._find_for_transaction(commit)
        if group is None:
            answer(error, None)
            return
        if self._sweeps:
            self._upkeep.forget_before_commit(group, [topic for topic, _ in commit.topics])
            if group.is_dead:
                group = self._registry.get_or_create(commit.group_id)
        offsets = self._offsets.of(commit.group_id)
        write = build_staged_commit(
            commit,
            self._clock.now_ms(),
            self._max_metadata_size,
            self._config.compression_codec,
        )
        if write is None:
            self._registry.drop_if_disposable(group)
            answer(ErrorCode.OFFSET_METADATA_TOO_LARGE, None)
            return

        def on_appended(base_offset: int) -> None:
            stage_commit(offsets, commit.producer_id, write, base_offset)
            self._registry.note_transaction(group.partition, commit.producer_id, commit.group_id)

        def on_committed(error: ErrorCode, _base_offset: int) -> None:
            self._registry.drop_if_disposable(group)
            answer(append_error(error, Asked.OFFSETS), write.rejected)

        self._batcher.flush()
        self._topic.append(
            group.partition, group.leader_epoch, write.batch, on_committed, on_appended
        )

    def _find_for_transaction(self, commit: TransactionalCommit) -> tuple[ErrorCode, Group | None]:
        if not commit.group_id or not fits_string(commit.group_id):
            return ErrorCode.INVALID_GROUP_ID, None
        error = self._registry.check(commit.group_id)
        if error is not _NONE:
            return error, None
        group = self._groups.get(commit.group_id)
        if group is None:
            if commit.generation_id >= 0:
                return ErrorCode.ILLEGAL_GENERATION, None
            if commit.member_id or commit.group_instance_id is not None:
                return ErrorCode.UNKNOWN_MEMBER_ID, None
            group = self._registry.get_or_create(commit.group_id)
        error = check_transactional_commit(group, commit, self._clock.monotonic_ms())
        if error is not _NONE:
            self._registry.drop_if_disposable(group)
            return error, None
        return _NONE, group

    def end_transaction(self, partition: int, producer_id: int, *, is_commit: bool) -> None:
        """Stores or drops the offsets that a producer has staged in an offsets partition.

        The marker of the transaction is on every replica in sync. While the partition is loaded its
        end waits: the load may have read the offsets, and not the marker.
        """
        phase = self._loader.phase(partition)
        if phase is LoadPhase.ACTIVE:
            self._end_transaction(partition, producer_id, is_commit=is_commit)
        elif phase is not None:
            epoch = self._loader.leader_epoch(partition)
            known, ended = self._ended.get(partition, (epoch, []))
            if known != epoch:
                ended = []
            ended.append((producer_id, is_commit))
            self._ended[partition] = (epoch, ended)

    def _end_transaction(self, partition: int, producer_id: int, *, is_commit: bool) -> None:
        for group in self._registry.take_transaction(partition, producer_id):
            offsets = self._offsets.of(group.group_id)
            count = complete_transaction(offsets, producer_id, is_commit=is_commit)
            if is_commit:
                self._metrics.commits.count += count
            self._registry.drop_if_disposable(group)

    def find_offsets(self, group_id: str) -> tuple[ErrorCode, GroupOffsets | None]:
        """The offsets of a group for an OffsetFetch, None without any; or an error."""
        self._batcher.flush()
        group = self._groups.get(group_id)
        if group is not None:
            return _NONE, None if group.is_dead else self._offsets.of(group_id)
        error = self._registry.check(group_id)
        # Java consumers before 3.9 give up at COORDINATOR_NOT_AVAILABLE.
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = ErrorCode.NOT_COORDINATOR
        return error, None

    def is_serving(self, offsets: GroupOffsets) -> bool:
        """Whether offsets found earlier are still served here."""
        return self._offsets.is_current(offsets)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]],
        answer: Callable[[ErrorCode, dict[tuple[str, int], ErrorCode]], None],
    ) -> None:
        """Serves OffsetDelete: an error of the group, or one per partition."""
        self._upkeep.delete_offsets(group_id, partitions, answer)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Removes the offsets of deleted topics from all groups."""
        self._upkeep.forget_topics(topics)

    def expire(self) -> None:
        """Starts to remove expired offsets and groups, unless a round is still under way."""
        self._upkeep.start_round()

    # Groups

    def partition_of(self, group_id: str) -> int:
        """The partition of the offsets topic that stores a group."""
        return self._registry.partition_of(group_id)

    def check(self, group_id: str) -> ErrorCode:
        """NONE, or the error why a group of this name is not coordinated here now."""
        return self._registry.check(group_id)

    def check_all(self) -> ErrorCode:
        """NONE, or the error why not all groups of this broker are loaded."""
        return self._loader.check_all_active()

    def describe(self, group_id: str) -> admin.GroupSummary | None:
        """Describes a group that is coordinated here; None if there is no such group."""
        group = self._groups.get(group_id)
        return None if group is None else admin.describe(group)

    def find_groups(
        self, states: Sequence[str], types: Sequence[str]
    ) -> Iterator[admin.GroupOverview | None]:
        """Every group; None in place of those that the filters exclude.

        Tolerates changes while it iterates: only groups added meanwhile may be missing.
        """
        for group in self._registry:
            is_shown = admin.matches_filters(group, states, types)
            yield admin.overview(group) if is_shown else None

    def delete_group(self, group_id: str, answer: Callable[[ErrorCode], None]) -> None:
        """Serves DeleteGroups for one group."""
        self._upkeep.delete_group(group_id, answer)

    # Carrying out

    def _now(self) -> Now:
        """The present time on both clocks."""
        return Now(self._clock.monotonic_ms(), self._clock.now_ms())

    def _begin_load(self, partition: int, leader_epoch: int) -> PartitionLoad:
        if self._ended.get(partition, (leader_epoch,))[0] != leader_epoch:
            del self._ended[partition]
        return PartitionLoad(
            partition,
            leader_epoch,
            GroupReplay(self._config),
            self._registry,
            on_installed=self._on_installed,
            on_loaded=self._on_loaded,
            before_unload=self._batcher.flush,
            on_unloaded=self._on_unloaded,
            now_ms=self._wall_ms,
        )

    def _on_timer(self, group: Group, key: TimerKey) -> None:
        """Handles a deadline."""
        if key[0] is TimerKind.PENDING:
            self._pending.pop((group.group_id, key[1]), None)
        if self._registry.is_current(group):
            self._carry_out(group, sessions.on_timer(group, key, self._now()))
            self._registry.drop_if_disposable(group)

    def _on_installed(self, partition: int, leader_epoch: int) -> None:
        """Ends the transactions whose markers were committed while their partition was loaded."""
        epoch, ended = self._ended.pop(partition, (leader_epoch, []))
        if epoch == leader_epoch:
            for producer_id, is_commit in ended:
                self._end_transaction(partition, producer_id, is_commit=is_commit)

    def _on_loaded(self, group: Group) -> None:
        """Starts the sessions of a group that was loaded."""
        if self._registry.is_current(group):
            self._carry_out(group, sessions.on_loaded(group, self._now()))

    def _on_unloaded(self, group: Group) -> None:
        """Answers the waiting clients of a group that is coordinated elsewhere from now on."""
        self._carry_out(group, sessions.unload(group, self._now()))

    def _carry_out(self, group: Group, decision: Decision) -> None:
        """Carries out a decision; see the duties in the module's docstring."""
        with self._answers:
            for key, due_ms in decision.timers:
                alarm = self._deadlines.arm(due_ms, partial(self._on_timer, group, key))
                if key[0] is TimerKind.PENDING:
                    self._pending[group.group_id, key[1]] = (group, alarm)
            if decision.write is not None:
                self._append_write(group, decision.write)
            self._answers.put(decision.replies)

    def _append_write(self, group: Group, write: GroupWrite) -> None:
        def on_committed(error: ErrorCode, _base_offset: int) -> None:
            self._metrics.note_write(write.kind, error)
            self._carry_out(group, writes.complete_write(group, write, error, self._now()))

        self._writer.write(group.partition, group.leader_epoch, write.records, on_committed)
