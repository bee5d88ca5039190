"""The bytes of `__transaction_state`: Kafka's, both ways, and every way in which they are torn."""

import dataclasses
from typing import Any

import pytest

from odradek.coordinator.transaction.records import (
    TransactionRecord,
    TransactionState,
    UnknownKeyVersionError,
    encode_transaction_key,
    encode_transaction_value,
    parse_transaction_key,
    parse_transaction_value,
)
from odradek.errors import DecodeError
from odradek.model import TopicPartition

T = 1700000000000
KEY = bytes.fromhex("00000003747831")
V0 = bytes.fromhex(
    "00000000000000000fa000030000ea60010000000100017400000001000000000000018bcfe568000000018bcfe56800"
)
V1 = bytes.fromhex(
    "00010000000000000fa000040000ea60020202740200000000000000018bcfe569f40000018bcfe568000200080000"
    "000000000fa002020002"
)
ONGOING = TransactionRecord(
    producer_id=4000,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    by_topic={"t": frozenset({0})},
    last_update_ms=T,
    start_ms=T,
)
PREPARED = TransactionRecord(
    producer_id=4000,
    producer_epoch=4,
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    by_topic={"t": frozenset({0})},
    last_update_ms=T + 500,
    start_ms=T,
    previous_producer_id=4000,
    client_transaction_version=2,
)


@pytest.mark.parametrize(
    ("record", "version", "data"),
    [
        pytest.param(ONGOING, 0, V0, id="10:VEC-22-v0"),
        pytest.param(PREPARED, 1, V1, id="10:VEC-22-v1"),
    ],
)
def test_values_have_the_bytes_of_kafka(
    record: TransactionRecord, version: int, data: bytes
) -> None:
    assert encode_transaction_value(record, version) == data
    assert parse_transaction_value(data) == record


def test_a_key_has_the_bytes_of_kafka() -> None:
    assert encode_transaction_key("tx1") == KEY
    assert parse_transaction_key(KEY) == "tx1"


def test_partitions_are_ordered() -> None:
    record = dataclasses.replace(ONGOING, by_topic={"b": frozenset({300, 2}), "a": frozenset({1})})
    for version in (0, 1):
        read = parse_transaction_value(encode_transaction_value(record, version))
        assert read.partitions == (
            TopicPartition("a", 1),
            TopicPartition("b", 2),
            TopicPartition("b", 300),
        )


def test_an_empty_state_has_null_partitions() -> None:
    record = dataclasses.replace(ONGOING, state=TransactionState.EMPTY, by_topic={})
    assert b"\xff\xff\xff\xff" + T.to_bytes(8, "big") in encode_transaction_value(record, 0)
    assert encode_transaction_value(record, 1)[17] == 0
    assert parse_transaction_value(encode_transaction_value(record, 1)) == record


def test_unknown_tags_are_kept_and_known_ones_read() -> None:
    record = dataclasses.replace(
        PREPARED, next_producer_id=7000, next_producer_epoch=0, unknown_tags=((9, b"xyz"),)
    )
    data = encode_transaction_value(record, 1)
    assert parse_transaction_value(data) == record


def test_version_0_has_no_tags() -> None:
    read = parse_transaction_value(encode_transaction_value(PREPARED, 0))
    assert (read.previous_producer_id, read.client_transaction_version) == (-1, 0)


@pytest.mark.parametrize("data", [V0, V1], ids=["v0", "v1"])
def test_a_torn_value_is_malformed_wherever_it_ends(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            parse_transaction_value(data[:length])
    with pytest.raises(DecodeError, match="follow"):
        parse_transaction_value(data + b"\x00")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x00\x02" + V1[2:], id="version 2"),
        pytest.param(b"\xff\xff" + V0[2:], id="version -1"),
        pytest.param(V0[:16] + b"\x07" + V0[17:], id="a state that is never written"),
        pytest.param(V0[:16] + b"\x08" + V0[17:], id="an unknown state"),
        pytest.param(V0[:17] + b"\x7f\xff\xff\xff" + V0[21:], id="two billion topics"),
        pytest.param(V0[:17] + b"\xff\xff\xff\xfe" + V0[21:], id="a negative count"),
        pytest.param(V1[:-13] + b"\x07" + V1[-12:], id="a tag of the wrong size"),
        pytest.param(V0[:21] + b"\x00\x01\xff" + V0[24:], id="a topic that is not UTF-8"),
    ],
)
def test_a_malformed_value_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_transaction_value(data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"producer_id": -1}, "producer id -1, expected 0"),
        ({"producer_epoch": -1}, "producer epoch -1, expected 0"),
        ({"next_producer_id": -2}, "next producer id -2, expected -1"),
        ({"client_transaction_version": -1}, "transaction version -1, expected 0"),
    ],
    ids=str,
)
def test_numbers_that_no_marker_can_have(fields: dict[str, Any], message: str) -> None:
    """Every leader would refuse the marker, again and again."""
    record = dataclasses.replace(parse_transaction_value(V1), **fields)
    with pytest.raises(DecodeError, match=message):
        parse_transaction_value(encode_transaction_value(record, 1))


def test_keys_of_later_versions_are_told_from_malformed_ones() -> None:
    with pytest.raises(UnknownKeyVersionError, match="version 1"):
        parse_transaction_key(b"\x00\x01" + KEY[2:])
    for key in (b"", b"\x00", KEY[:-1], KEY + b"x", b"\x00\x00\xff\xff"):
        with pytest.raises(DecodeError) as caught:
            parse_transaction_key(key)
        assert not isinstance(caught.value, UnknownKeyVersionError)
