"""Commits of one wake-up: one batch, the order of the requests, an answer each."""

from collections.abc import Callable

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.writing import OnAppended, OnCommitted
from odradek.errors import ErrorCode
from odradek.protocol.hot.offset_commit import OffsetCommitView
from odradek.records.batch import is_crc_valid, parse_header
from odradek.records.record import read_records
from tests.unit.coordinator.coordinator_fakes import Coordination


class WakeUp:
    """Requests that were found together, as many as a test says."""

    def __init__(self) -> None:
        self.has_more = True
        self._ends: list[Callable[[], object]] = []

    def at_end(self, callback: Callable[[], object]) -> None:
        self._ends.append(callback)

    def end(self) -> None:
        ends, self._ends = self._ends, []
        for callback in ends:
            callback()


class Made:
    """A coordinator whose groups share one partition, in a wake-up."""

    def __init__(self, partition_count: int = 1) -> None:
        self.wake_up = WakeUp()
        self.coordination = Coordination(partition_count=partition_count, wake_ups=self.wake_up)
        self.coordination.lead_all()
        self.topic = self.coordination.topic
        self.groups = self.coordination.groups
        self.answers: list[tuple[str, ErrorCode]] = []

    def commit(
        self, group: str, offset: int, *, metadata: str = "", partitions: tuple[int, ...] = (0,)
    ) -> None:
        rows: list[tuple[int, int, int, str | None]] = [
            (partition, offset, -1, metadata) for partition in partitions
        ]
        view = OffsetCommitView(group, -1, "", None, -1, [("t", rows)])
        outcome = self.groups.commit(
            view, 8, lambda error, _rejected: self.answers.append((group, error))
        )
        if outcome is not None:
            self.answers.append((group, outcome[0]))

    def committed(self, group: str) -> int | None:
        return self.coordination.committed(group).get(("t", 0))

    def reload(self) -> None:
        self.coordination.restart(GroupCoordinatorConfig())
        self.coordination.lead_all(1)

    def batch_sizes(self) -> list[int]:
        """Records of each batch in the log."""
        batches = [batch for rows in self.topic.batches.values() for batch in rows]
        assert all(is_crc_valid(batch, 0, len(batch)) for batch in batches)
        sizes = []
        for batch in batches:
            header = parse_header(batch)
            assert header is not None
            offsets = [record.offset for record in read_records(batch)]
            first = header.base_offset
            assert offsets == list(range(first, first + header.last_offset_delta + 1))
            sizes.append(len(offsets))
        return sizes


NONE = ErrorCode.NONE


def test_commits_of_a_wake_up_are_one_batch_and_answered_after_it() -> None:
    made = Made()
    for number in range(5):
        made.commit(f"g{number}", number)
    assert (made.answers, made.batch_sizes()) == ([], [])
    made.wake_up.end()
    assert made.batch_sizes() == [5]
    assert made.answers == [(f"g{number}", NONE) for number in range(5)]
    made.reload()
    assert [made.committed(f"g{number}") for number in range(5)] == [0, 1, 2, 3, 4]


def test_a_commit_that_comes_alone_is_answered_at_once() -> None:
    made = Made()
    made.wake_up.has_more = False
    made.commit("g", 1)
    assert made.answers == [("g", NONE)]
    assert made.batch_sizes() == [1]


def test_the_last_of_several_waits_for_none_and_shares_their_batch() -> None:
    made = Made()
    made.commit("g", 1)
    made.wake_up.has_more = False
    made.commit("h", 2)
    made.wake_up.end()
    assert made.batch_sizes() == [2]


def test_of_two_commits_of_one_partition_the_later_request_counts() -> None:
    made = Made()
    made.commit("g", 7)
    made.commit("g", 3)
    made.wake_up.end()
    assert made.committed("g") == 3
    made.reload()
    assert made.committed("g") == 3


def test_other_commits_keep_their_place_behind_those_that_wait() -> None:
    made = Made()
    made.commit("g", 7)
    made.commit("g", 8, metadata="m")
    assert made.answers == [("g", NONE)] * 2
    assert made.batch_sizes() == [1, 1]
    made.commit("g", 9)
    made.commit("g", 10, partitions=(0, 1))
    made.wake_up.end()
    assert made.committed("g") == 10
    made.reload()
    assert made.committed("g") == 10


def test_who_reads_offsets_sees_what_waits() -> None:
    made = Made()
    made.commit("g", 7)
    error, offsets = made.groups.find_offsets("g")
    assert error is NONE
    assert offsets is not None
    assert made.committed("g") == 7
    assert made.answers == [("g", NONE)]


def test_other_records_go_behind_the_commits_that_wait() -> None:
    made = Made()
    made.commit("g", 7)
    made.groups._writer.write(0, 0, [(b"\0\1\0\1x\0\1t\0\0\0\0", None)], lambda *_: None)
    assert made.answers == [("g", NONE)]
    assert len(made.batch_sizes()) == 2


def test_more_commits_than_a_batch_takes_become_several() -> None:
    made = Made()
    for number in range(130):
        made.commit(f"g{number}", number)
    made.wake_up.end()
    assert made.batch_sizes() == [64, 64, 2]
    assert made.answers == [(f"g{number}", NONE) for number in range(130)]


def test_long_names_do_not_make_a_batch_too_large() -> None:
    made = Made()
    for number in range(5):
        made.commit(f"{number}" * 30_000, number)
    made.wake_up.end()
    assert made.batch_sizes() == [2, 2, 1]
    assert [error for _, error in made.answers] == [NONE] * 5


def test_an_append_that_fails_fails_every_commit_in_it() -> None:
    made = Made()
    made.topic.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    made.commit("g", 1)
    made.commit("h", 2)
    made.wake_up.end()
    refused = ErrorCode.NOT_COORDINATOR
    assert made.answers == [("g", refused), ("h", refused)]
    # Groups of which nothing is stored are not kept either.
    assert not made.coordination.registry.groups


def test_a_batch_too_large_for_the_topic_is_split_up() -> None:
    made = Made()
    store = made.topic.try_append

    def refuse_more_than_one(
        partition: int, leader_epoch: int, batch: bytearray
    ) -> tuple[ErrorCode, int] | None:
        header = parse_header(batch)
        assert header is not None
        if header.last_offset_delta:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return store(partition, leader_epoch, batch)

    made.topic.try_append = refuse_more_than_one  # type: ignore[method-assign]  # A limit of a topic.
    made.commit("g", 1)
    made.commit("h", 2)
    made.wake_up.end()
    assert made.batch_sizes() == [1, 1]
    assert made.answers == [("g", NONE), ("h", NONE)]


def test_a_batch_that_waits_for_replicas_answers_when_they_have_it() -> None:
    made = Made()
    made.topic.is_held = True
    made.commit("g", 1)
    made.commit("h", 2)
    made.wake_up.end()
    assert made.answers == []
    assert len(made.topic.held) == 1
    made.topic.release()
    assert made.answers == [("g", NONE), ("h", NONE)]


def test_commits_that_never_meet_stop_waiting_for_each_other() -> None:
    """Groups spread over many partitions of the offsets topic gain nothing by it."""
    made = Made(partition_count=50)
    made.commit("g", 1)
    made.wake_up.end()
    for _ in range(256):
        made.commit("g", 2)
    assert len(made.answers) == 257
    made.commit("g", 3)
    assert len(made.answers) == 257  # It is tried again now and then.
    made.wake_up.end()
    assert made.committed("g") == 3


def test_an_answer_that_fails_leaves_those_behind_it_their_own() -> None:
    made = Made()

    def fail(_error: ErrorCode, _rejected: object) -> None:
        raise RuntimeError("the connection is in a state that nobody thought of")

    view = OffsetCommitView("broken", -1, "", None, -1, [("t", [(0, 1, -1, "")])])
    made.commit("g", 1)
    assert made.groups.commit(view, 8, fail) is None
    made.commit("h", 2)
    made.wake_up.end()
    assert made.answers == [("g", NONE), ("h", NONE)]
    assert [made.committed(group) for group in ("g", "broken", "h")] == [1, 1, 2]


def test_an_append_that_raises_answers_its_commits_and_leaves_other_partitions_alone() -> None:
    made = Made(partition_count=50)
    store = made.topic.try_append
    broken = made.coordination.groups.partition_of("g")
    assert broken != made.coordination.groups.partition_of("other")

    def raise_in_one(
        partition: int, leader_epoch: int, batch: bytearray
    ) -> tuple[ErrorCode, int] | None:
        if partition == broken:
            raise RuntimeError("a fault of ours")
        return store(partition, leader_epoch, batch)

    made.topic.try_append = raise_in_one  # type: ignore[method-assign]  # A fault in one partition.
    for group in ("g", "g", "other", "other"):
        made.commit(group, 5)
    made.wake_up.end()
    failed = ErrorCode.UNKNOWN_SERVER_ERROR
    assert made.answers == [("g", failed), ("g", failed), ("other", NONE), ("other", NONE)]
    assert list(made.coordination.registry.groups) == ["other"]
    made.topic.try_append = store  # type: ignore[method-assign]  # Mended.
    made.commit("g", 6)
    made.wake_up.end()
    assert made.committed("g") == 6


def test_commits_that_were_answered_are_not_answered_again_when_the_append_raises() -> None:
    made = Made()
    made.topic.is_held = True  # So that `append` is used.

    def answer_and_raise(
        partition: int,
        leader_epoch: int,
        batch: bytearray,
        on_committed: OnCommitted,
        on_appended: OnAppended | None = None,
    ) -> None:
        assert (partition, leader_epoch, parse_header(batch) is None) == (0, 0, False)
        assert on_appended is None
        on_committed(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        raise RuntimeError("a fault of ours, behind the answer")

    made.topic.append = answer_and_raise  # type: ignore[method-assign]  # A fault.
    made.commit("g", 1)
    made.commit("h", 1)
    made.wake_up.end()
    refused = ErrorCode.NOT_COORDINATOR
    assert made.answers == [("g", refused), ("h", refused)]
