"""A second coordinator, of counters, on the runtime that groups use: it loads, writes, answers.

A counter is a name and a number, kept in the partition that the name hashes to. `add` raises
several counters of one partition by one decision: all of them, or none.
"""

from collections.abc import Callable, Iterable

from odradek.coordinator.answers import AnswerQueue
from odradek.coordinator.loading import StateLoader
from odradek.coordinator.partitioning import partition_for
from odradek.coordinator.writing import Asked, Record, StateWriter, append_error
from odradek.errors import ErrorCode
from odradek.records.batch import BatchHeader
from odradek.testing import ManualClock
from tests.unit.coordinator.coordinator_fakes import MemoryTopic, Tasks

PARTITIONS = 4
Answer = Callable[[tuple[ErrorCode, int]], object]


class CounterPartition:
    """The counters of one partition; what is appended counts, for decisions, at once."""

    def __init__(self, coordinator: "Counters", partition: int, leader_epoch: int) -> None:
        self._coordinator = coordinator
        self._partition = partition
        self.leader_epoch = leader_epoch
        self.counts: dict[str, int] = {}

    def replay(
        self, key: bytes | None, value: bytes | None, offset: int, header: BatchHeader
    ) -> None:
        if key is None or value is None:
            raise ValueError("a counter has a name and a number")
        self.counts[key.decode()] = int(value)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        raise AssertionError("there are no transactions here")

    def prepare(self) -> Iterable[object]:
        return ()

    def install(self) -> None:
        self._coordinator.partitions[self._partition] = self

    def settle(self) -> Iterable[object]:
        return ()

    def unload(self) -> None:
        del self._coordinator.partitions[self._partition]


class Counters:
    """The coordinator of one broker."""

    def __init__(self, topic: MemoryTopic, tasks: Tasks) -> None:
        clock = ManualClock()
        self.partitions: dict[int, CounterPartition] = {}
        self.loader = StateLoader(
            "__counters",
            topic,
            begin=lambda partition, epoch: CounterPartition(self, partition, epoch),
            clock=clock,
            tasks=tasks,
        )
        self._writer = StateWriter(topic, now_ms=clock.now_ms)
        self._answers = AnswerQueue()

    def add(self, names: list[str], amount: int, answer: Answer) -> None:
        """Raises counters of the partition of the first; answers its new value, once committed."""
        partition = partition_for(names[0], PARTITIONS)
        error = self.loader.check_active(partition)
        if error is not ErrorCode.NONE:
            answer((error, -1))
            return
        state = self.partitions[partition]
        counts = {name: state.counts.get(name, 0) + amount for name in names}
        records: list[Record] = [(name.encode(), b"%d" % n) for name, n in counts.items()]

        def on_committed(error: ErrorCode, _offset: int) -> None:
            with self._answers:
                told = append_error(error, Asked.MEMBERSHIP)
                self._answers.put([(answer, (told, -1 if error else counts[names[0]]))])

        def on_appended(_offset: int) -> None:
            state.counts.update(counts)

        self._writer.write(partition, state.leader_epoch, records, on_committed, on_appended)


class Made:
    """Brokers that share a topic, one after another."""

    def __init__(self) -> None:
        self.topic = MemoryTopic()
        self.tasks = Tasks()
        self.answers: list[tuple[ErrorCode, int]] = []
        self.counters = Counters(self.topic, self.tasks)

    def lead_all(self, leader_epoch: int = 0) -> None:
        for partition in range(PARTITIONS):
            self.topic.lead(partition, leader_epoch)
            self.counters.loader.lead(partition, leader_epoch)
        self.tasks.run()

    def add(self, *names: str, amount: int = 1) -> None:
        self.counters.add(list(names), amount, self.answers.append)

    def move(self, name: str, leader_epoch: int) -> None:
        """Another broker leads the partition of a counter, and has what was replicated."""
        partition = partition_for(name, PARTITIONS)
        before = self.counters
        self.topic.fail_over(partition, leader_epoch)
        before.loader.resign(partition, leader_epoch)
        self.counters = Counters(self.topic, self.tasks)
        self.counters.loader.lead(partition, leader_epoch)
        self.tasks.run()


def test_it_is_answered_when_the_state_is_loaded_and_the_write_committed() -> None:
    made = Made()
    made.add("a")
    made.lead_all()
    made.topic.is_replicated = True
    made.add("a")
    assert made.answers == [(ErrorCode.NOT_COORDINATOR, -1)]
    made.add("a")
    made.topic.replicate()
    # The second decision built on the first, which was in the log and not committed.
    assert made.answers[1:] == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]


def test_another_broker_goes_on_with_what_was_committed() -> None:
    made = Made()
    made.lead_all()
    made.topic.is_replicated = True
    made.add("a", amount=5)
    made.topic.replicate()
    made.add("a", amount=7)
    made.move("a", 1)
    assert made.answers == [(ErrorCode.NONE, 5), (ErrorCode.NOT_COORDINATOR, -1)]
    made.add("a")
    made.topic.replicate()
    assert made.answers[2:] == [(ErrorCode.NONE, 6)]


def test_a_broker_that_was_deposed_and_does_not_know_it_writes_nothing() -> None:
    made = Made()
    made.lead_all()
    made.topic.lead(partition_for("a", PARTITIONS), 1)  # It has not been told.
    made.add("a")
    assert made.answers == [(ErrorCode.NOT_COORDINATOR, -1)]
    assert not any(made.topic.batches.values())


def test_a_decision_that_fits_in_no_batch_changes_nothing() -> None:
    made = Made()
    made.lead_all()
    made.topic.max_batch_bytes = 500
    made.add("a", *(f"counter-{number}" for number in range(100)))
    made.add("a")
    assert made.answers == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1), (ErrorCode.NONE, 1)]
    made.move("a", 1)
    assert made.counters.partitions[partition_for("a", PARTITIONS)].counts == {"a": 1}


def test_an_answer_may_bring_the_next_request() -> None:
    made = Made()
    made.lead_all()
    order: list[str] = []

    def add_another(answer: tuple[ErrorCode, int]) -> None:
        order.append(f"first {answer[1]}")
        made.counters.add(["a"], 1, lambda answer: order.append(f"second {answer[1]}"))
        order.append("end of the first")

    made.counters.add(["a"], 1, add_another)
    assert order == ["first 1", "end of the first", "second 2"]
