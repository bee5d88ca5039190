"""Generated codecs: what the oracles cannot show, that is limits, refusals and odd types."""

import struct
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.errors import ApiError, DecodeError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message, encode_message_parts, parse_message
from odradek.protocol.headers import RequestHeader, encode_request_header
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.messages.find_coordinator import FindCoordinatorResponse
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.primitives import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAX_STRING_BYTES,
    STRING,
    UINT16,
    UINT32,
    UUID,
    WireType,
)
from odradek.protocol.schema import Message, array, replace, wire
from tests.support.long_strings import LONGEST, encode_one_byte_longer


class Pair(Message):
    left: int = wire(INT32)
    right: int = wire(INT32, "1+", ignorable=True)


class Everything(Message, versions="0-1", flexible="1+"):
    small: int = wire(INT8)
    unsigned_16: int = wire(UINT16)
    unsigned_32: int = wire(UINT32)
    real: float = wire(FLOAT64)
    flag: bool = wire(BOOL)
    ids: Sequence[bytes] = wire(array(UUID))
    flags: Sequence[bool] = wire(array(BOOL))
    longs: Sequence[int] | None = wire(array(INT64), nullable="0+")
    blobs: Sequence[bytes] = wire(array(BYTES))
    pair: Pair = wire(Pair)
    maybe: Pair | None = wire(Pair, "1+", nullable="1+", default=None)
    tagged_longs: Sequence[int] = wire(array(INT64), "1+", tag=3)
    tagged_text: str = wire(STRING, "1+", tag=1, default="x")


FULL: dict[str, Any] = {
    "small": -1,
    "unsigned_16": 65535,
    "unsigned_32": 4294967295,
    "real": 1.5,
    "flag": True,
    "ids": (bytes(range(16)),),
    "flags": (True, False),
    "longs": (1, -(1 << 63)),
    "blobs": (b"", b"ab"),
}


def test_all_types_plain() -> None:
    message = Everything(**FULL, pair=Pair(left=7))
    expected = (
        "ff ffff ffffffff 3ff8000000000000 01"
        "00000001 000102030405060708090a0b0c0d0e0f"
        "00000002 01 00"
        "00000002 0000000000000001 8000000000000000"
        "00000002 00000000 00000002 6162"
        "00000007"
    )
    encoded = bytes.fromhex(expected)
    assert encode_message(message, 0) == encoded
    assert parse_message(Everything, encoded, 0) == (message, len(encoded))


def test_all_types_flexible() -> None:
    message = Everything(
        **FULL, pair=Pair(left=7, right=8), maybe=Pair(), tagged_longs=(5,), tagged_text=""
    )
    expected = (
        "ff ffff ffffffff 3ff8000000000000 01"
        "02 000102030405060708090a0b0c0d0e0f"
        "03 01 00"
        "03 0000000000000001 8000000000000000"
        "03 01 03 6162"
        "00000007 00000008 00"
        "01 00000000 00000000 00"
        "02 0101 01 0309 02 0000000000000005"
    )
    encoded = bytes.fromhex(expected)
    assert encode_message(message, 1) == encoded
    assert parse_message(Everything, encoded, 1) == (message, len(encoded))


@pytest.mark.parametrize("version", [0, 1])
def test_nulls(version: int) -> None:
    message = Everything(longs=None)
    encoded = encode_message(message, version)
    assert parse_message(Everything, encoded, version) == (message, len(encoded))


def test_any_byte_but_zero_is_true() -> None:
    encoded = bytearray(encode_message(Everything(), 0))
    encoded[15] = 0x40
    assert parse_message(Everything, encoded, 0)[0].flag is True


def test_a_nullable_struct_is_absent_or_present_and_nothing_else() -> None:
    encoded = bytearray(encode_message(Everything(), 1))
    at = len(encoded) - 2
    assert encoded[at] == 0xFF
    encoded[at] = 2
    with pytest.raises(DecodeError, match="maybe"):
        parse_message(Everything, encoded, 1)


def test_records_are_views_and_bytes_are_copies() -> None:
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=b"rrr")]
            )
        ]
    )
    buffer = bytearray(encode_message(request, 9))
    read, _ = parse_message(ProduceRequest, buffer, 9)
    records = read.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0:1] = b"R"
    assert b"Rrr" in buffer
    sync = SyncGroupRequest(
        assignments=[SyncGroupRequestAssignment(member_id="m", assignment=b"aaa")]
    )
    read_sync, _ = parse_message(SyncGroupRequest, bytearray(encode_message(sync, 3)), 3)
    assert type(read_sync.assignments[0].assignment) is bytes


@pytest.mark.parametrize("records", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_records_are_written_from_any_buffer_without_a_copy(records: Any) -> None:
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])]
    )
    parts = encode_message_parts(response, 11)
    assert any(part is records for part in parts)
    assert b"abc" in encode_message(response, 11)


def test_bytes_behind_a_message_are_the_callers() -> None:
    encoded = encode_message(HeartbeatResponse(error_code=27), 3)
    message, end = parse_message(HeartbeatResponse, encoded + b"xyz", 3)
    assert (message.error_code, end) == (27, len(encoded))


def test_a_message_may_start_anywhere() -> None:
    encoded = encode_message(HeartbeatResponse(error_code=27), 4)
    assert parse_message(HeartbeatResponse, b"xy" + encoded, 4, 2)[1] == 2 + len(encoded)


def test_unknown_tags_are_dropped_at_every_depth() -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    encoded = encode_message(request, 9)
    assert encoded == bytes.fromhex("02 02 74 00 01 00 00 00")
    tagged = bytes.fromhex("02 02 74 01 07 01 aa 01 00 00 02 08 00 09 02 bbcc")
    assert parse_message(MetadataRequest, tagged, 9) == (request, len(tagged))
    assert encode_message(parse_message(MetadataRequest, tagged, 9)[0], 9) == encoded


@pytest.mark.parametrize(
    ("cls", "version", "hexadecimal", "why"),
    [
        pytest.param(MetadataRequest, 0, "ffffffff", "topics: null", id="null-array"),
        pytest.param(MetadataRequest, 1, "fffffffe", "topics: length -2", id="count--2"),
        pytest.param(MetadataRequest, 1, "7fffffff", "2147483647 elements", id="count-max"),
        pytest.param(MetadataRequest, 1, "80000000", "length -2147483648", id="count-min"),
        pytest.param(MetadataRequest, 9, "ffffffff0f", "4294967294 elements", id="varint-max"),
        pytest.param(MetadataRequest, 9, "ffffffff1f", "more than 32 bits", id="varint-33-bit"),
        pytest.param(MetadataRequest, 1, "00000001 ffff", "name: null", id="null-string"),
        pytest.param(MetadataRequest, 1, "00000001 fffe", "name: length -2", id="length--2"),
        pytest.param(MetadataRequest, 1, "00000001 0002 74", "name: length 2", id="short-string"),
        pytest.param(MetadataRequest, 1, "00000001 0001 ff", "no UTF-8", id="not-utf-8"),
        pytest.param(MetadataRequest, 9, "02 00 00 01 00 00 00", "name: null", id="compact-null"),
        pytest.param(MetadataRequest, 9, "02 09 74 01 00 00 00", "length 8", id="compact-short"),
        pytest.param(MetadataRequest, 4, "ffffffff", "more was announced", id="cut-short"),
        pytest.param(HeartbeatRequest, 3, "", "more was announced", id="empty"),
        pytest.param(
            HeartbeatRequest, 4, "01 00000000 01 00 02 0500 0500", "must ascend", id="tag-twice"
        ),
        pytest.param(
            HeartbeatRequest, 4, "01 00000000 01 00 01 0505 00", "announces 5", id="tag-too-long"
        ),
        pytest.param(
            FetchRequest, 15, "00" * 21 + "01 01 01 01 01 0c 00", "tag 1", id="tag-too-short"
        ),
    ],
)
def test_malformed_bytes_are_refused(
    cls: type[Message], version: int, hexadecimal: str, why: str
) -> None:
    with pytest.raises(DecodeError, match=why):
        parse_message(cls, bytes.fromhex(hexadecimal), version)


@pytest.mark.parametrize(
    ("version", "start"), [(1, "7fffffff"), (8, "7fffffff"), (9, "ffffffff0f")]
)
def test_a_hostile_count_buys_no_memory(version: int, start: str) -> None:
    data = bytes.fromhex(start) + bytes(1000)
    with pytest.raises(DecodeError):
        parse_message(MetadataRequest, data, version)  # Compiles the decoder.
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            parse_message(MetadataRequest, data, version)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_versions_nobody_knows(version: int) -> None:
    with pytest.raises(DecodeError, match=f"has no version {version}, only 0-4"):
        parse_message(HeartbeatRequest, b"", version)
    with pytest.raises(ApiError, match=f"has no version {version}, only 0-4") as caught:
        encode_message(HeartbeatRequest(), version)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_field_the_version_lacks_is_refused_when_set() -> None:
    request = HeartbeatRequest(group_id="g", group_instance_id="i")
    with pytest.raises(ApiError, match="HeartbeatRequest v2 has no group_instance_id") as caught:
        encode_message(request, 2)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError, match="replica_state"):
        encode_message(FetchRequest(replica_state=ReplicaState(replica_id=1)), 14)


def test_a_field_the_version_lacks_is_dropped_when_ignorable() -> None:
    assert encode_message(HeartbeatResponse(throttle_time_ms=5), 0) == b"\0\0"
    assert encode_message(ApiVersionsRequest(client_software_name="x"), 0) == b""


def test_an_empty_list_is_as_unset_as_an_empty_tuple() -> None:
    assert encode_message(FetchResponse(node_endpoints=[]), 12)
    assert encode_message(Everything(tagged_longs=[]), 1) == encode_message(Everything(), 1)


def test_values_that_do_not_fit_are_our_bug() -> None:
    with pytest.raises(struct.error):
        encode_message(HeartbeatRequest(generation_id=1 << 31), 0)
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        encode_message(MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"abc")]), 12)


@pytest.mark.parametrize("version", [0, 4])
def test_strings_of_32767_bytes_fit(version: int) -> None:
    request = HeartbeatRequest(group_id="g" * 32767)
    encoded = encode_message(request, version)
    assert parse_message(HeartbeatRequest, encoded, version)[0] == request


@pytest.mark.parametrize("name", ["group_id", "member_id", "group_instance_id"])
def test_longer_compact_strings_are_refused(name: str) -> None:
    """11 section 3: a string has at most 32767 bytes in both forms."""
    encoded = encode_one_byte_longer(replace(HeartbeatRequest(), **{name: LONGEST}), 4)
    with pytest.raises(DecodeError, match=f"{name}: a string of 32768 bytes .* 32767 at most"):
        parse_message(HeartbeatRequest, encoded, 4)


def test_compact_bytes_may_be_longer_than_strings() -> None:
    request = SyncGroupRequest(
        group_id="g",
        assignments=(SyncGroupRequestAssignment(member_id="m", assignment=bytes(40_000)),),
    )
    encoded = encode_message(request, 5)
    assert parse_message(SyncGroupRequest, encoded, 5)[0] == request


def test_uint_types_have_their_sizes() -> None:
    kinds: list[tuple[WireType, int]] = [(UINT16, 2), (UINT32, 4), (INT16, 2), (FLOAT64, 8)]
    for kind, size in kinds:
        assert kind.size_bytes == struct.calcsize(">" + kind.code) == size


@pytest.mark.parametrize("version", [3, 4], ids=["int16 length", "compact"])
@pytest.mark.parametrize("field", ["group_id", "group_instance_id"])  # The second one is nullable.
def test_a_string_that_no_reader_takes_is_not_sent(field: str, version: int) -> None:
    fits = replace(HeartbeatRequest(), **{field: "ä" * (MAX_STRING_BYTES // 2)})
    parsed, _ = parse_message(HeartbeatRequest, encode_message(fits, version), version)
    assert parsed == fits
    request = replace(fits, **{field: "ä" * (MAX_STRING_BYTES // 2 + 1)})
    with pytest.raises(
        ApiError, match=f"{field}: a string of 32768 bytes, 32767 at most"
    ) as caught:
        encode_message(request, version)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_client_id_that_no_reader_takes_is_not_sent() -> None:
    header = RequestHeader(ApiKey.HEARTBEAT, 4, 1, "c" * (MAX_STRING_BYTES + 1))
    with pytest.raises(ApiError, match="client_id: a string of 32768 bytes, 32767 at most"):
        encode_request_header(header)


@pytest.mark.parametrize("version", [2, 3], ids=["int16 length", "compact"])
def test_a_long_explanation_of_an_error_is_cut(version: int) -> None:
    response = FindCoordinatorResponse(error_message="ä" * MAX_STRING_BYTES)
    parsed, _ = parse_message(FindCoordinatorResponse, encode_message(response, version), version)
    assert parsed.error_message == "ä" * (MAX_STRING_BYTES // 2)
