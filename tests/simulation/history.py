"""What was promised to clients in a simulation, and whether it is kept."""

from collections.abc import Callable, Iterable, Mapping

from odradek.model import TopicPartition

__all__ = ["History", "Violation"]


class Violation(AssertionError):  # noqa: N818 - what a simulation looks for
    """A promise was broken."""


class History:
    """What clients were told, and what of it must still hold.

    A machine that loses its power may forget what was not synced, acknowledged or not. From then on
    these records are in doubt: the one that a later life of the broker finds must stay, one that it
    does not find is lost, and its offset may hold another. Brokers that die while they start settle
    nothing, but may append, so that an offset can have several records in doubt.

    Args:
        find: The records that the log of a partition has now.

    Attributes:
        acknowledged: Offsets of records that were answered, with the record.
        seen: The same for records that were read.
        committed: Offsets that the group committed last, by partition, as answered.
        unanswered: Offsets that were sent to be committed since, and not answered.
    """

    def __init__(self, find: Callable[[TopicPartition], Mapping[int, bytes]]) -> None:
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {}
        self.seen: dict[TopicPartition, dict[int, bytes]] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.unanswered: dict[TopicPartition, set[int]] = {}
        self._find = find
        self._losses = 0
        # Records with their offsets: those that a power cut may have taken, until a broker serves;
        # and those that it took, which clients may still hold.
        self._doubtful: dict[TopicPartition, set[tuple[int, bytes]]] = {}
        self._lost: dict[TopicPartition, set[tuple[int, bytes]]] = {}
        # The ends of what was durable at the last power cut.
        self._durable_ends: dict[TopicPartition, int] = {}

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
        is_lost = (offset, record) in self._lost.get(tp, ())
        if is_lost and self._find(tp).get(offset) != record:
            return  # The client has it from before the power cut. Written again, it counts.
        doubtful = self._doubtful.get(tp, set())
        for known in (self.acknowledged, self.seen):
            before = known.get(tp, {}).get(offset, record)
            if before == record:
                continue
            if (offset, record) in doubtful:
                return  # Which of the two is there will be seen when a broker serves.
            if (offset, before) not in doubtful:
                raise Violation(f"{tp} {offset}: {record!r} is {what}, and {before!r} was before")
            self._lose(tp, offset, before)
        table.setdefault(tp, {})[offset] = record

    def doubt(self, tp: TopicPartition, records: Mapping[int, bytes], durable_end: int) -> None:
        """The power goes: records that were not synced may be gone.

        Args:
            tp: A partition on the machine.
            records: Those that it has.
            durable_end: Below this offset nothing may be gone, from now on.

        Raises:
            Violation: less is durable than was at an earlier power cut.
        """
        known_end = self._durable_ends.get(tp, 0)
        if durable_end < known_end:
            raise Violation(f"{tp}: {known_end} was durable, and the disk holds {durable_end}")
        self._durable_ends[tp] = durable_end
        unsynced = {entry for entry in records.items() if entry[0] >= durable_end}
        self._doubtful.setdefault(tp, set()).update(unsynced)

    def settle(self) -> None:
        """A broker serves: the records in doubt are there, and must stay, or are lost."""
        for tp, doubtful in self._doubtful.items():
            now = self._find(tp)
            for offset, record in sorted(doubtful):
                if now.get(offset) != record:
                    self._lose(tp, offset, record)
        self._doubtful.clear()

    def _lose(self, tp: TopicPartition, offset: int, record: bytes) -> None:
        self._lost.setdefault(tp, set()).add((offset, record))
        for table in (self.acknowledged, self.seen):
            known = table.get(tp, {})
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
