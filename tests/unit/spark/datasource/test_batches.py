"""Columns of records as Arrow batches."""

import pytest

from odradek.records.batch import parse_header
from odradek.records.builder import build_batch
from odradek.records.columns import ColumnBuilder, Columns
from odradek.spark.datasource import batches
from odradek.spark.datasource.batches import arrow_schema, batches_of
from odradek.spark.datasource.schema import ALL_COLUMNS
from odradek.spark.datasource.splits import Split

Record = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def columns(*records: Record, tilde: bytes = b"~") -> Columns:
    """Of records from offset 10 on, `tilde` in the place of each one in them."""
    data = bytes(build_batch(records, base_offset=10, leader_epoch=0)).replace(b"~", tilde)
    header = parse_header(data)
    assert header is not None
    builder = ColumnBuilder()
    builder.add_batch(data, header=header)
    return builder.finish()


def split(end: int) -> Split:
    return Split(topic="t", topic_id="", partition=3, start=0, end=end)


def test_every_column() -> None:
    """12:SP-28: null for no headers; a timestamp of -1 is a millisecond before 1970."""
    found = columns((-1, None, b"v", ()), (1500, b"k", None, (("a", b"1"), ("b", None))))
    (batch,) = batches_of(found, split(99), ALL_COLUMNS)
    assert batch.schema.equals(arrow_schema(ALL_COLUMNS))
    batch.validate(full=True)
    first, second = batch.to_pylist()
    assert first["timestamp"].isoformat() == "1969-12-31T23:59:59.999000+00:00"
    del first["timestamp"]
    assert first == {
        "key": None,
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 10,
        "timestampType": 0,
        "headers": None,
    }
    assert second["timestamp"].timestamp() == 1.5
    assert (second["key"], second["value"], second["offset"]) == (b"k", None, 11)
    assert second["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]


@pytest.mark.parametrize(
    ("end", "expected"), [(10, []), (11, [10]), (12, [10, 11]), (99, [10, 11])]
)
def test_what_lies_beyond_the_end_is_left_out(end: int, expected: list[int]) -> None:
    """12:SP-36."""
    found = columns((0, None, b"a", ()), (0, None, b"b", ()))
    offsets = [
        offset
        for batch in batches_of(found, split(end), ("offset",))
        for offset in batch["offset"].to_pylist()
    ]
    assert offsets == expected


def test_no_records_give_no_batch() -> None:
    """12:SP-36."""
    assert list(batches_of(ColumnBuilder().finish(), split(99), ALL_COLUMNS)) == []


def test_much_is_cut_into_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """12:SP-36."""
    monkeypatch.setattr(batches, "MAX_BATCH_BYTES", 250)
    found = columns(*((0, None, b"%03d" % number * 10, ()) for number in range(40)))
    cut = list(batches_of(found, split(99), ("value", "headers")))
    assert [batch.num_rows for batch in cut] == [8] * 5
    assert all(batch.schema.equals(arrow_schema(("value", "headers"))) for batch in cut)
    values = [value for batch in cut for value in batch["value"].to_pylist()]
    assert values == [b"%03d" % number * 10 for number in range(40)]


def test_a_header_that_is_no_text_does_not_end_the_query() -> None:
    """12:SP-28: it is read as Kafka's own clients read it."""
    found = columns(
        (0, None, b"a", (("~!", b"1"), ("b", b"2"))), (0, None, b"b", ()), tilde=b"\xff"
    )
    (batch,) = batches_of(found, split(99), ("headers",))
    batch.validate(full=True)
    assert batch["headers"].to_pylist() == [
        [{"key": "\ufffd!", "value": b"1"}, {"key": "b", "value": b"2"}],
        None,
    ]
