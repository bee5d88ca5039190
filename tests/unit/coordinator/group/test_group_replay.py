"""Loading: the groups that the records of a partition leave."""

import pytest

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group import sessions
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.offsets import GroupOffsets, build_commit, fetch_offset
from odradek.coordinator.group.records import (
    GroupValue,
    MemberValue,
    OffsetAndMetadata,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.group.replay import GroupReplay, ReplayError, restore_group
from odradek.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import GroupDriver

CONFIG = GroupCoordinatorConfig()
NOW = 1_580_000_000_000
SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t"


def offset_value(offset: int) -> bytes:
    return encode_offset_value(OffsetAndMetadata(offset, -1, "", NOW))


def registration(generation_id: int, *member_ids: str, leader: str | None = None) -> bytes:
    members = [
        MemberValue(m, None, "c", "/h", 60_000, 10_000, SUBSCRIPTION, m.encode())
        for m in member_ids
    ]
    protocol = "range" if members else None
    return encode_group_value(GroupValue("consumer", generation_id, protocol, leader, NOW, members))


def load_all(
    *records: tuple[bytes, bytes | None],
) -> tuple[dict[str, Group], dict[str, GroupOffsets]]:
    replay = GroupReplay(CONFIG)
    for offset, (key, value) in enumerate(records):
        replay.record(key, value, batch_offset=offset)
    loaded = list(replay.finish(NOW))
    assert all(group.group_id == offsets.group_id for group, offsets in loaded)
    return (
        {group.group_id: group for group, _ in loaded},
        {offsets.group_id: offsets for _, offsets in loaded},
    )


def load(*records: tuple[bytes, bytes | None]) -> dict[str, Group]:
    return load_all(*records)[0]


def test_the_later_record_wins() -> None:
    key = encode_offset_key("g", "t", 0)
    _, offsets = load_all((key, offset_value(1)), (key, offset_value(2)), (key, offset_value(1)))
    assert fetch_offset(offsets["g"], "t", 0, require_stable=True) == (1, -1, "", 0)
    assert offsets["g"].slots["t", 0].record_offset == 2


def test_offsets_without_a_registration_make_an_empty_group() -> None:
    groups = load((encode_offset_key("g", "t", 0), offset_value(1)))
    group = groups["g"]
    assert (group.state, group.protocol_type) == (GroupState.EMPTY, None)
    assert not group.has_registration


def test_tombstones() -> None:
    key = encode_offset_key("g", "t", 0)
    assert load((key, offset_value(1)), (key, None)) == {}
    group_key = encode_group_key("g")
    assert load((group_key, registration(1, "m")), (group_key, None)) == {}
    # The registration goes, the offsets stay.
    groups = load((group_key, registration(1, "m")), (key, offset_value(1)), (group_key, None))
    assert groups["g"].members == {}
    assert groups["g"].protocol_type is None
    # And a group may come again.
    groups = load((group_key, registration(1, "m")), (group_key, None),
                  (group_key, registration(1, "n")))  # fmt: skip
    assert list(groups["g"].members) == ["n"]
    assert load((key, None), (group_key, None)) == {}


def test_a_group_with_members_is_stable_as_it_was() -> None:
    groups = load((encode_group_key("g"), registration(7, "a", "b", leader="b")))
    group = groups["g"]
    assert (group.state, group.generation_id) == (GroupState.STABLE, 7)
    assert (group.protocol_type, group.protocol_name) == ("consumer", "range")
    assert group.leader_id == "b"
    assert group.votes == {"range": 2}
    assert group.subscribed_topics == frozenset({"t"})
    assert group.state_timestamp_ms == NOW
    assert group.members["a"].assignment == b"a"
    assert sessions.heartbeat(group, "a", 7, None, 0) is ErrorCode.NONE


def test_a_group_without_members_is_empty() -> None:
    group = load((encode_group_key("g"), registration(7)))["g"]
    assert (group.state, group.generation_id) == (GroupState.EMPTY, 7)
    assert group.has_registration
    assert group.subscribed_topics == frozenset()


def test_what_was_before_a_restart_is_there_after_it() -> None:
    driver = GroupDriver()
    driver.make_static_pair()
    before = driver.group
    write = build_commit(driver.offsets, [("t", [(0, 5, 2, "x")])], NOW, 4096)
    assert write is not None
    driver.log += write.records()
    driver.fail_over()
    after = driver.group
    for name in ("state", "generation_id", "protocol_type", "protocol_name", "leader_id",
                 "static_members", "votes"):  # fmt: skip
        assert getattr(before, name) == getattr(after, name), name
    assert [m.summary("range") for m in before.members.values()] == [
        m.summary("range") for m in after.members.values()
    ]
    assert fetch_offset(driver.offsets, "t", 0, require_stable=True) == (5, 2, "x", 0)
    # Its next write says what the last one said.
    assignments = {m.member_id: m.assignment for m in after.members.values()}
    key, value = driver.log[-2]
    assert key == encode_group_key("g")
    stored = after.registration(assignments)
    assert encode_group_value(stored) == value


def test_unknown_keys_are_passed_over_and_counted() -> None:
    """07:G-11."""
    replay = GroupReplay(CONFIG)
    for version in (*range(3, 16), 3):
        replay.record(version.to_bytes(2, "big") + b"whatever", b"x", batch_offset=0)
    replay.record(encode_offset_key("g", "t", 0), offset_value(1), batch_offset=1)
    assert replay.skipped_key_versions == {3: 2} | dict.fromkeys(range(4, 16), 1)
    assert [group.group_id for group, _ in replay.finish(NOW)] == ["g"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, b"x", "no key"),
        (b"\0", b"x", "key of 1 bytes"),
        (encode_offset_key("g", "t", 0), b"\0\x09" + bytes(30), "offset value of version 9"),
        (encode_offset_key("g", "t", 0), b"\0\3\0", "offset value of 3 bytes"),
        (encode_group_key("g"), b"\0\x09" + bytes(30), "group value of version 9"),
    ],
)
def test_what_cannot_be_read_is_refused_and_changes_nothing(
    key: bytes | None, value: bytes, why: str
) -> None:
    """07:G-11: the partition is served with what was there before."""
    replay = GroupReplay(CONFIG)
    replay.record(encode_offset_key("h", "t", 0), offset_value(1), batch_offset=0)
    with pytest.raises(ReplayError, match=f"offset 17.*{why}"):
        replay.record(key, value, batch_offset=17)
    assert [group.group_id for group, _ in replay.finish(NOW)] == ["h"]


def test_a_registration_that_contradicts_itself_is_skipped_its_offsets_stay() -> None:
    replay = GroupReplay(CONFIG)
    replay.record(encode_offset_key("g", "t", 0), offset_value(5), batch_offset=0)
    replay.record(encode_group_key("g"), registration(1, "a", "a"), batch_offset=1)
    [(group, offsets)] = replay.finish(NOW)
    assert (group.state, group.members) == (GroupState.EMPTY, {})
    assert fetch_offset(offsets, "t", 0, require_stable=True) == (5, -1, "", 0)
    [why] = replay.refused_registrations
    assert "'a' twice" in why
    value = GroupValue(None, 1, "range", "a", NOW, [
        MemberValue("a", None, "c", "/h", 1, 1, b"", b"")])  # fmt: skip
    with pytest.raises(ReplayError, match="no protocol type"):
        restore_group("g", value, CONFIG)


def test_a_registration_without_a_protocol_can_be_served() -> None:
    value = GroupValue("connect", 1, None, "gone", None, [
        MemberValue("a", None, "c", "/h", 1, 1, b"", b"x")])  # fmt: skip
    group = restore_group("g", value, CONFIG)
    assert group.leader_id == "a"
    assert group.registration({"a": b"x"}).protocol_name == ""


class TestTransactions:
    def make(self) -> GroupReplay:
        replay = GroupReplay(CONFIG)
        replay.record(encode_offset_key("g", "t", 0), offset_value(1), batch_offset=0)
        for partition in (0, 1):
            replay.record(
                encode_offset_key("g", "t", partition),
                offset_value(50),
                batch_offset=1,
                producer_id=7,
                is_transactional=True,
            )
        return replay

    def test_committed(self) -> None:
        replay = self.make()
        replay.record(encode_offset_key("g", "t", 1), offset_value(60), batch_offset=3)
        replay.marker(7, True)
        ((_, offsets),) = replay.finish(NOW)
        assert fetch_offset(offsets, "t", 0, require_stable=True) == (50, -1, "", 0)
        assert fetch_offset(offsets, "t", 1, require_stable=True) == (60, -1, "", 0)

    def test_aborted(self) -> None:
        replay = self.make()
        replay.marker(7, False)
        replay.marker(8, True)
        ((_, offsets),) = replay.finish(NOW)
        assert fetch_offset(offsets, "t", 0, require_stable=True) == (1, -1, "", 0)
        assert list(offsets.slots) == [("t", 0)]

    def test_still_open(self) -> None:
        ((_, offsets),) = self.make().finish(NOW)
        assert fetch_offset(offsets, "t", 0, require_stable=True)[3] == 88
        assert fetch_offset(offsets, "t", 0, require_stable=False) == (1, -1, "", 0)
        assert list(offsets.transactional) == [7]

    def test_an_open_transaction_alone_makes_a_group(self) -> None:
        replay = GroupReplay(CONFIG)
        key = encode_offset_key("g", "t", 0)
        transaction = {"producer_id": 7, "is_transactional": True}
        replay.record(key, offset_value(50), batch_offset=0, **transaction)  # type: ignore[arg-type]  # two kinds of values
        ((_, offsets),) = replay.finish(NOW)
        assert offsets.slots == {}
        replay.record(key, None, batch_offset=1, **transaction)  # type: ignore[arg-type]  # two kinds of values
        assert list(replay.finish(NOW)) == []
