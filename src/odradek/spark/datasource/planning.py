"""Decides which records a query reads: where a batch starts and ends, and which data is lost.

Batches and streams are planned with a `Lookup` and without Spark; the planner of a stream has the
state that is needed between its batches. Spark keeps the position and passes it with every call.
"""

from collections.abc import Mapping
from typing import Final

from odradek.client.offsets import EARLIEST, LATEST
from odradek.clock import Clock
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.spark.datasource.bounds import BoundKind
from odradek.spark.datasource.data_loss import DataLossPolicy, Loss, find_deleted, find_losses
from odradek.spark.datasource.limits import Limits, PartitionSize, decide_end, is_held_back
from odradek.spark.datasource.lookup import Lookup, Selected, is_wanted, resolve
from odradek.spark.datasource.offsets import NO_ID, Position
from odradek.spark.datasource.options import SourceOptions
from odradek.spark.datasource.splits import Split

__all__ = ["StreamPlanner", "plan_batch"]

Offsets = Mapping[TopicPartition, int]

_NO_LIMITS: Final = Limits()


def plan_batch(lookup: Lookup, options: SourceOptions) -> list[Split]:
    """The ranges that a batch query reads, one per partition.

    Raises:
        ApiError: A topic does not exist, or brokers do not answer.
        ValueError: An option does not fit the topics.
        DataLossError: Requested offsets do not exist, and the policy is to fail.
    """
    selected = lookup.select(options.selection)
    _refuse_missing(selected)
    partitions = selected.partitions
    start = resolve(lookup, options.starting, partitions, on_no_match=options.on_no_match)
    end = resolve(lookup, options.ending, partitions, on_no_match="latest")
    losses: list[Loss] = []
    if BoundKind.OFFSETS in (options.starting.kind, options.ending.kind):
        earliest = lookup.offsets(dict.fromkeys(partitions, EARLIEST))
        start, end, losses = _within_logs(start, end, earliest, lookup.log_ends(partitions))
    DataLossPolicy(options.is_failing_on_data_loss).report(losses)
    return [
        Split(
            topic=tp.topic,
            topic_id=selected.topic_ids.get(tp.topic, NO_ID),
            partition=tp.partition,
            start=start[tp],
            end=end[tp],
        )
        for tp in partitions
        if start[tp] < end[tp]
    ]


def _within_logs(
    start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[Loss]]:
    """Start and end offsets, clamped to the logs, and the losses this causes."""
    losses = []
    for tp in start:
        if start[tp] < earliest[tp]:
            losses.append(Loss.below_log_start(tp, expected=start[tp], found=earliest[tp]))
        furthest = max(start[tp], end[tp])
        if furthest > latest[tp]:
            losses.append(Loss.beyond_log_end(tp, expected=furthest, found=latest[tp]))
        elif end[tp] < start[tp]:
            losses.append(
                Loss(what=str(tp), why=f"starts at {start[tp]} and ends at {end[tp]}, before it")
            )
    return (
        {tp: min(max(at, earliest[tp]), latest[tp]) for tp, at in start.items()},
        {tp: min(at, latest[tp]) for tp, at in end.items()},
        losses,
    )


def _refuse_missing(selected: Selected) -> None:
    if selected.missing:
        names = ", ".join(sorted(str(one) for one in selected.missing))
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{names} does not exist; create the topic first, or subscribe to others",
        )


class StreamPlanner:
    """Plans the batches of one stream. The caller must make one call at a time."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        # The losses so far, if the policy is to continue.
        self.losses = DataLossPolicy(options.is_failing_on_data_loss)
        # Under AvailableNow: partitions and their ends at the start of the run.
        self._frozen: tuple[Selected, dict[TopicPartition, int]] | None = None
        self._initial: Position | None = None
        # Whether the first batch must be empty; see `initial`.
        self._is_start_to_note = False
        # The end of all partitions as last looked up, without limits.
        self.latest: Position | None = None
        # The end of the last batch that was planned here.
        self._planned: Position | None = None
        # For maxTriggerDelay: the time of the last batch that was not delayed.
        self._last_batch_ms = clock.monotonic_ms()

    def freeze(self, lookup: Lookup) -> None:
        """Fixes the end of the stream at the present ends of the present partitions."""
        selected = lookup.select(self._options.selection)
        self._frozen = (selected, self._ends(lookup, selected))

    def initial(self, lookup: Lookup) -> Position:
        """The position where a new query begins; the same at every call.

        Spark stores the end of the first batch, and not its beginning: to read that batch again
        after a restart it calls this again, and by then `latest` has moved. So the first batch of a
        query that begins at a moving place is empty: its end, which is stored, is the beginning of
        the next one.

        Raises:
            ApiError, ValueError, DataLossError: As `plan_batch`.
        """
        if self._initial is None:
            options = self._options
            selected = (
                self._frozen[0] if self._frozen is not None else lookup.select(options.selection)
            )
            _refuse_missing(selected)
            partitions = selected.partitions
            starting = options.starting
            start = resolve(lookup, starting, partitions, on_no_match=options.on_no_match)
            is_lasting = starting.kind is BoundKind.EARLIEST
            if starting.kind is BoundKind.OFFSETS:
                earliest = lookup.offsets(dict.fromkeys(partitions, EARLIEST))
                log_ends = lookup.log_ends(partitions)
                start, _, losses = _within_logs(start, log_ends, earliest, log_ends)
                self.losses.report(losses)
                is_lasting = not losses and LATEST not in starting.numbers.values()
            self._is_start_to_note = not is_lasting
            self._initial = Position.of(start, selected.topic_ids, options.split)
        return self._initial

    def on_batch(self) -> None:
        """Notes that a batch is read, so Spark has stored where the stream began."""
        self._is_start_to_note = False

    def end(self, lookup: Lookup, start: Position, limits: Limits = _NO_LIMITS) -> Position:
        """The end of the batch that begins at `start`; `start` itself if nothing is to be read.

        Raises:
            ApiError: A topic does not exist, or brokers do not answer.
            DataLossError: Records are gone, and the policy is to fail.
        """
        if self._frozen is not None:
            selected, latest = self._frozen
        else:
            selected = lookup.select(self._options.selection, list(start.offsets()))
            latest = self._ends(lookup, selected)
        topic_ids = dict(selected.topic_ids)
        # A position may be beyond the last stable offset, if the stream read uncommitted records
        # before: nothing is lost then, so the log's end is compared.
        before = [tp for tp, at in latest.items() if at < (start.offset(tp) or 0)]
        log_ends = latest | lookup.log_ends(before)
        self.losses.report(find_losses(start, topic_ids, log_ends))
        never_there = {str(one) for one in selected.missing} - _names_in(start)
        if never_there and self._options.is_failing_on_data_loss:
            # With the other policy the topic may have been lost a batch ago, and may come back.
            _refuse_missing(selected)
        self.latest = Position.of(latest, topic_ids, self._options.split)
        if self._is_start_to_note and start == self._initial:
            return start
        begin = self._begin(lookup, start, topic_ids, latest)
        # A truncated log is read from its new end; records written there are new.
        begin |= {tp: latest[tp] for tp in before if log_ends[tp] < begin[tp]}
        now_ms = self._clock.monotonic_ms()
        if self._frozen is None and is_held_back(
            begin, latest, limits, last_batch_ms=self._last_batch_ms, now_ms=now_ms
        ):
            return start
        sizes = self._sizes(lookup, latest) if limits.max_bytes is not None else None
        absent = self._absent(start, topic_ids, latest)
        topic_ids |= {tp.topic: start.topics[tp.topic].topic_id for tp in absent}
        end = decide_end(begin, latest, limits, sizes) | absent
        if end == start.offsets() and not _is_other(start.topic_ids(), topic_ids):
            return start
        self._last_batch_ms = now_ms
        self._note_deleted(lookup, begin, end)
        self._planned = Position.of(end, topic_ids, self._options.split)
        return self._planned

    def has_planned(self, end: Position) -> bool:
        """Whether the batch with this end was planned here, and not before a restart."""
        return end == self._planned

    def note_replay(self, lookup: Lookup, start: Position, end: Position) -> None:
        """Counts the deleted records of a batch that was planned before a restart."""
        there = lookup.select(self._options.selection, list(start.offsets())).partitions
        begin = {tp: at for tp, at in start.offsets().items() if tp in there}
        ends = {tp: end.offset(tp) or 0 for tp in begin}
        self._note_deleted(lookup, begin, ends)

    def _note_deleted(self, lookup: Lookup, begin: Offsets, end: Offsets) -> None:
        """Counts the deleted records of a batch, unless the policy is to fail.

        With that policy the tasks find the loss, and one request to the brokers is saved.
        """
        read = [tp for tp, offset in begin.items() if offset < end[tp]]
        if read and not self._options.is_failing_on_data_loss:
            log_starts = lookup.offsets(dict.fromkeys(read, EARLIEST))
            self.losses.note(find_deleted(begin, end, log_starts))

    def _ends(self, lookup: Lookup, selected: Selected) -> dict[TopicPartition, int]:
        return lookup.offsets(dict.fromkeys(selected.partitions, LATEST))

    def _begin(
        self, lookup: Lookup, start: Position, topic_ids: Mapping[str, str], latest: Offsets
    ) -> dict[TopicPartition, int]:
        """The offset from which each partition is read; a new one from its first record."""
        before = start.topic_ids()
        begin: dict[TopicPartition, int] = {}
        for tp in latest:
            offset = start.offset(tp)
            old_id, new_id = before.get(tp.topic, NO_ID), topic_ids[tp.topic]
            if offset is not None and (NO_ID in (old_id, new_id) or old_id == new_id):
                begin[tp] = offset
        new = [tp for tp in latest if tp not in begin]
        return begin | lookup.offsets(dict.fromkeys(new, EARLIEST))

    def _absent(
        self, start: Position, topic_ids: Mapping[str, str], latest: Offsets
    ) -> dict[TopicPartition, int]:
        """The positions of partitions that do not exist now, in case they come back.

        Only those that the options name: one of a pattern would stay in the position for ever.
        """
        selection, before = self._options.selection, start.topic_ids()
        if selection.pattern is not None:
            return {}
        return {
            tp: offset
            for tp, offset in start.offsets().items()
            if tp not in latest
            and is_wanted(selection, tp)
            and topic_ids.get(tp.topic, before[tp.topic]) == before[tp.topic]
        }

    def _sizes(self, lookup: Lookup, latest: Offsets) -> dict[TopicPartition, PartitionSize]:
        earliest = lookup.offsets(dict.fromkeys(latest, EARLIEST))
        return {
            tp: PartitionSize(size_bytes=size, offset_count=latest[tp] - earliest[tp])
            for tp, size in lookup.sizes(list(latest)).items()
        }


def _names_in(position: Position) -> set[str]:
    """Topics and partitions in a position, as `Selected.missing` names them."""
    return {str(tp) for tp in position.offsets()} | set(position.topics)


def _is_other(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a topic was deleted and created again."""
    return any(
        NO_ID not in (topic_id, now.get(name, NO_ID)) and topic_id != now[name]
        for name, topic_id in before.items()
    )
