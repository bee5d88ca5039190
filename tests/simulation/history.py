"""What was promised to clients in a simulation, and whether it is kept."""

from collections.abc import Iterable, Mapping

from odradek.model import TopicPartition

__all__ = ["History", "Violation"]


class Violation(AssertionError):  # noqa: N818 - what a simulation looks for
    """A promise was broken."""


class History:
    """What clients were told, and what of it must still hold.

    A machine that loses its power forgets what was not synced, acknowledged or not: `forget` takes
    out what is gone, and from then on those offsets may hold other records.

    Attributes:
        acknowledged: Offsets of records that were answered, with the record.
        seen: The same for records that were read.
        committed: Offsets that the group committed last, by partition, as answered.
        unanswered: Offsets that were sent to be committed since, and not answered.
    """

    def __init__(self) -> None:
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {}
        self.seen: dict[TopicPartition, dict[int, bytes]] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.unanswered: dict[TopicPartition, set[int]] = {}
        self._losses = 0
        # What was in a log and is not any more: clients may still hold it.
        self._lost: dict[TopicPartition, set[tuple[int, bytes]]] = {}

    # Records

    def acknowledge(self, tp: TopicPartition, offset: int, record: bytes) -> None:
        """A producer was told where its record is."""
        self._note(self.acknowledged, "acknowledged", tp, offset, record)

    def see(self, tp: TopicPartition, offset: int, record: bytes) -> None:
        """A consumer has read a record."""
        self._note(self.seen, "read", tp, offset, record)

    def _note(
        self,
        table: dict[TopicPartition, dict[int, bytes]],
        what: str,
        tp: TopicPartition,
        offset: int,
        record: bytes,
    ) -> None:
        if (offset, record) in self._lost.get(tp, ()):
            return
        for known in (self.acknowledged, self.seen):
            before = known.get(tp, {}).get(offset, record)
            if before != record:
                raise Violation(f"{tp} {offset}: {record!r} is {what}, and {before!r} was before")
        table.setdefault(tp, {})[offset] = record

    def forget(
        self,
        before: Mapping[TopicPartition, Mapping[int, bytes]],
        now: Mapping[TopicPartition, Mapping[int, bytes]],
        floors: Mapping[TopicPartition, int],
    ) -> None:
        """The power went: records that were not synced may be gone.

        Args:
            before: The records that the partitions had.
            now: Those that they have.
            floors: Below these offsets nothing may be gone.
        """
        for tp, records in before.items():
            lost = {
                (offset, record)
                for offset, record in records.items()
                if offset >= floors.get(tp, 0) and now.get(tp, {}).get(offset) != record
            }
            self._lost.setdefault(tp, set()).update(lost)
            for table in (self.acknowledged, self.seen):
                known = table.get(tp, {})
                for offset, record in lost:
                    if known.get(offset) == record:
                        del known[offset]

    def check_log(self, tp: TopicPartition, records: Iterable[tuple[int, bytes]]) -> None:
        """Compares a whole partition with what was promised of it."""
        found: dict[int, bytes] = {}
        places: dict[bytes, int] = {}
        for offset, record in records:
            expected = max(found, default=-1) + 1
            if offset != expected:
                raise Violation(f"{tp}: offset {offset} follows {expected - 1}")
            if record in places:
                raise Violation(f"{tp}: {record!r} is at {places[record]} and at {offset}")
            found[offset] = record
            places[record] = offset
        for table, what in ((self.acknowledged, "acknowledged"), (self.seen, "read")):
            for offset, record in sorted(table.get(tp, {}).items()):
                if offset not in found:
                    raise Violation(f"{tp}: {record!r} was {what} at {offset}, and is lost")
                if found[offset] != record:
                    raise Violation(
                        f"{tp} {offset}: {record!r} was {what}, {found[offset]!r} is there"
                    )

    # Commits

    def begin_commit(self, offsets: Mapping[TopicPartition, int]) -> int:
        """Offsets are sent to be committed; returns how often commits were lost so far."""
        for tp, offset in offsets.items():
            self.unanswered.setdefault(tp, set()).add(offset)
        return self._losses

    def end_commit(self, offsets: Mapping[TopicPartition, int], losses: int) -> None:
        """They are committed: earlier ones that were not answered no longer count."""
        if losses != self._losses:
            return  # The answer was under way when the power went, and the commit with it.
        for tp, offset in offsets.items():
            self.committed[tp] = offset
            self.unanswered[tp] = set()

    def forget_commits(self) -> None:
        """The machine lost commits, and may: the next that is found is believed."""
        self._losses += 1
        self.committed.clear()
        self.unanswered.clear()

    def check_committed(
        self,
        found: Mapping[TopicPartition, int | None],
        expected: Mapping[TopicPartition, int],
    ) -> None:
        """Compares what the group is told with what was answered before it asked."""
        for tp, offset in sorted(expected.items()):
            now = found.get(tp)
            admissible = {offset, self.committed.get(tp, offset), *self.unanswered.get(tp, ())}
            if now is None or (now < offset and now not in admissible):
                raise Violation(
                    f"{tp}: {offset} was committed, and {now} is told; admissible: {admissible}"
                )
