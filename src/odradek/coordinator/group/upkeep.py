"""Removals of groups and offsets: by administrators, by age, and because a topic is gone.

An administrator's removal is answered when it is in the log, so that it holds after a change of
coordinator. Other removals are written without waiting: offsets that reappear after a crash are
removed again in the next round.

A topic's offsets are removed when it is deleted. That can be missed while no broker leads the
partition of the offsets topic; so each round looks for topics that do not exist. A topic has to be
missing in two successive rounds: a broker that has just started may not know all topics yet, and
commits that are removed by mistake are lost.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from odradek.clock import PreciseClock
from odradek.coordinator.group import admin
from odradek.coordinator.group.expiry import (
    Removal,
    apply_removal,
    expire,
    fail_removal,
    forget_topics,
)
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.metrics import GroupMetrics
from odradek.coordinator.group.offsets import GroupOffsets
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.writing import Asked, StateWriter, append_error
from odradek.errors import ErrorCode
from odradek.tasks import Tasks

__all__ = ["GroupUpkeep"]

logger = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_SLICE_NS: Final = 2_000_000  # How long a round runs before other tasks of the loop do.

TopicPartitionKey = tuple[str, int]


class _Sweep:
    """Deleted topics, and for each group those whose offsets it has removed already."""

    __slots__ = ("done", "topics")

    def __init__(self, topics: Collection[str]) -> None:
        self.topics = frozenset(topics)
        # By group id: a group that lost all its offsets may be created again meanwhile.
        self.done: dict[str, set[str]] = {}

    def take(self, group: Group, topics: Iterable[str]) -> set[str]:
        """The topics whose offsets the group has to remove; they count as removed from now on."""
        done = self.done.get(group.group_id, set())
        left = {topic for topic in topics if topic in self.topics} - done
        if left:
            self.done[group.group_id] = done | left
        return left


class GroupUpkeep:
    """Removes groups and offsets.

    Args:
        registry: The groups.
        writer: Appends tombstones.
        has_topic: Whether a topic exists, as far as this broker knows.
        clock: For slices of time, and the age of offsets.
        tasks: Runs the rounds.
        metrics: Counts removed offsets.
    """

    def __init__(
        self,
        registry: GroupRegistry,
        writer: StateWriter,
        *,
        has_topic: Callable[[str], bool],
        clock: PreciseClock,
        tasks: Tasks,
        metrics: GroupMetrics,
    ) -> None:
        self._registry = registry
        self._writer = writer
        self._has_topic = has_topic
        self._clock = clock
        self._tasks = tasks
        self._metrics = metrics
        # Topics with offsets that did not exist in the last round.
        self._missing: frozenset[str] = frozenset()
        # Deletions of topics that have not been applied to every group yet: while there are any, a
        # commit calls `forget_before_commit`.
        self.sweeps: list[_Sweep] = []
        self._is_running = False

    # Administrators

    def delete_group(self, group_id: str, answer: Callable[[ErrorCode], None]) -> None:
        """Serves DeleteGroups for one group."""
        group = self._registry.groups.get(group_id)
        if group is None or group.is_dead:
            answer(self._registry.check(group_id) or ErrorCode.GROUP_ID_NOT_FOUND)
            return
        offsets = self._registry.offsets.of(group_id)
        decided = admin.delete_group(group, offsets)
        if isinstance(decided, ErrorCode):
            answer(decided)
            return
        self._delete(group, offsets, decided, answer)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartitionKey],
        answer: Callable[[ErrorCode, dict[TopicPartitionKey, ErrorCode]], None],
    ) -> None:
        """Serves OffsetDelete: an error of the group, or one per partition."""
        group = self._registry.groups.get(group_id)
        if group is None or group.is_dead:
            answer(self._registry.check(group_id) or ErrorCode.GROUP_ID_NOT_FOUND, {})
            return
        offsets = self._registry.offsets.of(group_id)
        error, results, removal = admin.delete_offsets(group, offsets, partitions)
        if error is not _NONE:
            answer(error, {})
            return
        self._delete(group, offsets, removal, lambda error: answer(error, {} if error else results))

    def _delete(
        self,
        group: Group,
        offsets: GroupOffsets,
        removal: Removal,
        answer: Callable[[ErrorCode], None],
    ) -> None:
        """Writes an administrator's removal; answers when all of it is durable or has failed."""

        def on_written(part: Removal, error: ErrorCode, base_offset: int) -> None:
            if error is not _NONE:
                fail_removal(group, part)
                return
            apply_removal(group, offsets, part, base_offset)
            self._metrics.deletions.mark(part.offset_count)
            if group.is_dead:
                self._registry.drop(group)

        def on_end(error: ErrorCode) -> None:
            answer(append_error(error, Asked.OFFSETS))

        self._write(group, removal, on_written, on_end)

    def _write(
        self,
        group: Group,
        removal: Removal,
        on_written: Callable[[Removal, ErrorCode, int], None],
        on_end: Callable[[ErrorCode], None],
    ) -> None:
        """Appends a removal in as many batches as needed, one directly after the other.

        `on_written` is called for each part when it is durable or has failed, and `on_end` after
        the last one, with the first error.
        """
        parts = list(removal.parts())
        if not parts:  # The log has no record of it.
            on_written(removal, _NONE, -1)
            on_end(_NONE)
            return
        left = len(parts)
        first_error = _NONE

        def on_committed(part: Removal, error: ErrorCode, base_offset: int) -> None:
            nonlocal left, first_error
            left -= 1
            first_error = first_error or error
            on_written(part, error, base_offset)
            if not left:
                on_end(first_error)

        for part in parts:
            self._writer.write(
                group.partition, group.leader_epoch, part.records, partial(on_committed, part)
            )

    # Topics

    def forget_topics(self, topics: Collection[str]) -> None:
        """Removes the offsets of deleted topics from all groups."""
        if not topics or not self._registry.groups:
            return
        sweep = _Sweep(topics)
        self.sweeps.append(sweep)
        self._tasks.spawn(self._forget(sweep))

    async def _forget(self, sweep: _Sweep) -> None:
        def forget(group: Group) -> None:
            # Commits since `forget_before_commit` are of a topic created again.
            offsets = self._registry.offsets.of(group.group_id)
            forgotten = forget_topics(group, offsets, sweep.take(group, sweep.topics))
            self._remove(group, offsets, forgotten)

        try:
            await self._each_group(forget)
        finally:
            self.sweeps.remove(sweep)

    def forget_before_commit(self, group: Group, topics: Iterable[str]) -> None:
        """Removes the offsets of deleted topics of that name, before a commit for the new ones."""
        topics = list(topics)
        deleted = {topic for sweep in self.sweeps for topic in sweep.take(group, topics)}
        if deleted:
            offsets = self._registry.offsets.of(group.group_id)
            self._remove(group, offsets, forget_topics(group, offsets, deleted))

    # Age

    def start_round(self) -> None:
        """Starts a round that removes expired offsets, unless one is under way."""
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run_round())

    async def _run_round(self) -> None:
        started_ms = self._clock.monotonic_ms()
        removed = 0
        missing: set[str] = set()
        gone = frozenset(topic for topic in self._missing if not self._has_topic(topic))

        def clean(group: Group) -> None:
            nonlocal removed
            offsets = self._registry.offsets.of(group.group_id)
            removal = expire(group, offsets, self._clock.now_ms())
            removed += removal.offset_count
            self._metrics.expirations.mark(removal.offset_count)
            self._remove(group, offsets, removal)
            absent = {topic for topic, _ in offsets.slots if not self._has_topic(topic)}
            if absent:
                missing.update(absent)
                deleted = absent & gone
                if deleted:
                    self._remove(group, offsets, forget_topics(group, offsets, sorted(deleted)))

        try:
            await self._each_group(clean)
        finally:
            self._is_running = False
        self._missing = frozenset(missing)
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        logger.log(
            logging.INFO if removed else logging.DEBUG,
            "Removed %d expired offsets in %d milliseconds.", removed, elapsed_ms,
        )  # fmt: skip

    async def _each_group(self, action: Callable[[Group], None]) -> None:
        """Calls `action` for every group, and lets the loop run in between."""
        slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        for group in self._registry:
            action(group)
            if self._clock.monotonic_ns() >= slice_end_ns:
                await self._tasks.sleep(0)
                slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS

    def _remove(self, group: Group, offsets: GroupOffsets, removal: Removal) -> None:
        """Writes a removal that is already applied in memory."""
        if group.is_dead:
            self._registry.drop(group)
        if not removal.records:
            return

        def on_written(part: Removal, error: ErrorCode, base_offset: int) -> None:
            if error is _NONE:
                # Also removes commits that were under way and precede the tombstones.
                apply_removal(group, offsets, part, base_offset)

        def on_end(error: ErrorCode) -> None:
            if error is not _NONE:
                logger.warning(
                    "group %s: tombstones of offsets were not written, the next round retries: %s",
                    group.group_id, error.name,
                )  # fmt: skip

        self._write(group, removal, on_written, on_end)
