"""Records of the internal topics as JSON, and how the dump tool chooses what makes it."""

import json
from pathlib import Path

import pytest

from odradek.cli.internal_records import decoder_of, offsets_text, transactions_text
from odradek.coordinator.group.records import (
    OffsetAndMetadata,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from odradek.coordinator.transaction.records import (
    TransactionRecord,
    TransactionState,
    encode_transaction_key,
    encode_transaction_value,
)
from odradek.errors import DecodeError
from odradek.records.builder import build_batch
from odradek.storage.dump import RecordDecoder
from tests.support.commands import run_command

KEY = encode_transaction_key("tx-ö")
FULL = TransactionRecord(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.PREPARE_COMMIT,
    last_update_ms=20,
    start_ms=10,
    by_topic={"u": frozenset({2, 0}), "t": frozenset({1})},
    previous_producer_id=6,
    next_producer_id=8,
    client_transaction_version=2,
    next_producer_epoch=0,
)


def test_a_transaction_has_the_fields_of_kafka_in_its_order() -> None:
    """10:9.10."""
    key, value = transactions_text(KEY, encode_transaction_value(FULL, 1))

    assert key == '{"type":"0","data":{"transactionalId":"tx-ö"}}'
    assert value == (
        '{"version":"1","data":{"producerId":7,"previousProducerId":6,"nextProducerId":8,'
        '"producerEpoch":3,"nextProducerEpoch":0,"transactionTimeoutMs":60000,'
        '"transactionStatus":2,"transactionPartitions":[{"topic":"t","partitionIds":[1]},'
        '{"topic":"u","partitionIds":[0,2]}],"transactionLastUpdateTimestampMs":20,'
        '"transactionStartTimestampMs":10,"clientTransactionVersion":2}}'
    )


def test_what_version_0_lacks_is_left_out() -> None:
    _, value = transactions_text(KEY, encode_transaction_value(FULL, 0))

    assert json.loads(value)["version"] == "0"
    assert "previousProducerId" not in value
    assert "clientTransactionVersion" not in value


def test_a_tombstone_is_null() -> None:
    assert transactions_text(KEY, None)[1] == "null"
    assert offsets_text(encode_group_key("g"), None) == (
        '{"type":"2","data":{"group":"g"}}', "null",
    )  # fmt: skip


def test_an_offset_is_shown() -> None:
    key = encode_offset_key("g", "t", 3)
    value = encode_offset_value(OffsetAndMetadata(5, 1, "m", 99))

    assert offsets_text(key, value) == (
        '{"type":"1","data":{"group":"g","topic":"t","partition":3}}',
        '{"version":"3","data":{"offset":5,"leaderEpoch":1,"metadata":"m","commitTimestamp":99}}',
    )


@pytest.mark.parametrize("decoder", [offsets_text, transactions_text])
def test_keys_of_newer_brokers_are_shown_by_their_version(decoder: RecordDecoder) -> None:
    """16:CG-110: brokers with other kinds of groups write records of their own."""
    assert decoder(b"\0\x63rest", b"\0\4rest") == (
        '{"type":"99","data":"unknown"}', '{"version":"4","data":"unknown"}',
    )  # fmt: skip
    assert decoder(b"\0\x63", None)[1] == "null"


@pytest.mark.parametrize(
    ("decoder", "key", "value"),
    [
        (transactions_text, None, b""),
        (transactions_text, KEY[:-1], None),
        (transactions_text, KEY, b""),
        (transactions_text, KEY, b"\0\x09"),
        (offsets_text, None, b""),
        (offsets_text, b"\0\1\0\5g", None),
        (offsets_text, encode_group_key("g"), b"\0\x63"),
    ],
)
def test_what_is_malformed_is_an_error(
    decoder: RecordDecoder, key: bytes | None, value: bytes | None
) -> None:
    with pytest.raises(DecodeError):
        decoder(key, value)


@pytest.mark.parametrize(
    ("path", "decoder"),
    [
        ("/d/__transaction_state-3/00000000000000000000.log", transactions_text),
        ("/d/__consumer_offsets-49/00000000000000000000.log", offsets_text),
        ("/d/__consumer_offsets/00000000000000000000.log", None),
        ("/d/my__consumer_offsets-4/00000000000000000000.log", None),
        ("/d/orders-0/00000000000000000000.log", None),
    ],
)
def test_the_directory_chooses_the_decoder(path: str, decoder: RecordDecoder | None) -> None:
    assert decoder_of(path) is decoder


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A good record, one that is malformed, and another good one."""
    folder = tmp_path / "__transaction_state-0"
    folder.mkdir()
    value = encode_transaction_value(FULL, 1)
    rows = [(1, KEY, value, ()), (2, KEY, value[:20], ()), (3, KEY, None, ())]
    path = folder / "00000000000000000000.log"
    path.write_bytes(bytes(build_batch(rows)))
    return path


def test_a_record_that_is_malformed_is_a_problem_at_its_place(segment: Path) -> None:
    outcome = run_command("log", "dump", "--records", segment)

    records = [line for line in outcome.lines if line.startswith("| ")]
    assert len(records) == 3
    assert records[0].endswith('"clientTransactionVersion":2}}')
    assert records[2].endswith("payload: null")
    assert outcome.code == 1
    assert "the record at offset 1: value of 20 bytes is malformed" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_an_option_decodes_a_file_elsewhere(segment: Path, tmp_path: Path) -> None:
    copy = tmp_path / segment.name
    copy.write_bytes(segment.read_bytes())

    assert '"transactionalId"' not in run_command("log", "dump", "--records", copy).out
    assert '"transactionalId"' not in run_command("log", "dump", segment).out
    shown = run_command("log", "dump", "--transaction-log-decoder", copy).out
    assert '"transactionalId"' in shown
    refused = run_command("log", "dump", "--transaction-log-decoder", "--offsets-decoder", copy)
    assert refused.code == 2
