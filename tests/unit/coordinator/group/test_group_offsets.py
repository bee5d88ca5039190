"""Committed offsets: who may commit, what is written, what is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.group.group import GroupState
from odradek.coordinator.group.offsets import (
    NO_OFFSET,
    CommitWrite,
    GroupOffsets,
    OffsetStore,
    apply_commit,
    build_commit,
    complete_transaction,
    fail_commit,
    fetch_all,
    fetch_offset,
)
from odradek.coordinator.group.records import (
    OffsetAndMetadata,
    OffsetKey,
    parse_key,
    parse_offset_value,
)
from odradek.coordinator.group.sessions import check_commit
from odradek.errors import ErrorCode
from odradek.records.batch import is_crc_valid, parse_header
from odradek.records.builder import build_batch
from odradek.records.record import read_records
from tests.unit.coordinator.group.group_driver import GroupDriver

NOW = 1_580_000_000_000
Commit = tuple[int, int, int, str | None]


def commit(offsets: GroupOffsets, topic: str, *partitions: Commit, at: int = 0) -> CommitWrite:
    write = build_commit(offsets, [(topic, partitions)], NOW, 4096)
    assert write is not None
    apply_commit(write, at)
    return write


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("group_id", ["g", "a group with a name " + "x" * 60, "\u20ac" * 5_000])
def test_a_batch_is_what_the_record_encoder_would_write(count: int, group_id: str) -> None:
    offsets = GroupOffsets(group_id)
    rows = [(p, 10 * p, p % 3 - 1, "") for p in range(count)]
    write = build_commit(offsets, [("topic", rows)], NOW, 4096)
    assert write is not None
    expected = build_batch([(NOW, key, value, ()) for key, value in write.records()])
    assert write.batch == expected
    assert is_crc_valid(write.batch, 0, len(write.batch))
    assert len(write.values) == count


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**31 - 1),
            st.integers(-1, 2**63 - 1),
            st.integers(-1, 2**31 - 1),
            st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        ),
        min_size=1,
        max_size=70,
    ),
    st.sampled_from([-1, NOW + 5]),
)
def test_what_is_written_can_be_read(partitions: list[Commit], expire_ms: int) -> None:
    offsets = GroupOffsets("g")
    write = build_commit(offsets, [("t", partitions)], NOW, 4096, expire_ms=expire_ms)
    assert write is not None
    assert is_crc_valid(write.batch, 0, len(write.batch))
    header = parse_header(write.batch)
    assert header is not None
    assert (header.record_count, header.last_offset_delta) == (len(partitions), len(partitions) - 1)
    records = list(read_records(write.batch))
    for record, (partition, offset, leader_epoch, metadata) in zip(
        records, partitions, strict=True
    ):
        assert record.key is not None
        assert record.value is not None
        assert parse_key(record.key) == OffsetKey("g", "t", partition)
        epoch = leader_epoch if expire_ms < 0 else -1  # Version 1 has no room for it.
        assert parse_offset_value(record.value) == OffsetAndMetadata(
            offset, epoch, metadata or "", NOW, expire_ms
        )
    apply_commit(write, 7)
    # Of the same partition twice in a batch, the last counts.
    last = {partition: commit for partition, *commit in partitions}
    for partition, commit in last.items():
        fetched = fetch_offset(offsets, "t", partition, require_stable=True)
        assert fetched == (*commit[:2], commit[2] or "", 0)


def test_metadata_that_is_too_long_is_refused_and_leaves_no_trace() -> None:
    """A partition that stayed pending for ever would make every stable read fail."""
    offsets = GroupOffsets("g")
    topics = [("t", [(0, 1, -1, "four"), (1, 2, -1, "fives"), (2, 3, -1, None)])]
    write = build_commit(offsets, topics, NOW, 4)
    assert write is not None
    assert write.rejected == {("t", 1)}
    assert len(write.values) == 2
    apply_commit(write, 0)
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (1, -1, "four", 0)
    assert fetch_offset(offsets, "t", 1, require_stable=True) == NO_OFFSET
    assert fetch_offset(offsets, "t", 2, require_stable=True) == (3, -1, "", 0)


def test_with_all_metadata_too_long_nothing_is_written() -> None:
    offsets = GroupOffsets("g")
    assert build_commit(offsets, [("t", [(0, 1, -1, "fives")])], NOW, 4) is None
    assert offsets.is_empty


def test_metadata_has_to_fit_a_string_of_the_topic() -> None:
    offsets = GroupOffsets("g")
    assert build_commit(offsets, [("t", [(0, 1, -1, "x" * 32_768)])], NOW, 1_000_000) is None
    assert build_commit(offsets, [("t", [(0, 1, -1, "\u20ac" * 10_923)])], NOW, 1_000_000) is None
    assert build_commit(offsets, [("t", [(0, 1, -1, "x" * 32_767)])], NOW, 1_000_000) is not None


def test_a_commit_that_is_being_written() -> None:
    offsets = GroupOffsets("g")
    commit(offsets, "t", (0, 1, 3, "old"), at=10)
    write = build_commit(offsets, [("t", [(0, 2, 3, "new"), (1, 5, -1, "")])], NOW, 4096)
    assert write is not None
    unstable = (-1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    assert fetch_offset(offsets, "t", 0, require_stable=True) == unstable
    assert fetch_offset(offsets, "t", 0, require_stable=False) == (1, 3, "old", 0)
    assert fetch_offset(offsets, "t", 1, require_stable=False) == NO_OFFSET
    assert fetch_all(offsets, require_stable=False) == [("t", [(0, 1, 3, "old", 0)])]
    assert fetch_all(offsets, require_stable=True) == [("t", [(0, *unstable), (1, *unstable)])]
    fail_commit(write)
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (1, 3, "old", 0)
    assert fetch_offset(offsets, "t", 1, require_stable=True) == NO_OFFSET
    assert list(offsets.slots) == [("t", 0)]


def test_commits_that_are_acknowledged_out_of_order() -> None:
    """The one that is later in the log stays."""
    offsets = GroupOffsets("g")
    first = build_commit(offsets, [("t", [(0, 100, -1, "")])], NOW, 4096)
    second = build_commit(offsets, [("t", [(0, 200, -1, "")])], NOW, 4096)
    assert first is not None
    assert second is not None
    apply_commit(second, 10)
    assert fetch_offset(offsets, "t", 0, require_stable=True)[3] == 88
    apply_commit(first, 9)
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (200, -1, "", 0)


def test_a_failed_commit_does_not_hide_an_earlier_one_that_succeeds() -> None:
    offsets = GroupOffsets("g")
    first = build_commit(offsets, [("t", [(0, 100, -1, "")])], NOW, 4096)
    second = build_commit(offsets, [("t", [(0, 200, -1, "")])], NOW, 4096)
    assert first is not None
    assert second is not None
    fail_commit(second)
    apply_commit(first, 9)
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (100, -1, "", 0)


def test_a_store_knows_groups_by_their_names_alone() -> None:
    store = OffsetStore()
    first, second = GroupOffsets("g"), GroupOffsets("g")
    store.open(first)
    commit(first, "t", (0, 1, -1, ""))
    assert store.of("g") is first
    assert store.is_current(first)
    store.open(second)
    assert not store.is_current(first), "an earlier group of the name"
    assert list(store) == [second]
    store.close("g")
    store.close("g")
    assert not store.is_current(second)


class TestWhoMayCommit:
    def check(
        self, driver: GroupDriver, member: str, generation: int, instance: str | None = None
    ) -> ErrorCode:
        return check_commit(driver.group, member, generation, instance, driver.timer_ms)

    def test_outside_of_a_group(self) -> None:
        """07:G-13: 25 while there are members, stored while it is Empty."""
        driver = GroupDriver()
        assert self.check(driver, "", -1) is ErrorCode.NONE
        (member_id,) = driver.make_stable(1)
        assert self.check(driver, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
        driver.join(member_id)
        assert self.check(driver, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
        driver.leave((member_id, None))
        assert driver.state() is GroupState.EMPTY
        assert self.check(driver, "", -1) is ErrorCode.NONE
        # An id that is sent along is checked.
        assert self.check(driver, "x", -1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert self.check(driver, "", -1, "i") is ErrorCode.UNKNOWN_MEMBER_ID
        assert self.check(driver, "x", 2) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_members(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.make_stable(2)
        assert self.check(driver, leader, 1) is ErrorCode.NONE
        assert self.check(driver, leader, 0) is ErrorCode.ILLEGAL_GENERATION
        assert self.check(driver, leader, -1) is ErrorCode.ILLEGAL_GENERATION
        assert self.check(driver, "x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        # While members join, those who have not yet may commit what they have done.
        driver.join(leader)
        assert driver.state() is GroupState.PREPARING_REBALANCE
        assert self.check(driver, follower, 1) is ErrorCode.NONE
        driver.join(follower)
        assert driver.state() is GroupState.COMPLETING_REBALANCE
        assert self.check(driver, follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        driver.group.bury()
        assert self.check(driver, "x", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert self.check(driver, "", -1) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_static_members(self) -> None:
        driver = GroupDriver()
        a, b = driver.make_static_pair()
        assert self.check(driver, a, 1, "a") is ErrorCode.NONE
        assert self.check(driver, a, 1, "b") is ErrorCode.FENCED_INSTANCE_ID
        assert self.check(driver, b, 1, "?") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_commit_is_a_sign_of_life(self) -> None:
        driver = GroupDriver()
        (member_id,) = driver.make_stable(1)
        for _ in range(5):
            driver.advance(9_000)
            assert self.check(driver, member_id, 1) is ErrorCode.NONE
        assert driver.state() is GroupState.STABLE


def test_offsets_of_an_open_transaction() -> None:
    offsets = GroupOffsets("g")
    commit(offsets, "t", (0, 1, -1, ""), at=5)
    value = OffsetAndMetadata(50, -1, "", NOW)
    offsets.transactional = {7: {("t", 0): (6, value), ("t", 1): (6, value)}}
    assert fetch_offset(offsets, "t", 0, require_stable=True)[3] == 88
    assert fetch_offset(offsets, "t", 0, require_stable=False) == (1, -1, "", 0)
    commit(offsets, "t", (1, 70, -1, ""), at=8)
    complete_transaction(offsets, 7, is_commit=True)
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (50, -1, "", 0)
    # A plain commit that is later in the log stays.
    assert fetch_offset(offsets, "t", 1, require_stable=True) == (70, -1, "", 0)
    offsets.transactional = {7: {("t", 0): (9, OffsetAndMetadata(99, -1, "", NOW))}}
    complete_transaction(offsets, 7, is_commit=False)
    complete_transaction(offsets, 8, is_commit=True)
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (50, -1, "", 0)
    assert offsets.transactional == {}
