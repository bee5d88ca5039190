"""Offsets that transactions commit to groups (10 section 9.5, 07 sections 2.4, 4.3 and 6.5)."""

from collections.abc import Callable
from typing import Any

import pytest

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.offsets import fetch_all, fetch_offset
from odradek.coordinator.group.transactional_commits import TransactionalCommit
from odradek.errors import ErrorCode
from odradek.protocol.hot.offset_commit import OffsetCommitView
from odradek.records.batch import parse_header
from odradek.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from tests.unit.coordinator.coordinator_fakes import Coordination

_NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
PARTITION = 0  # Of the offsets topic, which has one here.


class Gate:
    """Answers when it is told to; a `TransactionGate`."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, TransactionalCommit, Callable[[ErrorCode], None]]] = []

    def confirm(
        self, partition: int, commit: TransactionalCommit, respond: Callable[[ErrorCode], None]
    ) -> None:
        self.asked.append((partition, commit, respond))


class Fixture(Coordination):
    def __init__(self) -> None:
        super().__init__(partition_count=1)
        self.lead_all()
        self.epoch = 0

    def commit(
        self,
        offset: int,
        *,
        topic: str = "t",
        group_id: str = "g",
        producer_id: int = 4000,
        metadata: str | None = None,
        generation_id: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        commit = TransactionalCommit(
            transactional_id="x",
            producer_id=producer_id,
            producer_epoch=0,
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[(topic, [(0, offset, -1, metadata)])],
            version=5,
        )
        self.groups.commit_in_transaction(commit, lambda error, _: answers.append(error))
        return answers

    def commit_plainly(self, offset: int, *, topic: str = "t") -> None:
        view = OffsetCommitView("g", -1, "", None, -1, [(topic, [(0, offset, -1, None)])])
        self.groups.commit(view, 8, lambda *_: None)

    def end(self, *, is_commit: bool = True, producer_id: int = 4000) -> None:
        """The marker is written, and on every replica in sync."""
        self.write_marker(is_commit=is_commit, producer_id=producer_id)
        self.groups.end_transaction(PARTITION, producer_id, is_commit=is_commit)

    def write_marker(self, *, is_commit: bool = True, producer_id: int = 4000) -> None:
        marker = EndTransactionMarker(ControlType.COMMIT if is_commit else ControlType.ABORT, 0)
        self.topic.store(
            PARTITION,
            build_end_transaction_marker(
                marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=1
            ),
        )

    def fetch(self, *, topic: str = "t", is_stable: bool = False) -> int | ErrorCode:
        """The offset, or an error."""
        if "g" not in self.registry.groups:
            return -1
        offsets = self.registry.offsets.of("g")
        offset, _, _, error = fetch_offset(offsets, topic, 0, is_stable)
        return ErrorCode(error) if error else offset

    def fail_over(self) -> None:
        """Another broker, with nothing but the log, coordinates from now on."""
        self.epoch += 1
        self.topic.lead(PARTITION, self.epoch)
        self.restart(GroupCoordinatorConfig())
        self.loader.lead(PARTITION, self.epoch)
        self.tasks.run()


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


@pytest.mark.parametrize(("is_commit", "after"), [(True, 7), (False, 5)])
@pytest.mark.parametrize("loads", [0, 1, 2], ids=["here", "loaded", "loaded-again"])
def test_offsets_count_when_their_transaction_is_committed(
    fixture: Fixture, is_commit: bool, after: int, loads: int
) -> None:
    """10:TX-12: the old value, and 88 for readers of stable ones; then the new or the old one."""
    fixture.commit_plainly(5)
    assert fixture.commit(7) == [_NONE]
    for _ in range(loads):
        fixture.fail_over()
    assert fixture.fetch() == 5
    assert fixture.fetch(is_stable=True) is UNSTABLE
    fixture.end(is_commit=is_commit)
    assert fixture.fetch() == fixture.fetch(is_stable=True) == after
    fixture.fail_over()
    assert fixture.fetch() == fixture.fetch(is_stable=True) == after


def test_the_batch_belongs_to_the_producer(fixture: Fixture) -> None:
    """10 section 9.5: so that the marker of its transaction ends it in the log, too."""
    fixture.commit(7)
    header = parse_header(fixture.topic.batches[PARTITION][0])
    assert header is not None
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 0, 0)
    assert header.is_transactional
    assert not header.is_control


def test_offsets_are_staged_before_their_batch_is_replicated(fixture: Fixture) -> None:
    """15:KAFKA-12671 turned round: no reader of stable offsets sees the value before."""
    fixture.commit_plainly(5)
    fixture.topic.is_replicated = True
    answers = fixture.commit(7)
    assert not answers
    assert fixture.fetch(is_stable=True) is UNSTABLE
    fixture.topic.replicate()
    assert answers == [_NONE]
    assert fixture.fetch(is_stable=True) is UNSTABLE


def test_the_marker_decides_about_a_commit_whose_answer_was_lost(fixture: Fixture) -> None:
    """10 section 9.7: what is in the log is committed by its marker, here as after a load."""
    fixture.commit_plainly(5)
    fixture.topic.is_replicated = True
    answers = fixture.commit(7)
    [(_, _, on_committed)] = fixture.topic.unreplicated
    fixture.topic.unreplicated.clear()
    on_committed(ErrorCode.REQUEST_TIMED_OUT, -1)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert fixture.fetch(is_stable=True) is UNSTABLE
    fixture.end()
    assert fixture.fetch(is_stable=True) == 7
    fixture.fail_over()
    assert fixture.fetch() == 7


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_commit_that_was_not_written_stages_nothing(
    fixture: Fixture, error: ErrorCode, told: ErrorCode
) -> None:
    """07 section 5.3: and leaves no group behind."""
    fixture.topic.error = error
    assert fixture.commit(7) == [told]
    assert not fixture.registry.groups


def test_the_later_commit_in_the_log_wins(fixture: Fixture) -> None:
    """10 section 9.5: an older transactional offset does not replace a newer plain one."""
    fixture.commit(7)
    fixture.commit_plainly(9)
    fixture.end()
    assert fixture.fetch() == 9
    fixture.fail_over()
    assert fixture.fetch() == 9


def test_two_transactions_stage_for_one_partition(fixture: Fixture) -> None:
    """07 section 2.4: each has its own, and both must have ended."""
    fixture.commit(7, producer_id=1)
    fixture.commit(8, producer_id=2)
    fixture.end(producer_id=2)
    assert fixture.fetch() == 8
    assert fixture.fetch(is_stable=True) is UNSTABLE
    fixture.end(producer_id=1)
    assert fixture.fetch(is_stable=True) == 8


def test_a_transaction_of_several_groups(fixture: Fixture) -> None:
    """07 section 3: all groups of the producer in the partition."""
    fixture.commit(7, group_id="g")
    fixture.commit(8, group_id="h")
    fixture.end()
    assert fixture.committed("g") == {("t", 0): 7}
    assert fixture.committed("h") == {("t", 0): 8}


def test_a_group_of_an_aborted_transaction_alone_is_forgotten(fixture: Fixture) -> None:
    fixture.commit(7)
    assert len(fixture.registry) == 1
    fixture.end(is_commit=False)
    assert len(fixture.registry) == 0


def test_a_repeated_marker_changes_nothing(fixture: Fixture) -> None:
    """10 section 9.7."""
    fixture.commit(7)
    fixture.end()
    fixture.commit_plainly(3)
    fixture.end()
    assert fixture.fetch() == 3


def test_all_offsets_include_the_unstable_ones(fixture: Fixture) -> None:
    """A reader of all stable offsets must not miss one that is about to exist."""
    fixture.commit(7)
    offsets = fixture.registry.offsets.of("g")
    assert fetch_all(offsets, False) == []
    assert fetch_all(offsets, True) == [("t", [(0, -1, -1, "", int(UNSTABLE))])]


# Checks


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 40_000}, ErrorCode.INVALID_GROUP_ID),
        ({"generation_id": 3, "member_id": "m"}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "m"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"metadata": "m" * 5_000}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
    ids=["empty-group", "long-group", "generation", "member", "instance", "metadata"],
)
def test_refused_commits(fixture: Fixture, fields: dict[str, Any], error: ErrorCode) -> None:
    """07 section 6.6: nothing is written, and no group is left."""
    assert fixture.commit(7, **fields) == [error]
    assert not fixture.topic.batches[PARTITION]
    assert not fixture.registry.groups


def test_a_broker_that_does_not_coordinate_the_group(fixture: Fixture) -> None:
    fixture.loader.resign(PARTITION, 1)
    assert fixture.commit(7) == [ErrorCode.NOT_COORDINATOR]


def test_the_group_is_checked_again_after_the_verification(fixture: Fixture) -> None:
    """STYLE: after a wait every assumption is checked again."""
    gate = fixture.groups.transaction_gate = Gate()
    moved = fixture.commit(7)
    [(partition, commit, respond)] = gate.asked
    assert (partition, commit.transactional_id) == (PARTITION, "x")
    fixture.loader.resign(PARTITION, 1)
    respond(_NONE)
    assert moved == [ErrorCode.NOT_COORDINATOR]
    assert not fixture.topic.batches[PARTITION]


def test_a_transaction_that_is_not_confirmed_stages_nothing(fixture: Fixture) -> None:
    """10:TX-11"""
    gate = fixture.groups.transaction_gate = Gate()
    refused = fixture.commit(7)
    gate.asked[0][2](ErrorCode.TRANSACTION_ABORTABLE)
    assert refused == [ErrorCode.TRANSACTION_ABORTABLE]
    assert not fixture.registry.groups
    confirmed = fixture.commit(8)
    gate.asked[1][2](_NONE)
    assert confirmed == [_NONE]
    assert fixture.fetch(is_stable=True) is UNSTABLE


# Loading


def test_a_transaction_that_ends_while_its_partition_is_loaded(fixture: Fixture) -> None:
    """The load has read the offsets, and not the marker."""
    fixture.commit(7)
    fixture.epoch += 1
    fixture.topic.lead(PARTITION, fixture.epoch)
    fixture.restart(GroupCoordinatorConfig())
    fixture.loader.lead(PARTITION, fixture.epoch)
    fixture.groups.end_transaction(PARTITION, 4000, is_commit=True)
    fixture.tasks.run()
    assert fixture.fetch(is_stable=True) == 7


def test_an_end_of_an_earlier_leadership_ends_nothing_later(fixture: Fixture) -> None:
    """A load that was given up takes what it was told with it."""
    fixture.commit(7)
    fixture.restart(GroupCoordinatorConfig())
    fixture.loader.lead(PARTITION, 1)
    fixture.groups.end_transaction(PARTITION, 4000, is_commit=True)
    fixture.loader.resign(PARTITION, 2)
    fixture.topic.lead(PARTITION, 3)
    fixture.loader.lead(PARTITION, 3)
    fixture.tasks.run()
    assert fixture.fetch(is_stable=True) is UNSTABLE


def test_an_end_that_reaches_a_broker_without_the_partition(fixture: Fixture) -> None:
    fixture.loader.resign(PARTITION, 1)
    fixture.groups.end_transaction(PARTITION, 4000, is_commit=True)
    assert not fixture.registry.groups


# Removals


def test_staged_offsets_never_expire(fixture: Fixture) -> None:
    """07 section 2.5"""
    fixture.commit_plainly(5)
    fixture.commit(7)
    fixture.clock.advance(8 * 24 * 3_600_000)
    fixture.groups.expire()
    fixture.tasks.run()
    assert fixture.fetch() == 5
    assert fixture.fetch(is_stable=True) is UNSTABLE


@pytest.mark.parametrize("has_plain", [True, False])
def test_a_deleted_group_does_not_come_back_with_the_marker(
    fixture: Fixture, has_plain: bool
) -> None:
    """Also not on the broker that loads it: the tombstone is later than the offsets."""
    if has_plain:
        fixture.commit_plainly(5)
    fixture.commit(7)
    answers: list[ErrorCode] = []
    fixture.groups.delete_group("g", answers.append)
    assert answers == [_NONE]
    fixture.end()
    assert not fixture.registry.groups
    fixture.fail_over()
    assert not fixture.registry.groups


def test_a_deleted_offset_does_not_come_back_with_the_marker(fixture: Fixture) -> None:
    fixture.commit(7)
    fixture.commit(8, topic="u")
    told: list[dict[tuple[str, int], ErrorCode]] = []
    fixture.groups.delete_offsets("g", [("t", 0)], lambda _, results: told.append(results))
    assert told == [{("t", 0): _NONE}]
    assert fixture.fetch(is_stable=True) == -1
    fixture.end()
    assert (fixture.fetch(), fixture.fetch(topic="u")) == (-1, 8)
    fixture.fail_over()
    assert (fixture.fetch(), fixture.fetch(topic="u")) == (-1, 8)


def test_offsets_of_a_deleted_topic_do_not_come_back_with_the_marker(fixture: Fixture) -> None:
    fixture.commit_plainly(5)
    fixture.commit(7)
    fixture.commit(8, topic="u")
    fixture.groups.forget_topics(["t"])
    fixture.tasks.run()
    assert fixture.fetch(is_stable=True) == -1
    fixture.end()
    assert (fixture.fetch(), fixture.fetch(topic="u")) == (-1, 8)
    fixture.fail_over()
    assert (fixture.fetch(), fixture.fetch(topic="u")) == (-1, 8)


def test_offsets_committed_after_a_deletion_stay(fixture: Fixture) -> None:
    """The tombstone removes what precedes it."""
    fixture.commit_plainly(5)
    fixture.groups.delete_offsets("g", [("t", 0)], lambda *_: None)
    fixture.commit(7)
    fixture.end()
    assert fixture.fetch() == 7
    fixture.fail_over()
    assert fixture.fetch() == 7
