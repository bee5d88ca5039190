"""Transactions that a crash has left open or decided, in the data directory of one partition each.

`leave` writes them by any broker and stops them half-way; when another broker has started on the
logs, `check_finished` looks for what became of them:

| transaction | in the log | expected |
|---|---|---|
| `open` | begun | its producer commits it |
| `abandoned` | begun | the next producer of its id aborts it |
| `committed` | decided, with a marker in one of two partitions | committed |
| `aborted` | decided, without a marker | aborted |
"""

from pathlib import Path

import confluent_kafka

from odradek.coordinator.transaction.records import (
    TransactionRecord,
    parse_transaction_key,
    parse_transaction_value,
)
from odradek.coordinator.transaction.state import TransactionState
from odradek.records.batch import iter_headers
from odradek.records.record import read_records
from tests.conformance.interop.producer_transaction_checks import committed_values, transactional
from tests.integration.test_transactions import NONE, RawTransaction, wait_until

__all__ = ["check_finished", "leave", "unfinish"]

_WAIT_S = 60
_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def leave(bootstrap: str, writer: str, topic: str) -> None:
    """Runs the four transactions over partitions 0 and 1; two of them stay open."""
    for name in ("open", "abandoned"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{writer}", "log_level": 2}
        )
        producer.init_transactions(_WAIT_S)
        producer.begin_transaction()
        for number in range(2):
            producer.produce(topic, f"{name}-{writer}-{number}".encode(), partition=number)
        assert producer.flush(_WAIT_S) == 0
    with (
        transactional(bootstrap, f"committed-{writer}") as first,
        transactional(bootstrap, f"aborted-{writer}") as second,
    ):
        for ours, name in ((first, "committed"), (second, "aborted")):
            ours.begin_transaction()
            for number in range(2):
                ours.send(topic, f"{name}-{writer}-{number}".encode(), partition=number)
            ours.flush()
        first.commit_transaction()
        second.abort_transaction()


def unfinish(data_dir: Path, topic: str) -> dict[str, TransactionRecord]:
    """Takes from the logs of a stopped broker what came after the decisions.

    Returns the states that are left, by transactional id.
    """
    states = {}
    kept = bytearray()
    [path] = (data_dir / "__transaction_state-0").glob("*.log")
    content = path.read_bytes()
    for position, header in iter_headers(content):
        batch = content[position : position + header.size]
        records = read_records(batch)
        found = {
            parse_transaction_key(record.key): parse_transaction_value(record.value)
            for record in records
            if record.key is not None and record.value is not None
        }
        if not any(record.state in _COMPLETE for record in found.values()):
            states.update(found)
            kept += batch
    path.write_bytes(kept)
    for number, marker_count in ((0, 1), (1, 0)):
        [path] = (data_dir / f"{topic}-{number}").glob("*.log")
        content = path.read_bytes()
        markers = [place for place, header in iter_headers(content) if header.is_control]
        assert len(markers) == 2, "one each of those that have ended"
        path.write_bytes(content[: markers[marker_count]])
    return states


def check_finished(
    bootstrap: str, writer: str, topic: str, states: dict[str, TransactionRecord]
) -> None:
    """Whole everywhere or nowhere, for the readers of two makes."""
    by_name = {name: states[f"{name}-{writer}"] for name in ("open", "committed", "aborted")}
    assert [record.state for record in by_name.values()] == [
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    ]
    port = int(bootstrap.rpartition(":")[2])
    with RawTransaction(port, f"open-{writer}", version=0) as producer:
        record = by_name["open"]
        producer.producer_id, producer.epoch = record.producer_id, record.producer_epoch
        wait_until(lambda: producer.end(is_commit=True) is NONE)
    with RawTransaction(port, f"abandoned-{writer}") as successor:
        successor.init()
    expected = [
        f"{name}-{writer}-{number}".encode() for name in ("committed", "open") for number in (0, 1)
    ]
    assert committed_values(bootstrap, topic) == sorted(expected)
