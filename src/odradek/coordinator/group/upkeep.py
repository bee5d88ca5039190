"""What is removed from groups: by administrators, by age, and because a topic is gone.

What an administrator removes is answered when it is in the log, so that it does not come back with
another coordinator. What goes by itself is written and not waited for: what a crash brings back is
found again in the next round.

A topic's offsets go at once when it is deleted. That can be missed, while nobody led the partition
of the offsets topic; so each round looks for topics that do not exist. It believes it only of a
topic that was missing in the round before, too: a broker that has just started may not know them
all yet, and commits that are removed by mistake are lost.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from odradek.clock import PreciseClock
from odradek.coordinator.group import admin
from odradek.coordinator.group.admin import Removal
from odradek.coordinator.group.expiry import decide_cleanup, decide_topic_deletion
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.metrics import GroupMetrics
from odradek.coordinator.group.offsets import map_commit_error
from odradek.coordinator.group.service import GroupService
from odradek.errors import ErrorCode
from odradek.tasks import Tasks

__all__ = ["GroupUpkeep"]

_log = logging.getLogger(__name__)

_NONE: Final = ErrorCode.NONE
_SLICE_NS: Final = 2_000_000  # How long a round keeps the loop to itself.

TopicPartitionKey = tuple[str, int]


class _Sweep:
    """Topics that were deleted, and the groups that have forgotten which of them already."""

    __slots__ = ("done", "topics")

    def __init__(self, topics: Collection[str]) -> None:
        self.topics = frozenset(topics)
        # By group id: a group that lost all it had may be made again meanwhile.
        self.done: dict[str, set[str]] = {}

    def take(self, group: Group, topics: Iterable[str]) -> set[str]:
        """Those of the topics that the group has to forget; it is done from now on."""
        done = self.done.get(group.group_id, set())
        left = {topic for topic in topics if topic in self.topics} - done
        if left:
            self.done[group.group_id] = done | left
        return left


class GroupUpkeep:
    """Removes groups and offsets.

    Args:
        service: Whose groups these are.
        has_topic: Whether a topic exists, as far as this broker knows.
        clock: Measures slices, and tells the age of offsets.
        tasks: Runs what takes a while.
        metrics: Counts.
    """

    def __init__(
        self,
        service: GroupService,
        *,
        has_topic: Callable[[str], bool],
        clock: PreciseClock,
        tasks: Tasks,
        metrics: GroupMetrics,
    ) -> None:
        self._service = service
        self._registry = service.registry
        self._has_topic = has_topic
        self._clock = clock
        self._tasks = tasks
        self._metrics = metrics
        # Topics with offsets that did not exist in the last round.
        self._missing: frozenset[str] = frozenset()
        # Deletions of topics that not every group has been looked through for.
        self._sweeps: list[_Sweep] = []
        self._is_running = False

    # Administrators

    def delete_group(self, group_id: str, answer: Callable[[ErrorCode], None]) -> None:
        """DeleteGroups, of one group."""
        group = self._registry.groups.get(group_id)
        if group is None or group.is_dead:
            answer(self._registry.check(group_id) or ErrorCode.GROUP_ID_NOT_FOUND)
            return
        decided = admin.decide_delete_group(group)
        if isinstance(decided, ErrorCode):
            answer(decided)
            return
        self._write(group, decided, answer)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartitionKey],
        answer: Callable[[ErrorCode, dict[TopicPartitionKey, ErrorCode]], None],
    ) -> None:
        """OffsetDelete: an error of the group, or one per partition."""
        group = self._registry.groups.get(group_id)
        if group is None or group.is_dead:
            answer(self._registry.check(group_id) or ErrorCode.GROUP_ID_NOT_FOUND, {})
            return
        error, results, removal = admin.decide_delete_offsets(group, partitions)
        if error is not _NONE:
            answer(error, {})
            return
        self._write(group, removal, lambda error: answer(error, {} if error else results))

    def _write(self, group: Group, removal: Removal, answer: Callable[[ErrorCode], None]) -> None:
        def on_appended(error: ErrorCode, base_offset: int) -> None:
            if error is _NONE:
                admin.apply_removal(group, removal, base_offset)
                self._metrics.deletions.mark(removal.offset_count)
                if group.is_dead:
                    self._registry.drop(group)
            else:
                admin.fail_removal(group, removal)
            answer(map_commit_error(error))

        self._service.append_records(group.partition, removal.records, on_appended)

    # Topics

    def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted: no group has offsets of them any more."""
        if not topics or not self._registry.groups:
            return
        sweep = _Sweep(topics)
        self._sweeps.append(sweep)
        self._service.forget_first = self._forget_first
        self._tasks.spawn(self._forget(sweep))

    async def _forget(self, sweep: _Sweep) -> None:
        def forget(group: Group) -> None:
            # What was committed since `_forget_first` belongs to a topic that was made again.
            self._remove(group, decide_topic_deletion(group, sweep.take(group, sweep.topics)))

        try:
            await self._each_group(forget)
        finally:
            self._sweeps.remove(sweep)
            if not self._sweeps:
                self._service.forget_first = None

    def _forget_first(self, group: Group, topics: Iterable[str]) -> None:
        """A commit comes for a topic that was made again: what is older goes before it."""
        topics = list(topics)
        deleted = {topic for sweep in self._sweeps for topic in sweep.take(group, topics)}
        if deleted:
            self._remove(group, decide_topic_deletion(group, deleted))

    # Age

    def start_round(self) -> None:
        """Removes what has expired, unless that is still under way."""
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
            removal = decide_cleanup(group, self._clock.now_ms())
            removed += removal.offset_count
            self._metrics.expirations.mark(removal.offset_count)
            self._remove(group, removal)
            absent = {topic for topic, _ in group.offsets if not self._has_topic(topic)}
            if absent:
                missing.update(absent)
                deleted = absent & gone
                if deleted:
                    self._remove(group, decide_topic_deletion(group, sorted(deleted)))

        try:
            await self._each_group(clean)
        finally:
            self._is_running = False
        self._missing = frozenset(missing)
        elapsed_ms = self._clock.monotonic_ms() - started_ms
        _log.info("Removed %d expired offsets in %d milliseconds.", removed, elapsed_ms)

    async def _each_group(self, action: Callable[[Group], None]) -> None:
        """Calls for every group there is, and lets the loop run in between."""
        slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS
        for group in self._registry:
            action(group)
            if self._clock.monotonic_ns() >= slice_end_ns:
                await self._tasks.sleep(0)
                slice_end_ns = self._clock.monotonic_ns() + _SLICE_NS

    def _remove(self, group: Group, removal: Removal) -> None:
        """Writes what has been removed from a group already."""
        if group.is_dead:
            self._registry.drop(group)
        if not removal.records:
            return

        def on_appended(error: ErrorCode, base_offset: int) -> None:
            if error is _NONE:
                # Also of commits that were under way, and stand before the tombstones.
                admin.apply_removal(group, removal, base_offset)
            else:
                _log.warning(
                    "group %s: the end of offsets was not written, it is found again: %s",
                    group.group_id, error.name,
                )  # fmt: skip

        self._service.append_records(group.partition, removal.records, on_appended)
