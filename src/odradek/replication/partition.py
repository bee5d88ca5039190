"""A replica that this broker hosts: its role, its log, and what its role allows.

Roles follow the leader epoch, which never falls::

    (made) ─┬─ make_leader(epoch) ───► leader ─┐
            └─ make_follower(epoch) ─► follower ◄┘   each with a higher epoch
    apply_update: the same epoch and leader, a later version: ISR and replicas, no new role

Rules:

1. Only a leader appends client batches, moves the high watermark by itself, and changes the ISR.
2. At most one ISR change is in flight. It is proposed by a plain `def` (`propose_…`), sent by
   `isr_updates`, and settled by `settle_isr_change`. A newer state from the controller ends it; an
   answer after that is dropped. A change that met another version stays in flight until that state
   comes: it may be stored and overwritten, and what it added is in the real ISR. Refused ones end.
3. The high watermark waits for the maximal ISR (`isr`), and never falls within an epoch.

Everything here is synchronous. The return values say whether a parked produce or fetch may be
answerable now; the caller checks its purgatories after it has queued its own answer.
"""

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from odradek.clock import Clock
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import PartitionState
from odradek.model import AppendOrigin, LeaderAndIsr, TopicPartition
from odradek.records.batch import Buffer
from odradek.replication.fetch_values import FetchResult
from odradek.replication.follower_news import FollowerWatch
from odradek.replication.isr import (
    NEVER_MS,
    FollowerState,
    IsrChange,
    can_join_isr,
    high_watermark_candidate,
    out_of_sync_replicas,
)
from odradek.replication.stats import TopicStats
from odradek.storage.log.append_analysis import LogAppendInfo
from odradek.storage.log.leader_epochs import UNDEFINED_END_OFFSET
from odradek.storage.log.log import Log
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.reader import FetchIsolation

__all__ = ["ISR_RETRY_MS", "Partition"]

logger = logging.getLogger(__name__)

_NONE = ErrorCode.NONE
# Between a refused proposal and the next one: a follower that shuts down fetches on meanwhile.
ISR_RETRY_MS: Final = 1_000


class Partition:
    """One hosted replica.

    Args:
        tp: Which partition.
        local_id: This broker.
        clock: For lag.
        max_lag_ms: replica.lag.time.max.ms.
        stats: Meters of its topic.
        is_broker_alive: Whether metadata shows a broker alive and not shutting down.
    """

    __slots__ = (
        "_clock",
        "_followers",
        "_is_broker_alive",
        "_max_lag_ms",
        "_proposes_from_ms",
        "adding_replicas",
        "began_in_sync",
        "controller_epoch",
        "epoch_start_offset",
        "future_log",
        "is_leader",
        "is_suspended",
        "isr",
        "isr_change",
        "leader_epoch",
        "leader_id",
        "local_id",
        "log",
        "min_insync_replicas",
        "partition_version",
        "removing_replicas",
        "replicas",
        "stats",
        "topic_id",
        "tp",
        "watches",
    )

    def __init__(
        self,
        tp: TopicPartition,
        *,
        local_id: int,
        clock: Clock,
        max_lag_ms: int,
        stats: TopicStats,
        is_broker_alive: Callable[[int], bool] = lambda _broker_id: True,
    ) -> None:
        self.tp = tp
        self.stats = stats
        self.topic_id: uuid.UUID | None = None
        self.log: Log | None = None  # None until a role was given.
        # The copy that is to replace the log, while a move to another directory runs.
        self.future_log: Log | None = None
        self.is_leader = False  # Invariant: `log` is not None if it is True.
        # Whether this broker may have been replaced as leader without knowing it.
        self.is_suspended = False
        self.controller_epoch = -1  # Of the controller that gave the role.
        self.leader_id: int | None = None
        self.leader_epoch = -1  # Invariant: never falls.
        self.epoch_start_offset = 0  # Log end when this leader's epoch began.
        self.partition_version = -1  # For the next ISR change.
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()  # Committed; empty on a follower.
        self.isr_change: IsrChange | None = None  # In flight.
        self.min_insync_replicas = 1
        self.local_id = local_id
        self._clock = clock
        self._max_lag_ms = max_lag_ms
        self._is_broker_alive = is_broker_alive
        self._followers: dict[int, FollowerState] = {}
        # No follower is proposed before this time, since the last proposal was refused.
        self._proposes_from_ms = NEVER_MS
        # Of followers' fetch sessions: told of every change. Replaced, never edited.
        self.watches: tuple[FollowerWatch, ...] = ()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"Partition({self.tp}, {role}, epoch {self.leader_epoch}, isr {self.isr})"

    @property
    def followers(self) -> Mapping[int, FollowerState]:
        """The leader's view of the other replicas; empty on a follower."""
        return self._followers

    @property
    def has_followers(self) -> bool:
        """Whether this replica leads and a record is committed only when followers have it."""
        return bool(self._followers)

    @property
    def high_watermark(self) -> int:
        """The log's high watermark; -1 while there is no log."""
        return -1 if self.log is None else self.log.high_watermark

    @property
    def is_under_replicated(self) -> bool:
        # Replicas that are being added are not missing yet.
        return self.is_leader and len(self.isr) < len(self.replicas) - len(self.adding_replicas)

    @property
    def is_under_min_isr(self) -> bool:
        return self.is_leader and len(self.isr) < self.min_insync_replicas

    @property
    def is_at_min_isr(self) -> bool:
        return self.is_leader and len(self.isr) == self.min_insync_replicas

    @property
    def is_being_reassigned(self) -> bool:
        return self.is_leader and bool(self.adding_replicas or self.removing_replicas)

    @property
    def is_being_added_here(self) -> bool:
        """Whether a reassignment adds this very replica."""
        return self.local_id in self.adding_replicas

    # Roles

    def make_leader(self, state: PartitionState, log: Log) -> None:
        """Becomes leader in `state.leader_epoch`; the caller has compared the epochs.

        Raises:
            StorageError: The epoch could not be written; nothing has changed.
        """
        try:
            log.leader_epochs.assign(state.leader_epoch, log.log_end_offset)
        except OSError as error:
            raise log.fail("record a leader epoch", error) from error
        is_new = not self.is_leader
        self._take_state(state, log)
        self.leader_id = self.local_id
        self.is_leader = True
        self.isr = state.isr
        self.epoch_start_offset = log.log_end_offset
        now_ms = self._clock.monotonic_ms()
        self._update_followers(now_ms)
        for follower in self._followers.values():
            follower.reset(
                now_ms=now_ms, is_in_isr=follower.broker_id in self.isr, is_new_leader=is_new
            )

    def make_follower(self, state: PartitionState, log: Log) -> None:
        """Follows `state.leader`; the caller has compared the epochs."""
        self._take_state(state, log)
        self.leader_id = state.leader
        self.is_leader = False
        self.isr = ()
        self._followers = {}

    def apply_update(self, state: PartitionState) -> None:
        """Applies a later version of the same role: no epoch begins, no follower is reset."""
        assert state.leader_epoch == self.leader_epoch
        assert state.leader == self.leader_id
        assert self.log is not None
        self._take_state(state, self.log)
        if self.is_leader:
            self.isr = state.isr
            self._update_followers(self._clock.monotonic_ms())

    def suspend(self) -> None:
        """Stops acknowledging and proposing until the controller sends this role again (K-18).

        This broker's session is over: another replica may lead by now, and may have been chosen
        from an ISR that this leader does not know. Without other replicas there is none.
        """
        self.is_suspended = self.is_leader and bool(self._followers)

    def _take_state(self, state: PartitionState, log: Log) -> None:
        assert state.leader_epoch >= self.leader_epoch
        self.is_suspended = False
        self.log = log
        self.controller_epoch = state.controller_epoch
        self.leader_epoch = state.leader_epoch
        self.partition_version = state.partition_version
        self.replicas = state.replicas
        self.adding_replicas = state.adding_replicas
        self.removing_replicas = state.removing_replicas
        self.began_in_sync = self.local_id in state.isr  # As the controller gave the role.
        self.isr_change = None
        self.tell_watches()

    def tell_watches(self) -> None:
        """Tells the sessions of followers that something here changed."""
        for watch in self.watches:
            watch.note()

    def _update_followers(self, now_ms: int) -> None:
        """Keeps the state of known replicas and adds a fresh one for each new replica."""
        followers: dict[int, FollowerState] = {}
        for broker_id in self.replicas:
            if broker_id == self.local_id:
                continue
            follower = self._followers.get(broker_id)
            if follower is None:
                follower = FollowerState(broker_id)
                follower.reset(now_ms=now_ms, is_in_isr=broker_id in self.isr, is_new_leader=True)
            followers[broker_id] = follower
        self._followers = followers

    # Access

    def leader_log(self) -> Log:
        """The log, if this broker leads.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER.
        """
        log = self.log
        if not self.is_leader or log is None:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.tp}: broker {self.local_id} is not the leader, {self.leader_id} is",
            )
        return log

    def log_for(self, current_leader_epoch: int, *, only_leader: bool) -> Log:
        """The log, if the request's epoch is that of this role.

        Args:
            current_leader_epoch: The epoch in the request; -1 without one.
            only_leader: Whether a follower must refuse.

        Raises:
            ApiError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER.
        """
        if current_leader_epoch >= 0:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self.tp}: epoch {current_leader_epoch} is over, this is {self.leader_epoch}",
                )
            if current_leader_epoch > self.leader_epoch:
                raise ApiError(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"{self.tp}: epoch {current_leader_epoch} is not known here, this is"
                    f" {self.leader_epoch}",
                )
        if only_leader:
            return self.leader_log()
        if self.log is None or self.log.is_truncating:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp}: no log here to read now")
        return self.log

    # Writing and reading

    def append_as_leader(
        self,
        records: Buffer,
        origin: AppendOrigin,
        required_acks: int,
    ) -> LogAppendInfo:
        """Appends a client's or coordinator's batches; the high watermark may move with it.

        Raises:
            ApiError: Not the leader, too few in-sync replicas, or the batches are refused.
            StorageError: The disk failed.
        """
        log = self.log if self.is_leader else None
        if log is None:
            log = self.leader_log()
        if required_acks == -1 and (self.is_suspended or len(self.isr) < self.min_insync_replicas):
            if self.is_suspended:
                raise ApiError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"{self.tp}: broker {self.local_id} has lost its session, and waits for the"
                    " controller to confirm that it leads",
                )
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.tp}: {len(self.isr)} in-sync replicas, min.insync.replicas wants"
                f" {self.min_insync_replicas}",
            )
        if not self._followers:
            return log.append_unreplicated(records, self.leader_epoch, origin)
        info = log.append_as_leader(records, leader_epoch=self.leader_epoch, origin=origin)
        self.tell_watches()
        self.maybe_increment_high_watermark()
        return info

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        isolation: FetchIsolation,
        *,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        only_leader: bool,
        min_one_message: bool,
        allows_part_of_batch: bool,
    ) -> FetchResult:
        """Reads from the local log.

        Args:
            allows_part_of_batch: Whether the reader accepts the beginning of a batch that exceeds
                its limit. A reader that is guaranteed a whole batch has no use for a part.

        Raises:
            ApiError: By the epoch, the role, or the offset.
            StorageError: The disk failed.
        """
        log = self.log_for(current_leader_epoch, only_leader=only_leader)
        watermarks = log.watermarks
        result = FetchResult(
            _NONE,
            watermarks.high_watermark.message_offset,
            watermarks.last_stable_offset,
            watermarks.log_start_offset,
        )
        if last_fetched_epoch >= 0:
            diverging = self._find_divergence(log, fetch_offset, last_fetched_epoch)
            if diverging is not None:
                result.offset_metadata = LogOffsetMetadata(fetch_offset)
                result.diverging_epoch = diverging
                return result
        data = log.read(fetch_offset, max_bytes, isolation, min_one_message=min_one_message)
        result.offset_metadata = data.offset_metadata
        records = data.records
        if (
            records is not None
            and records.length
            and (allows_part_of_batch or not data.first_entry_incomplete)
        ):
            result.records = records
        aborted = data.aborted_transactions
        if aborted is not None:
            result.aborted_transactions = [(one.producer_id, one.first_offset) for one in aborted]
        return result

    def _find_divergence(
        self, log: Log, fetch_offset: int, last_fetched_epoch: int
    ) -> tuple[int, int] | None:
        """Where the log of a reader whose last record is of `last_fetched_epoch` diverges."""
        end = log.leader_epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
        if end == UNDEFINED_END_OFFSET or fetch_offset < log.log_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.tp}: offset {fetch_offset} after epoch {last_fetched_epoch} cannot be"
                f" compared with this log, which starts at {log.log_start_offset}",
            )
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None

    def has_enough_replicas(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Whether records below `required_offset` are committed, and the error to answer."""
        if not self.is_leader or self.log is None:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset or self.is_suspended:
            return False, ErrorCode.NONE
        if self.min_insync_replicas <= len(self.isr):
            return True, ErrorCode.NONE
        return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def delete_records(self, offset: int) -> tuple[int, int]:
        """Hides records below `offset` (-1: the high watermark).

        Returns:
            The offset asked for, and the lowest log start of all live replicas.

        Raises:
            ApiError: Not the leader, the topic keeps its records, or the offset is out of range.
        """
        log = self.leader_log()
        if not log.config.cleanup_delete:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.tp}: records can be deleted only with cleanup.policy=delete",
            )
        if offset < -1:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp}: offset {offset} is negative")
        requested = log.high_watermark if offset == -1 else offset
        log.maybe_increment_log_start_offset(requested)
        self.tell_watches()
        return requested, self.low_watermark

    @property
    def low_watermark(self) -> int:
        """Smallest log start over this log, its future one and live followers; -1: not known."""
        low_watermark = self.leader_log().log_start_offset
        future = self.future_log
        if future is not None and future.is_usable:
            low_watermark = min(low_watermark, future.log_start_offset)
        for follower in self._followers.values():
            if follower.log_start_offset < low_watermark and self._is_broker_alive(
                follower.broker_id
            ):
                low_watermark = follower.log_start_offset
        return low_watermark

    # High watermark and ISR

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The members, and the brokers that a change in flight would add."""
        if self.isr_change is None:
            return frozenset(self.isr)
        return frozenset(self.isr) | frozenset(self.isr_change.isr)

    def maybe_increment_high_watermark(self) -> bool:
        """Moves the high watermark to the offset all members have; returns whether it moved."""
        log = self.log
        assert log is not None
        if not self._followers:
            return log.maybe_increment_high_watermark(log.log_end_offset_metadata) is not None
        candidate = high_watermark_candidate(
            log.log_end_offset,
            self._followers.values(),
            self.maximal_isr,
            now_ms=self._clock.monotonic_ms(),
            max_lag_ms=self._max_lag_ms,
        )
        if candidate <= log.high_watermark:
            return False
        metadata = (
            log.log_end_offset_metadata
            if candidate == log.log_end_offset
            else LogOffsetMetadata(candidate)
        )
        if log.maybe_increment_high_watermark(metadata) is None:
            return False
        for watch in self.watches:
            watch.note_high_watermark()
        return True

    def apply_follower_fetch(
        self,
        broker_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_epoch: int,
        broker_epoch: int = -1,
    ) -> bool:
        """Takes note of a follower's fetch; returns whether a watermark moved.

        A fetch that does not carry this epoch proves nothing about this log, nor does one of an
        earlier life of the follower's broker.
        """
        follower = self._followers.get(broker_id)
        if follower is None or leader_epoch != self.leader_epoch or not self.is_leader:
            return False
        if follower.is_of_earlier_life(broker_epoch):
            return False
        log = self.leader_log()
        now_ms = self._clock.monotonic_ms()
        low_before = self.low_watermark
        follower.meet(broker_epoch, now_ms=now_ms, is_in_isr=broker_id in self.isr)
        follower.apply_fetch(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_end=log.log_end_offset,
            now_ms=now_ms,
        )
        moved = self.maybe_increment_high_watermark()
        return moved or self.low_watermark > low_before

    def is_high_watermark_news_to(self, broker_id: int) -> bool:
        """Whether a follower was last told a lower high watermark."""
        follower = self._followers.get(broker_id)
        log = self.log
        return (
            follower is not None
            and log is not None
            and follower.told_high_watermark < log.high_watermark
        )

    def propose_isr_expansion(self, broker_id: int) -> IsrChange | None:
        """Proposes to add a follower, if it has caught up and no change is in flight."""
        follower = self._followers.get(broker_id)
        if follower is None or self.isr_change is not None or broker_id in self.isr:
            return None
        if self.is_suspended:
            return None
        if not can_join_isr(
            follower,
            high_watermark=self.leader_log().high_watermark,
            leader_epoch_start=self.epoch_start_offset,
        ) or not self._is_broker_alive(broker_id):
            return None
        if self._clock.monotonic_ms() < self._proposes_from_ms:
            return None
        return self._propose((*self.isr, broker_id))

    def propose_isr_shrink(self) -> IsrChange | None:
        """Proposes to drop members that stopped keeping up, if no change is in flight."""
        if not self.is_leader or self.isr_change is not None or self.is_suspended:
            return None
        if len(self.isr) == 1:
            return None  # The leader alone: it is never dropped.
        behind = out_of_sync_replicas(
            self.isr,
            self._followers,
            leader_id=self.local_id,
            leader_end=self.leader_log().log_end_offset,
            now_ms=self._clock.monotonic_ms(),
            max_lag_ms=self._max_lag_ms,
        )
        if not behind:
            return None
        return self._propose(tuple(member for member in self.isr if member not in behind))

    def _propose(self, isr: tuple[int, ...]) -> IsrChange:
        logger.info("%s: proposing ISR %s instead of %s", self.tp, isr, self.isr)
        epochs = {
            one.broker_id: one.broker_epoch
            for one in self._followers.values()
            if one.broker_id in isr and one.broker_epoch >= 0
        }
        state = LeaderAndIsr(
            leader=self.local_id,
            leader_epoch=self.leader_epoch,
            isr=isr,
            partition_version=self.partition_version,
        )
        names_added = set(isr) <= {*self.isr, *epochs}
        change = IsrChange(state, self.controller_epoch, epochs, names_added)
        self.isr_change = change
        return change

    def settle_isr_change(self, change: IsrChange, partition_version: int) -> bool:
        """Applies a change stored under a new version; returns whether the high watermark moved.

        The caller has checked that it is the change in flight.
        """
        assert self.isr_change is change
        self.isr_change = None
        self.isr = change.isr
        self.partition_version = partition_version
        return self.maybe_increment_high_watermark()

    def drop_isr_change(self, change: IsrChange) -> bool:
        """Drops a change that was refused; returns whether the high watermark moved."""
        assert self.isr_change is change
        self.isr_change = None
        self._proposes_from_ms = self._clock.monotonic_ms() + ISR_RETRY_MS
        return self.maybe_increment_high_watermark()
