"""Which changes of a pipeline keep its checkpoints, and which are refused."""

from pathlib import Path

import pytest

from odradek.spark.pipeline.graph.fingerprint import (
    changes,
    fingerprint,
    fingerprint_id,
    refusal,
)
from odradek.spark.pipeline.graph.queries import checkpoint_path, group_id, query_names
from tests.unit.spark.pipeline.files import EXAMPLE, HEAD, valid

JOINED = """\
name: shop
bootstrap: localhost:9092
sources:
  a:
    topic: a
    value: &value {format: json, schema: "k bigint, j bigint, ts timestamp"}
    watermark: &watermark {column: ts, delay: 1m}
  b: {topic: b, value: *value, watermark: *watermark}
transforms:
  joined: {sql: "select a.k, a.ts, a.j from a join b on a.k = b.k"}
  once: {dedup: {from: joined, keys: [k], within: 1h}}
sinks:
  out: {from: once, jdbc: {url: "postgresql://me:pw@h/d", table: t, key: k}}
"""


def changed(folder: Path, text: str, old: str, new: str, sink: str) -> list[str]:
    """The parts of the fingerprint that a change of the file changes."""
    assert old in text
    before = fingerprint(valid(folder, text), sink)
    after = fingerprint(valid(folder, text.replace(old, new)), sink)
    return [change.part for change in changes(before, after)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("start: earliest", "start: latest"),
        ("max_records: 500000", "max_bytes: 5MB"),
        ("every: 2s", "every: 1m"),
        ("bootstrap: ${KAFKA:-localhost:9092}", "bootstrap: other:9092\nkafka: {client.id: x}"),
        ("action: drop", "action: warn"),
        ("amount > 0", "amount >= 0"),
        ("delay: 30s", "delay: 5m"),
        ("key: country, value", "value"),
        ("path: ./users.parquet", "path: ./people.parquet"),
        ("sql: select w.start as minute, country", "sql: select w.end as minute, country"),
        ("sql: select r.*, u.country from raw r", "sql: select r.*, u.country from raw as r"),
        ("sum(amount) as total", "sum(amount * 2) as total"),
        ("window(ts, '1 minute') as w, country, sum", "window(TS,  '1 minute') AS w, Country, sum"),
        ("named", "with_country"),
    ],
)
def test_changes_that_keep_a_checkpoint(old: str, new: str, tmp_path: Path) -> None:
    """12:SP-62 12:SP-7."""
    assert changed(tmp_path, EXAMPLE, old, new, "totals") == []


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("topic: orders\n", "topic: [orders, returns]\n", "sources"),
        ("topic: orders\n", "topic_pattern: orders\n", "sources"),
        ("topic: orders\n", "assign: {orders: [0]}\n", "sources"),
        ("'1 minute'), country", "'1 minute'), country, n2", "state"),
        ("'1 minute'", "'5 minutes'", "state"),
        ("{column: ts", "{column: _timestamp", "watermarks"),
        ("version: 1\n", "version: 1\nspark: {conf: {spark.sql.shuffle.partitions: 4}}\n",
         "shuffle_partitions"),
        ("topic: country-totals", "topic: totals", "sink"),
        ("topic: country-totals, key: country, value: {format: json}", "console: {}", "sink"),
    ],
)  # fmt: skip
def test_changes_that_are_refused(old: str, new: str, part: str, tmp_path: Path) -> None:
    """12:SP-62 12:SP-7."""
    text = EXAMPLE.replace("count(*) as n\n", "count(*) as n, 1 as n2\n").replace(
        "u.country from raw", "u.country, 1 as n2 from raw"
    )
    assert changed(tmp_path, text, old, new, "totals") == [part]


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("a.k = b.k", "a.j = b.j", ["state"]),
        ("keys: [k]", "keys: [k, j]", ["state"]),
        ("within: 1h", "within: 2h", []),
        ("from a join b", "from b join a", ["sources"]),
        ("table: t, key: k", "table: t2, key: k", ["sink"]),
        ("me:pw@h", "you:other@h", []),
        ("h/d", "h2/d", ["sink"]),
    ],
)
def test_changes_of_joins_dedup_and_targets(
    old: str, new: str, parts: list[str], tmp_path: Path
) -> None:
    """12:SP-62."""
    assert changed(tmp_path, JOINED, old, new, "out") == parts


def test_a_refusal_names_both_ways_out(tmp_path: Path) -> None:
    """12:SP-62."""
    before = fingerprint(valid(tmp_path, EXAMPLE), "totals")
    text = EXAMPLE.replace("'1 minute'", "'5 minutes'")
    found = changes(before, fingerprint(valid(tmp_path, text), "totals"))

    message = refusal("orders.yaml", "totals", found)

    assert "'1 minute'" in message
    assert "'5 minutes'" in message
    assert "odradek pipeline reset orders.yaml --sink totals --yes" in message
    assert "give the sink a new name" in message


def test_a_checkpoint_without_fingerprint_takes_any(tmp_path: Path) -> None:
    assert changes({}, fingerprint(valid(tmp_path, EXAMPLE), "totals")) == ()


def test_fingerprints_hold_no_secrets(tmp_path: Path) -> None:
    """12:SP-46: what came from the environment is compared by its digest."""
    text = EXAMPLE.replace("topic: orders\n", "topic: '${TOPIC}'\n")
    one = fingerprint(valid(tmp_path, text, environment={"TOPIC": "hidden-1"}), "totals")
    same = fingerprint(valid(tmp_path, text, environment={"TOPIC": "hidden-1"}), "totals")
    other = fingerprint(valid(tmp_path, text, environment={"TOPIC": "hidden-2"}), "totals")

    assert "hidden" not in str(one)
    assert fingerprint_id(one) == fingerprint_id(same) != fingerprint_id(other)
    assert "hidden" not in refusal("f", "totals", changes(one, other))
    assert "***" in refusal("f", "totals", changes(one, other))


def test_python_functions_are_part_of_it(tmp_path: Path) -> None:
    """12:SP-62: their state cannot be seen."""
    (tmp_path / "steps.py").write_text("def a(x):\n    return x\n\n\ndef b(x):\n    return x\n")
    text = (
        HEAD
        + """\
sources: {raw: {topic: t}}
transforms: {one: {python: "steps:a", inputs: [raw]}}
sinks: {out: {from: one, console: {}}}
"""
    )
    assert changed(tmp_path, text, "steps:a", "steps:b", "out") == ["functions"]


def test_each_query_has_its_checkpoint_and_group(tmp_path: Path) -> None:
    """12:SP-39 12:SP-48."""
    pipeline = valid(tmp_path, EXAMPLE)

    names = query_names(pipeline)
    assert names == ("totals", "lake", "archive", "dlq")
    assert [checkpoint_path(pipeline, name) for name in names] == [
        str(tmp_path / "_checkpoints" / name) for name in names
    ]
    assert group_id(pipeline, "dlq") == "odradek-pipeline-orders-dlq"
