"""Messages as lines of JSON: what is written is read as it was, byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.messages.columns import MessageColumns
from odradek.cli.messages.content import Content
from odradek.cli.messages.escapes import escape, escape_json
from odradek.cli.messages.json_lines import JsonLineError, JsonLines, write_decoded, write_json
from odradek.records.batch import HEADER_SIZE, parse_header
from odradek.records.builder import seal_batch
from odradek.records.codec import ConsumerRecord, TimestampType, decode_batch
from odradek.records.compression import Codec

Fields = tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]

CONTENT = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), CONTENT), max_size=3)
MESSAGES = st.lists(st.tuples(st.integers(0, 2**62), CONTENT, CONTENT, HEADERS), max_size=20)


def records_of(messages: list[Fields]) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(
            "t",
            offset % 3,
            offset,
            timestamp,
            TimestampType.CREATE_TIME,
            key,
            value,
            tuple((name.decode("utf-8", "surrogateescape"), one) for name, one in headers),
        )
        for offset, (timestamp, key, value, headers) in enumerate(messages)
    ]


def parsed(lines: bytes, *, keeps_partitions: bool = True) -> MessageColumns:
    columns = MessageColumns()
    JsonLines(keeps_partitions=keeps_partitions).parse(lines, columns)
    return columns


@given(MESSAGES)
def test_what_was_written_is_read(messages: list[Fields]) -> None:
    text = write_json(records_of(messages))
    columns = parsed(text.encode())
    assert list(zip(columns.timestamps, columns.keys, columns.values, strict=True)) == [
        one[:3] for one in messages
    ]
    assert [list(one) for one in columns.headers] == [headers for *_, headers in messages]
    assert columns.partitions == [number % 3 for number in range(len(messages))]
    for record, line in zip(records_of(messages), text.split("\n"), strict=False):
        assert json.loads(line)["offset"] == record.offset
    # What a terminal gets is the same JSON, and all of it can be shown.
    shown = escape_json(text)
    assert list(map(json.loads, shown.split("\n")[:-1])) == list(
        map(json.loads, text.split("\n")[:-1])
    )
    assert all(one.isprintable() or one == "\n" for one in shown)


@given(MESSAGES.filter(bool))
def test_columns_become_the_same_records(messages: list[Fields]) -> None:
    columns = MessageColumns()
    for timestamp, key, value, headers in messages:
        columns.add(key, value, tuple(headers), timestamp, None)
    rows, partitions = columns.rows(7)
    assert partitions is None
    encoded, count, base, largest = rows.encode(None, 0, len(messages), 1 << 30, HEADER_SIZE)
    assert count == len(messages)
    batch = seal_batch(
        encoded, codec=Codec.NONE, record_count=count, base_timestamp=base, max_timestamp=largest
    )
    header = parse_header(batch)
    assert header is not None
    found = decode_batch(batch, header=header, topic="t", partition=0)
    assert [(one.timestamp, one.key, one.value) for one in found] == [one[:3] for one in messages]
    assert [
        [(name.encode("utf-8", "surrogateescape"), one) for name, one in record.headers]
        for record in found
    ] == [headers for *_, headers in messages]


def test_messages_without_key_and_partition_go_around() -> None:
    columns = MessageColumns.of([b"a", b"b", b"c", b"d"])
    assert columns.spread(3, 2) == 0
    assert columns.partitions == [2, 0, 1, 2]
    columns = MessageColumns.of([b"a"] * 5, keys=[None, b"k", None, None, None])
    columns.partitions[2] = 7
    assert columns.spread(2, 1) == 0
    assert columns.partitions == [1, None, 7, 0, 1]


def test_blank_lines_and_blanks_are_skipped() -> None:
    columns = parsed(b'\n  \r\n {"value": "a"}\t\r\n\n{"value": null}')
    assert columns.values == [b"a", None]


@pytest.mark.parametrize(
    ("lines", "index"),
    [
        (b'{"value": "a"}\n{"value": "b"\n, "key": "c"}', 1),
        (b'{"value": 1}\n\n[]', 2),
        (b'{"value": 1}\n{"value": 2}{"value": 3}', 1),
        (b'{"value": 1}\n\xff\n', 1),
        (b" nonsense\n", 0),
        (b'{"value": 1, "value_base64": "eA=="}', 0),
        (b'{"value": 1, "key": "a", "key_base64": "eA=="}', 0),
        (b'{"value_base64": 7}', 0),
        (b'{"value": 1, "partition": -1}', 0),
        (b'{"value": 1, "timestamp": true}', 0),
        (b'{"value": 1, "timestamp": 9223372036854775808}', 0),
        (b'{"value": 1, "headers": [{"value": "no key"}]}', 0),
        (b'{"value": 1, "headers": [{"key": null, "value": "a"}]}', 0),
        (b'{"value": 1, "headers": [{"key": "a"}]}', 0),
        (b'{"value": 1, "headers": ["a"]}', 0),
        (b"[" * 100_000, 0),
    ],
)
def test_the_line_that_is_no_message_is_named(lines: bytes, index: int) -> None:
    with pytest.raises(JsonLineError) as raised:
        parsed(lines)
    assert raised.value.index == index


def test_decoded_values_are_json_in_json() -> None:
    record = records_of([(5, b"k", b"\x01", [(b"h", None)])])[0]
    decoders: Any = (None, lambda content: {"n": content[0]})
    assert json.loads(write_decoded(Content(record, *decoders))) == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 5,
        "key": "k",
        "value": {"n": 1},
        "headers": [{"key": "h", "value": None}],
    }


@given(st.binary())
def test_a_terminal_gets_nothing_that_it_obeys(content: bytes) -> None:
    shown = escape(content).decode()
    assert all(one.isprintable() or one in "\n\t" for one in shown)
    if content.isascii() and all(32 <= one < 127 for one in content):
        assert shown.encode() == content
