"""What goes: expired offsets, deleted topics, groups and offsets that administrators remove."""

import pytest

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group import admin
from odradek.coordinator.group.expiry import (
    Removal,
    apply_removal,
    expire,
    fail_removal,
    forget_topics,
)
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.offsets import GroupOffsets, apply_commit, build_commit, fail_commit
from odradek.coordinator.group.records import (
    OffsetAndMetadata,
    encode_group_key,
    encode_offset_key,
)
from odradek.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import GroupDriver

T0 = 1_580_000_000_000
RETENTION_MS = 10_080 * 60_000
SUBSCRIBED = b"\0\1\0\0\0\1\0\3sub"


def commit(
    offsets: GroupOffsets,
    topic: str,
    partition: int,
    *,
    wall_ms: int = T0,
    at: int = 0,
    expire_ms: int = -1,
) -> None:
    topics = [(topic, [(partition, 1, -1, "")])]
    write = build_commit(offsets, topics, wall_ms, 4096, expire_ms=expire_ms)
    assert write is not None
    apply_commit(write, at)


def simple_group() -> tuple[Group, GroupOffsets]:
    offsets = GroupOffsets("g")
    commit(offsets, "t", 0)
    return Group("g", GroupCoordinatorConfig(), wall_ms=T0), offsets


def consumer_driver() -> GroupDriver:
    driver = GroupDriver()
    driver.make_stable(2, protocols=(("range", SUBSCRIBED),))
    assert driver.group.subscribed_topics == frozenset({"sub"})
    return driver


def test_a_simple_consumers_offset_expires_by_its_commit_time() -> None:
    group, offsets = simple_group()
    assert expire(group, offsets, T0 + RETENTION_MS - 1).records == []
    commit(offsets, "t", 1, wall_ms=T0 + 1)
    removal = expire(group, offsets, T0 + RETENTION_MS)
    assert removal.records == [(encode_offset_key("g", "t", 0), None)]
    assert removal.offset_count == 1
    assert list(offsets.slots) == [("t", 1)]
    assert group.state is GroupState.EMPTY
    removal = expire(group, offsets, T0 + RETENTION_MS + 1)
    # Nothing is left. It never was registered, so there is no registration to remove.
    assert removal.records == [(encode_offset_key("g", "t", 1), None)]
    assert group.is_dead


def test_an_empty_groups_offsets_expire_since_it_became_empty() -> None:
    driver = consumer_driver()
    commit(driver.offsets, "sub", 0, wall_ms=driver.now.wall_ms)
    driver.advance(100_000)
    group, offsets = driver.group, driver.offsets
    assert group.state is GroupState.EMPTY
    since = group.state_timestamp_ms
    assert since is not None
    assert expire(group, offsets, since + RETENTION_MS - 1).records == []
    removal = expire(group, offsets, since + RETENTION_MS)
    assert removal.records == [
        (encode_offset_key("g", "sub", 0), None),
        (encode_group_key("g"), None),
    ]
    assert removal.is_group
    assert group.is_dead


def test_an_empty_group_that_does_not_know_since_when_goes_by_commit_times() -> None:
    driver = consumer_driver()
    driver.advance(100_000)
    driver.group.state_timestamp_ms = None
    commit(driver.offsets, "sub", 0, wall_ms=T0)
    commit(driver.offsets, "sub", 1, wall_ms=T0 + 5)
    removal = expire(driver.group, driver.offsets, T0 + RETENTION_MS)
    assert removal.keys == [("sub", 0)]


def test_subscribed_topics_never_expire() -> None:
    driver = consumer_driver()
    commit(driver.offsets, "sub", 0)
    commit(driver.offsets, "other", 0)
    removal = expire(driver.group, driver.offsets, T0 + 100 * RETENTION_MS)
    assert removal.keys == [("other", 0)]
    assert not driver.group.is_dead


def test_nothing_expires_in_a_rebalance() -> None:
    """15:KAFKA-13636."""
    driver = consumer_driver()
    commit(driver.offsets, "other", 0)
    leader, follower = driver.group.members
    # A joins with another subscription; until it is over, "not subscribed" means nothing.
    driver.join(leader, protocols=(("range", b"\0\1\0\0\0\1\0\5other"),))
    late = T0 + 100 * RETENTION_MS
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert expire(driver.group, driver.offsets, late).records == []
    driver.join(follower, protocols=(("range", SUBSCRIBED),))
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    assert expire(driver.group, driver.offsets, late).records == []
    driver.sync_all([leader, follower])
    assert driver.group.subscribed_topics == frozenset({"other", "sub"})
    assert expire(driver.group, driver.offsets, late).records == []


def test_an_unreadable_subscription_protects_all() -> None:
    driver = GroupDriver()
    driver.make_stable(1, protocols=(("range", b"?"),))
    commit(driver.offsets, "t", 0)
    assert driver.group.subscribed_topics is None
    assert expire(driver.group, driver.offsets, T0 + 100 * RETENTION_MS).records == []


def test_offsets_of_another_protocol_type_never_expire_while_it_has_members() -> None:
    driver = GroupDriver()
    driver.make_stable(1, protocol_type="connect")
    commit(driver.offsets, "t", 0)
    assert expire(driver.group, driver.offsets, T0 + 100 * RETENTION_MS).records == []


def test_a_time_that_a_commit_names_is_honoured() -> None:
    group, offsets = Group("g", GroupCoordinatorConfig(), wall_ms=T0), GroupOffsets("g")
    commit(offsets, "t", 0, expire_ms=T0 + 50)
    commit(offsets, "t", 1, expire_ms=T0 + 2 * RETENTION_MS)
    assert expire(group, offsets, T0 + 49).records == []
    assert expire(group, offsets, T0 + 50).keys == [("t", 0)]
    assert expire(group, offsets, T0 + 2 * RETENTION_MS - 1).keys == []


def test_what_is_being_committed_never_expires() -> None:
    group, offsets = simple_group()
    write = build_commit(offsets, [("t", [(0, 2, -1, "")])], T0, 4096)
    assert write is not None
    assert expire(group, offsets, T0 + RETENTION_MS).records == []
    fail_commit(write)
    offsets.transactional = {7: {("t", 0): (3, OffsetAndMetadata(1, -1, "", T0))}}
    assert expire(group, offsets, T0 + RETENTION_MS).records == []
    offsets.transactional = {}
    assert expire(group, offsets, T0 + RETENTION_MS).keys == [("t", 0)]


def test_an_empty_group_that_somebody_is_about_to_join_stays() -> None:
    driver = GroupDriver()
    driver.join()
    assert expire(driver.group, driver.offsets, T0 + RETENTION_MS).is_group is False
    assert not driver.group.is_dead


def test_a_dead_group_has_nothing_to_clean() -> None:
    group, offsets = simple_group()
    group.bury()
    assert expire(group, offsets, T0 + RETENTION_MS).records == []
    assert forget_topics(group, offsets, {"t"}).records == []


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    driver = consumer_driver()
    commit(driver.offsets, "sub", 0)
    commit(driver.offsets, "sub", 1)
    commit(driver.offsets, "other", 0)
    removal = forget_topics(driver.group, driver.offsets, {"sub"})
    assert removal.keys == [("sub", 0), ("sub", 1)]
    assert list(driver.offsets.slots) == [("other", 0)]
    group, offsets = simple_group()
    write = build_commit(offsets, [("t", [(0, 2, -1, "")])], T0, 4096)
    assert forget_topics(group, offsets, ["t"]).offset_count == 1
    assert not group.is_dead
    assert write is not None
    fail_commit(write)
    assert offsets.slots == {}


class TestDeleteGroup:
    def test_an_empty_one(self) -> None:
        driver = consumer_driver()
        commit(driver.offsets, "t", 0)
        assert admin.delete_group(driver.group, driver.offsets) is ErrorCode.NON_EMPTY_GROUP
        driver.advance(100_000)
        removal = admin.delete_group(driver.group, driver.offsets)
        assert isinstance(removal, Removal)
        assert removal.records == [
            (encode_offset_key("g", "t", 0), None),
            (encode_group_key("g"), None),
        ]
        # Not yet durable: nobody may join what is about to go.
        assert driver.group.is_dead
        assert driver.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert admin.delete_group(driver.group, driver.offsets) is ErrorCode.GROUP_ID_NOT_FOUND
        apply_removal(driver.group, driver.offsets, removal, 100)
        assert driver.state() is GroupState.DEAD
        assert admin.delete_group(driver.group, driver.offsets) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_tombstones_that_are_not_written(self) -> None:
        group, offsets = simple_group()
        removal = admin.delete_group(group, offsets)
        assert isinstance(removal, Removal)
        fail_removal(group, removal)
        assert not group.is_dead
        assert list(offsets.slots) == [("t", 0)]

    def test_while_somebody_joins(self) -> None:
        driver = GroupDriver()
        driver.join_twice()
        assert admin.delete_group(driver.group, driver.offsets) is ErrorCode.NON_EMPTY_GROUP


class TestDeleteOffsets:
    def test_only_of_topics_nobody_is_subscribed_to(self) -> None:
        """07:G-15."""
        driver = consumer_driver()
        commit(driver.offsets, "sub", 0)
        commit(driver.offsets, "other", 0)
        partitions = [("sub", 0), ("other", 0), ("other", 9)]
        error, errors, removal = admin.delete_offsets(driver.group, driver.offsets, partitions)
        assert error is ErrorCode.NONE
        assert errors == {
            ("sub", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("other", 0): ErrorCode.NONE,
            ("other", 9): ErrorCode.NONE,
        }
        assert removal.records == [(encode_offset_key("g", "other", 0), None)]
        apply_removal(driver.group, driver.offsets, removal, 7)
        assert list(driver.offsets.slots) == [("sub", 0)]

    def test_of_another_type_with_members(self) -> None:
        """07:G-15."""
        driver = GroupDriver()
        driver.make_stable(1, protocol_type="connect")
        commit(driver.offsets, "t", 0)
        error, errors, removal = admin.delete_offsets(driver.group, driver.offsets, [("t", 0)])
        assert (error, errors, removal.records) == (ErrorCode.NON_EMPTY_GROUP, {}, [])

    def test_an_unknown_subscription_counts_as_subscribed(self) -> None:
        driver = GroupDriver()
        driver.make_stable(1, protocols=(("range", b"?"),))
        _, errors, _ = admin.delete_offsets(driver.group, driver.offsets, [("t", 0)])
        assert errors == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

    def test_of_an_empty_group_all(self) -> None:
        group, offsets = simple_group()
        error, errors, removal = admin.delete_offsets(group, offsets, [("t", 0), ("t", 0)])
        assert (error, errors) == (ErrorCode.NONE, {("t", 0): ErrorCode.NONE})
        assert removal.offset_count == 1

    def test_a_commit_behind_the_tombstone_stays(self) -> None:
        group, offsets = simple_group()
        _, _, removal = admin.delete_offsets(group, offsets, [("t", 0)])
        commit(offsets, "t", 0, at=11)
        apply_removal(group, offsets, removal, 10)
        assert offsets.slots["t", 0].record_offset == 11

    def test_a_commit_before_the_tombstone_that_ends_later_does_not_come_back(self) -> None:
        group, offsets = simple_group()
        write = build_commit(offsets, [("t", [(0, 5, -1, "")])], T0, 4096)
        _, _, removal = admin.delete_offsets(group, offsets, [("t", 0)])
        apply_removal(group, offsets, removal, 10)
        assert write is not None
        apply_commit(write, 9)
        assert offsets.slots["t", 0].committed is None

    def test_of_a_group_that_is_gone(self) -> None:
        group, offsets = simple_group()
        group.bury()
        error, _, _ = admin.delete_offsets(group, offsets, [("t", 0)])
        assert error is ErrorCode.GROUP_ID_NOT_FOUND


class TestDescribeAndList:
    def test_only_a_stable_group_shows_protocol_and_assignments(self) -> None:
        """What a describe of it prints: strategy, state, number of members."""
        driver = GroupDriver("mygroup")
        assert admin.describe(driver.group) == ("Empty", "", "", [])
        ids = driver.make_stable(2)
        summary = admin.describe(driver.group)
        assert (summary.state, summary.protocol, len(summary.members)) == ("Stable", "range", 2)
        first = summary.members[0]
        assert (first.member_id, first.client_id, first.client_host) == (ids[0], "c", "/127.0.0.1")
        assert (first.metadata, first.assignment) == (b"range metadata", ids[0].encode())
        driver.join(ids[0])
        summary = admin.describe(driver.group)
        assert (summary.state, summary.protocol_type) == ("PreparingRebalance", "consumer")
        assert summary.protocol == ""
        assert {(m.metadata, m.assignment) for m in summary.members} == {(b"", b"")}

    def test_overview(self) -> None:
        driver = GroupDriver("mygroup")
        assert admin.overview(driver.group) == ("mygroup", "", "Empty")

    @pytest.mark.parametrize(
        ("states", "types", "is_shown"),
        [
            ([], [], True),
            (["Stable", "Empty"], [], True),
            (["empty"], ["Classic"], True),
            (["Stable"], [], False),
            ([], ["consumer"], False),
            (["nonsense"], ["classic"], False),
        ],
    )
    def test_filters(self, states: list[str], types: list[str], is_shown: bool) -> None:
        assert admin.matches_filters(simple_group()[0], states, types) is is_shown
