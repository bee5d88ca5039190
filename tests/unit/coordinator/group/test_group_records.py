"""Keys and values of the offsets topic, byte by byte."""

import pytest

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.group import GroupState
from odradek.coordinator.group.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetAndMetadata,
    OffsetKey,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    fits_string,
    parse_group_value,
    parse_key,
    parse_offset_value,
)
from odradek.coordinator.group.replay import restore_group
from odradek.coordinator.partitioning import java_string_hash, partition_for
from odradek.errors import DecodeError

T = 1_580_000_000_000

# 07:T15
ONE_MEMBER = GroupValue(
    "consumer",
    1,
    "range",
    "c-1",
    T,
    [MemberValue("c-1", None, "c", "/127.0.0.1", 300_000, 10_000, b"\x01\x02", b"\x03")],
)
ONE_MEMBER_BYTES = (
    "00030008636f6e73756d657200000001000572616e67650003632d310000016fdf56b800000000010003632d31"
    "ffff000163000a2f3132372e302e302e31000493e0000027100000000201020000000103"
)


def data(text: str) -> bytes:
    return bytes.fromhex(text)


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        pytest.param("testgroup", 27, id="07:T4"),
        pytest.param("mygroup", 39, id="07:T8-mygroup"),
        pytest.param("test", 48, id="07:T8-test"),
        pytest.param("my-group", 12, id="07:T8-my-group"),
        pytest.param("", 0, id="07:T8-empty"),
        pytest.param("connect-cluster", 13, id="07:T8-connect-cluster"),
        pytest.param("polygenelubricants", 0, id="07:T9"),
        pytest.param("\U0001f600", 49, id="07:T10"),
        pytest.param("static-g", 30, id="07:T20"),
    ],
)
def test_partition_of_a_group(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("testgroup", -1_172_783_827, id="07:T7"),
        pytest.param("polygenelubricants", -(2**31), id="07:T9"),
        pytest.param("\U0001f600", 1_772_899, id="07:T10"),
        pytest.param("static-g", 1_318_318_280, id="07:T20"),
    ],
)
def test_java_string_hash(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_offset_key() -> None:
    """07:T11."""
    key = data("0001 0009 7465737467726f7570 0001 74 00000000")
    assert encode_offset_key("testgroup", "t", 0) == key
    assert parse_key(key) == OffsetKey("testgroup", "t", 0)
    assert str(parse_key(key)) == "[testgroup,t,0]"
    assert parse_key(b"\0\0" + key[2:]) == OffsetKey("testgroup", "t", 0)


def test_group_key() -> None:
    """07:T12."""
    key = data("0002 0009 7465737467726f7570")
    assert encode_group_key("testgroup") == key
    assert parse_key(key) == GroupKey("testgroup")
    assert str(parse_key(key)) == "testgroup"


@pytest.mark.parametrize("version", [-1, 3, 4, 15, 32767])
def test_key_of_an_unknown_version_is_only_named(version: int) -> None:
    assert parse_key(version.to_bytes(2, "big", signed=True) + b"\xff\xff\xff") == version


@pytest.mark.parametrize("size", range(1, 19))
def test_a_key_that_ends_too_early_is_refused(size: int) -> None:
    key = encode_offset_key("testgroup", "t", 0)
    if size < 2 or size < len(key):
        with pytest.raises(DecodeError, match="key"):
            parse_key(key[:size])


def test_offset_value_3() -> None:
    """07:T13."""
    value = data("0003 000000000000002a ffffffff 0000 0000016fdf56b800")
    committed = OffsetAndMetadata(42, -1, "", T)
    assert encode_offset_value(committed) == value
    assert parse_offset_value(value) == committed


def test_offset_value_1() -> None:
    """07:T14."""
    value = data("0001 000000000000002a 0000 0000016fdf56b800 0000017003633c00")
    committed = OffsetAndMetadata(42, -1, "", T, 1_580_604_800_000)
    assert encode_offset_value(committed) == value
    assert parse_offset_value(value) == committed


def test_offset_values_0_and_2_have_one_timestamp_and_no_epoch() -> None:
    body = data("000000000000002a 0002 6d65 0000016fdf56b800")
    for version in (b"\0\0", b"\0\2"):
        assert parse_offset_value(version + body) == OffsetAndMetadata(42, -1, "me", T)


def test_offset_value_1_without_expiry_does_not_expire_at_once() -> None:
    """15:KAFKA-8069."""
    value = data("0001 000000000000002a 0000 0000016fdf56b800 ffffffffffffffff")
    assert parse_offset_value(value) == OffsetAndMetadata(42, -1, "", T)


def test_offset_value_4_of_kafka_4() -> None:
    """07:T17."""
    value = data(
        "0004 000000000000000a 00000000 01 000001a1e12cb106 01 00 10"
        "3cb9b4d60c644fe29f677627ba66df07"
    )
    assert parse_offset_value(value) == OffsetAndMetadata(10, 0, "", 1_794_779_164_934)


def test_offset_value_4_with_metadata() -> None:
    """07:T18: metadata is opaque, its NUL stays."""
    value = data(
        "0004 0000000000000005 00000000 06 6d65746100 000001a1e12cb132 01 00 10"
        "3cb9b4d60c644fe29f677627ba66df07"
    )
    assert parse_offset_value(value) == OffsetAndMetadata(5, 0, "meta\0", 1_794_779_164_978)


def test_group_value_3() -> None:
    """07:T15."""
    assert encode_group_value(ONE_MEMBER).hex() == ONE_MEMBER_BYTES
    assert parse_group_value(data(ONE_MEMBER_BYTES)) == ONE_MEMBER


def test_group_value_3_without_members() -> None:
    """07:T16."""
    value = GroupValue("consumer", 2, None, None, T, [])
    encoded = data("00030008636f6e73756d657200000002ffffffff0000016fdf56b80000000000")
    assert encode_group_value(value) == encoded
    assert parse_group_value(encoded) == value


def test_group_value_of_a_group_kafka_4_has_just_made() -> None:
    """07:T19."""
    encoded = data("0003 0000 00000000 ffff ffff 000001a1e12caebb 00000000")
    value = parse_group_value(encoded)
    assert value == GroupValue(None, 0, None, None, 1_794_779_164_347, [])
    group = restore_group("g", value, GroupCoordinatorConfig())
    assert group.state is GroupState.EMPTY
    assert group.protocol_type is None
    assert group.has_registration


def test_old_group_values_have_fewer_fields() -> None:
    def encode(version: int) -> bytes:
        member = "0003632d31" + "" + "000163" + "000a2f3132372e302e302e31"
        rebalance = "000493e0" if version >= 1 else ""
        instance = "ffff" if version >= 3 else ""
        state = "0000016fdf56b800" if version >= 2 else ""
        member = f"0003632d31{instance}000163000a2f3132372e302e302e31{rebalance}00002710"
        head = f"{version:04x}0008636f6e73756d657200000001000572616e67650003632d31{state}00000001"
        return data(head + member + "0000000201020000000103")

    assert parse_group_value(encode(3)) == ONE_MEMBER
    assert parse_group_value(encode(2)) == ONE_MEMBER
    assert parse_group_value(encode(1)) == ONE_MEMBER._replace(state_timestamp_ms=None)
    # Version 0 knows no rebalance timeout: the session timeout takes its place.
    (member,) = parse_group_value(encode(0)).members
    assert member.rebalance_timeout_ms == member.session_timeout_ms == 10_000


def test_group_value_4_is_compact_with_tags() -> None:
    member = "04632d31" + "00" + "0263" + "0b2f3132372e302e302e31" + "000493e000002710"
    member += "030102" + "0203" + "01" + "09" + "02" + "abcd"
    head = "0004" + "09636f6e73756d6572" + "00000001" + "0672616e6765" + "04632d31"
    value = data(head + "0000016fdf56b800" + "02" + member + "00")
    assert parse_group_value(value) == ONE_MEMBER


@pytest.mark.parametrize("version", [-1, 5, 9])
def test_an_unknown_value_version_is_refused(version: int) -> None:
    """07:G-11: passing over it would lose a commit."""
    encoded = version.to_bytes(2, "big", signed=True) + bytes(40)
    with pytest.raises(DecodeError, match=f"offset value of version {version}"):
        parse_offset_value(encoded)
    with pytest.raises(DecodeError, match=f"group value of version {version}"):
        parse_group_value(encoded)


@pytest.mark.parametrize("size", range(len(ONE_MEMBER_BYTES) // 2))
def test_a_group_value_that_ends_too_early_is_refused(size: int) -> None:
    with pytest.raises(DecodeError, match="group value"):
        parse_group_value(data(ONE_MEMBER_BYTES)[:size])


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("0003 000000000000002a ffffffff ffff 0000016fdf56b800", id="null metadata"),
        pytest.param("0003 000000000000002a ffffffff 0002 ffff 0000016fdf56b800", id="no UTF-8"),
        pytest.param("0003 000000000000002a ffffffff fffe 0000016fdf56b800", id="length -2"),
        pytest.param("0004 000000000000002a ffffffff 01 0000016fdf56b800", id="no tags"),
        pytest.param("0004 000000000000002a ffffffff 01 0000016fdf56b800 01 00 10 00", id="tag"),
    ],
)
def test_a_malformed_offset_value_is_refused(value: str) -> None:
    with pytest.raises(DecodeError):
        parse_offset_value(data(value))


def test_what_a_string_of_the_topic_can_hold() -> None:
    assert fits_string(None)
    assert fits_string("x" * 32_767)
    assert not fits_string("x" * 32_768)
    assert fits_string("\u20ac" * 10_922)
    assert not fits_string("\u20ac" * 10_923)
