"""Every key of the file: its default, what it becomes, what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.spark.pipeline.graph.model import (
    Action,
    AvroCodec,
    ConsoleTarget,
    Dedup,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    JsonCodec,
    OnDataLoss,
    OnError,
    OutputMode,
    PythonFunction,
    RawCodec,
    Registry,
    Restart,
    SparkSettings,
    StartPosition,
    StringCodec,
    TopicInput,
    TopicTarget,
    Trigger,
    TriggerKind,
    Watermark,
)
from tests.unit.spark.pipeline.files import HEAD, SINK, SOURCE, found, read, valid

BASE = HEAD + SOURCE


def test_defaults_of_the_pipeline(tmp_path: Path) -> None:
    """12:SP-48."""
    pipeline = valid(tmp_path, BASE + SINK)

    assert pipeline.kafka == {}
    assert pipeline.registry is None
    assert pipeline.checkpoint == str(tmp_path / ".odradek/shop")
    assert pipeline.trigger == Trigger(TriggerKind.EVERY, 1000)
    assert pipeline.spark == SparkSettings("local[*]", {}, True)
    assert pipeline.restart == Restart(10, 1000, 60_000)
    assert pipeline.dead_letters is None
    assert pipeline.tests == ()
    assert pipeline.file == str(tmp_path / "shop.yaml")


def test_keys_of_the_pipeline(tmp_path: Path) -> None:
    """12:SP-48."""
    text = """\
name: shop-2
version: 1
bootstrap: ["a:1", "[::1]:9092", "b:2,c:3"]
kafka: {client.id: me, enable.idempotence: true, linger.ms: 5}
registry: {url: "http://r:8081", user: u, password: p}
checkpoint: hdfs://name/checkpoints
trigger: continuous
spark: {master: "spark://m:7077", conf: {spark.executor.memory: 1g}, ship: false}
restart: {max: 3, backoff: 2s, max_backoff: 5m}
dlq: {topic: letters, kafka: {acks: all}}
""" + SOURCE + SINK  # fmt: skip

    pipeline = valid(tmp_path, text)

    assert pipeline.bootstrap == "a:1,[::1]:9092,b:2,c:3"
    assert pipeline.kafka == {"client.id": "me", "enable.idempotence": "true", "linger.ms": "5"}
    assert pipeline.registry == Registry("http://r:8081", "u", "p")
    assert pipeline.checkpoint == "hdfs://name/checkpoints"
    assert pipeline.trigger == pipeline.sinks["out"].trigger == Trigger(TriggerKind.CONTINUOUS)
    assert pipeline.spark.conf == {"spark.executor.memory": "1g"}
    assert not pipeline.spark.ship
    assert pipeline.restart == Restart(3, 2000, 300_000)
    assert pipeline.dead_letters is not None
    assert pipeline.dead_letters.kafka == {**pipeline.kafka, "acks": "all"}


def test_defaults_of_a_source(tmp_path: Path) -> None:
    """12:SP-49 12:SP-50."""
    text = HEAD + "sources: {raw: {topic: orders}}\n" + SINK

    source = valid(tmp_path, text).sources["raw"]

    assert source.is_stream
    assert (source.watermark, source.expect) == (None, ())
    assert source.input == TopicInput(
        topics=("orders",),
        start=StartPosition(edge="earliest"),
        max_records=1_000_000,
        max_bytes=None,
        min_records=None,
        max_delay_ms=900_000,
        headers=False,
        key=RawCodec(),
        value=RawCodec(),
        on_error=OnError.FAIL,
        on_data_loss=OnDataLoss.FAIL,
        isolation="read_committed",
    )


def test_keys_of_a_source(tmp_path: Path) -> None:
    """12:SP-49 12:SP-52."""
    text = """\
name: shop
bootstrap: localhost:9092
kafka: {client.id: all, client.rack: "1", linger.ms: 5}
sources:
  raw:
    topic: [orders, returns]
    max_records: 10
    max_bytes: 1MB
    min_records: 5
    max_delay: 1m
    headers: true
    key: string
    value: {format: json, schema: "ts timestamp, n: int"}
    on_error: drop
    on_data_loss: continue
    isolation: read_uncommitted
    watermark: {column: ts, delay: 2h}
    expect: [{name: some, where: n > 0}]
    kafka: {client.id: mine}
    options: {minPartitions: 4}
  wide: {topic_pattern: "orders-.*"}
  exact: {assign: {orders: [2, 0]}}
"""
    sources = valid(tmp_path, text + SINK).sources

    raw = sources["raw"]
    assert raw.watermark == Watermark("ts", 7_200_000)
    assert [(rule.name, rule.where, rule.action) for rule in raw.expect] == [
        ("some", "n > 0", Action.WARN)
    ]
    assert raw.input == TopicInput(
        topics=("orders", "returns"),
        max_records=10,
        max_bytes=1 << 20,
        min_records=5,
        max_delay_ms=60_000,
        headers=True,
        key=StringCodec(),
        value=JsonCodec("ts timestamp, n: int"),
        on_error=OnError.DROP,
        on_data_loss=OnDataLoss.CONTINUE,
        isolation="read_uncommitted",
        kafka={"client.id": "mine", "client.rack": "1"},
        options={"minPartitions": "4"},
    )
    assert isinstance(sources["wide"].input, TopicInput)
    assert sources["wide"].input.pattern == "orders-.*"
    assert isinstance(sources["exact"].input, TopicInput)
    assert sources["exact"].input.assign == {"orders": (0, 2)}


def test_keys_of_transforms(tmp_path: Path) -> None:
    """12:SP-51."""
    (tmp_path / "steps.py").write_text("def clean(raw):\n    return raw\n")
    (tmp_path / "one.sql").write_text("-- what it is\nselect id,\n  user from raw;\n")
    text = BASE + """\
transforms:
  last: {sql: "select * from cleaned union all select id, user from one"}
  cleaned: {python: "steps:clean", inputs: [RAW], watermark: {column: ts, delay: 1s}}
  one: {sql_file: one.sql}
  unique: {dedup: {from: last, keys: [id], within: 1h}, expect: [{name: a, where: id > 0}]}
sinks: {out: {from: unique, console: {}}}
"""  # fmt: skip

    transforms = valid(tmp_path, text).transforms

    assert list(transforms) == ["cleaned", "one", "last", "unique"]
    assert transforms["cleaned"].step == PythonFunction("steps:clean")
    assert transforms["cleaned"].inputs == ("raw",)
    assert transforms["cleaned"].watermark == Watermark("ts", 1000)
    assert transforms["one"].step == _select(tmp_path)
    assert transforms["unique"].step == Dedup(("id",), 3_600_000)
    assert transforms["unique"].inputs == ("last",)
    assert transforms["last"].inputs == ("cleaned", "one")


def _select(folder: Path) -> Any:
    from odradek.spark.pipeline.graph.model import Select

    sql = "-- what it is\nselect id,\n  user from raw"
    return Select(sql, str(folder / "one.sql"), 1)


def test_keys_of_sinks(tmp_path: Path) -> None:
    """12:SP-53."""
    text = BASE + """\
registry: {url: "http://r"}
sinks:
  plain: {from: raw, topic: t}
  full:
    from: RAW
    topic: t
    key: {format: avro, subject: s, columns: [id]}
    value: {format: json, columns: [user, amount]}
    headers: user
    partition: id
    kafka: {acks: all}
    trigger: once
  bytes: {from: raw, topic: t, key: user, value: {format: string, columns: user}}
  files: {from: raw, files: {path: out, format: csv, partition_by: user, options: {header: true}}}
  lake: {from: raw, delta: {path: "s3://b/t", merge_key: [id]}, output_mode: update}
  table: {from: raw, jdbc: {url: "postgresql://h/d", table: t, key: [id, user], user: me}}
  shown: {from: raw, console: }
"""  # fmt: skip

    sinks = valid(tmp_path, text).sinks

    assert sinks["plain"].target == TopicTarget("t", None, JsonCodec(), None, None, False, {})
    assert sinks["plain"].output_mode is OutputMode.APPEND
    assert sinks["full"].input == "raw"
    assert sinks["full"].trigger == Trigger(TriggerKind.ONCE)
    assert sinks["full"].target == TopicTarget(
        topic="t",
        key=AvroCodec(subject="s", columns=("id",)),
        value=JsonCodec(columns=("user", "amount")),
        headers="user",
        partition="id",
        exactly_once=False,
        kafka={"acks": "all"},
    )
    plain = TopicTarget("t", "user", "user", None, None, False, {})
    assert sinks["bytes"].target == plain
    assert sinks["files"].target == FilesTarget(
        "csv", str(tmp_path / "out"), ("user",), None, {"header": "true"}
    )
    assert sinks["lake"].target == DeltaTarget("s3://b/t", (), 128 << 20, 0, ("id",))
    assert sinks["table"].target == JdbcTarget("postgresql://h/d", "t", ("id", "user"), "me", None)
    assert sinks["shown"].target == ConsoleTarget(20)


@pytest.mark.parametrize(
    ("sink", "mode"),
    [
        ("console: {}", OutputMode.UPDATE),
        ("topic: t, key: user", OutputMode.UPDATE),
        ("jdbc: {url: 'postgresql://h/d', table: t, key: user}", OutputMode.UPDATE),
        ("topic: t, output_mode: complete", OutputMode.COMPLETE),
    ],
)
def test_an_aggregate_without_watermark_updates(
    sink: str, mode: OutputMode, tmp_path: Path
) -> None:
    """12:SP-53."""
    text = (
        BASE
        + f"sinks: {{out: {{from: n, {sink}}}}}\n"
        + ("transforms: {n: {sql: 'select user, count(*) as n from raw group by user'}}\n")
    )

    assert valid(tmp_path, text).sinks["out"].output_mode is mode


def test_an_aggregate_with_watermark_appends(tmp_path: Path) -> None:
    """12:SP-53."""
    text = (
        BASE
        + """\
    watermark: {column: ts, delay: 1m}
sinks: {out: {from: n, console: {}}}
transforms:
  n: {sql: "select window, count(*) as n from raw group by window(ts, '1 minute')"}
"""
    )
    assert valid(tmp_path, text).sinks["out"].output_mode is OutputMode.APPEND


def test_tests_in_the_file(tmp_path: Path) -> None:
    """12:SP-55."""
    text = (
        BASE
        + SINK
        + """\
tests:
  - name: one
    given: {raw: [{id: 1, user: a}, {id: 2}]}
    expect: {raw: [{id: 1}]}
    ordered: true
  - name: two
    raw: true
    given: {raw: [{key: k, value: "{}"}]}
    expect: {raw: []}
    dlq: [{reason: decode}]
"""
    )
    one, two = valid(tmp_path, text).tests

    assert (one.name, one.raw, one.ordered, one.dlq) == ("one", False, True, None)
    assert one.given == {"raw": ({"id": 1, "user": "a"}, {"id": 2})}
    assert (two.raw, two.ordered, two.dlq) == (True, False, ({"reason": "decode"},))


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("{name: a, given: {}, expect: {raw: []}}, {name: A, given: {}, expect: {raw: []}}", "P06"),
        ("{given: {}, expect: {raw: []}}", "P05"),
        ("{name: a, given: [], expect: {raw: []}}", "P03"),
        ("{name: a, given: {raw: [1]}, expect: {raw: []}}", "P03"),
        ("{name: a, raw: true, given: {raw: [{id: 1}]}, expect: {raw: []}}", "P02"),
        ("{name: a, given: {}, expect: {raw: []}, order: true}", "P02"),
    ],
)
def test_wrong_tests_are_refused(test: str, expected: str, tmp_path: Path) -> None:
    """12:SP-55."""
    loaded = read(tmp_path, BASE + SINK + f"tests: [{test}]\n")

    assert [one.code for one in loaded.problems] == [expected]


def test_a_json_schema_becomes_ddl(tmp_path: Path) -> None:
    """12:SP-56."""
    schema = {
        "type": "object",
        "title": "an order",
        "required": ["id", "who"],
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "mail": {"type": "string", "format": "email"},
            "is_new": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "who": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "first name": {"type": "string"}},
            },
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["sku"],
                    "properties": {"sku": {"type": "string"}},
                },
            },
        },
    }
    (tmp_path / "order.json").write_text(json.dumps(schema, indent=2))
    value = "value: {format: json, json_schema: order.json}"
    text = HEAD + f"sources: {{raw: {{topic: t, {value}}}}}\n" + SINK

    source = valid(tmp_path, text).sources["raw"]

    assert isinstance(source.input, TopicInput)
    assert source.input.value == JsonCodec(
        ddl="id bigint, price double, at timestamp, day date, mail string, is_new boolean, "
        "who struct<name: string, `first name`: string>, items array<struct<sku: string>>",
        required=("id", "who", "who.name", "items[].sku"),
    )


@pytest.mark.parametrize(
    ("schema", "code", "message"),
    [
        ("{type: string}", "P10", "the root of a JSON Schema has to be an object"),
        ("{type: object}", "P10", "needs 'properties'"),
        ("{type: object, properties: {a: {type: [string, integer]}}}", "P10", "has no column type"),
        ("{type: object, properties: {a: {type: array}}}", "P10", "needs 'items'"),
        ("{type: object, properties: {a: {}}}", "P10", "needs 'type' here"),
        ("{type: object, properties: {a: {anyOf: [{type: string}, {type: integer}]}}}", "P10",
         "may only have one form and null"),
        ("{type: object, properties: {a: {type: string}}, allOf: []}", "P10",
         "'allOf' of a JSON Schema is not supported"),
        ("{type: object, properties: {_key: {type: string}}}", "P09", "is reserved for records"),
        ("{type: object, properties: {a: {type: string}, A: {type: string}}}", "P06",
         "ignores the case of names"),
        ("{type: object, properties: {a: {type: string}}, required: [b]}", "P10",
         "'b' is required but not one of the properties"),
        ("{type: object, properties: {a: {type: object, properties: {b: {type: string}}, "
         "additionalProperties: {type: string}}}}", "P10", "'additionalProperties' with a schema"),
        ("5", "P03", "has to be a path"),
    ],
)  # fmt: skip
def test_forms_of_json_schema_that_no_table_has(
    schema: str, code: str, message: str, tmp_path: Path
) -> None:
    """12:SP-56."""
    value = f"value: {{format: json, json_schema: {schema}}}"

    loaded = read(tmp_path, HEAD + f"sources: {{raw: {{topic: t, {value}}}}}\n" + SINK)

    assert code in {one.code for one in loaded.problems}
    assert any(message in one.message for one in loaded.problems), loaded.problems


def test_what_only_narrows_a_json_schema_is_a_warning(tmp_path: Path) -> None:
    """12:SP-56."""
    schema = "{type: object, properties: {a: {type: integer, minimum: 5}}}"
    value = f"value: {{format: json, json_schema: {schema}}}"

    loaded = read(tmp_path, HEAD + f"sources: {{raw: {{topic: t, {value}}}}}\n" + SINK)

    assert [str(one.severity) for one in loaded.problems] == ["warning"]
    assert loaded.pipeline is not None


def test_an_avro_schema_is_read_from_its_file(tmp_path: Path) -> None:
    """12:SP-50."""
    schema = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
    (tmp_path / "r.avsc").write_text(schema)
    text = HEAD + "sources: {raw: {topic: t, value: {format: avro, schema: r.avsc}}}\n"

    pipeline = valid(tmp_path, text + "sinks: {out: {from: raw, topic: o, key: a}}\n")
    other = read(tmp_path, text + "sinks: {out: {from: raw, topic: o, key: b}}\n")

    source = pipeline.sources["raw"].input
    assert isinstance(source, TopicInput)
    assert source.value == AvroCodec(schema=schema)
    assert [one.code for one in other.problems] == ["P07"]


@pytest.mark.parametrize("schema", ["{", '{"type": "int"}', '{"type": "record", "fields": [{}]}'])
def test_a_wrong_avro_schema_is_refused(schema: str, tmp_path: Path) -> None:
    """12:SP-50."""
    (tmp_path / "r.avsc").write_text(schema)
    text = HEAD + "sources: {raw: {topic: t, value: {format: avro, schema: r.avsc}}}\n" + SINK

    loaded = read(tmp_path, text)

    assert [(one.code, Path(one.place.file).name) for one in loaded.problems] == [("P10", "r.avsc")]


def test_columns_of_sources(tmp_path: Path) -> None:
    """12:SP-56: a raw record keeps its columns, a decoded one has those of its schema and six."""
    text = (
        HEAD
        + """\
sources:
  bytes: {topic: t, headers: true}
  text: {topic: t, value: string}
  json: {topic: t, headers: true, value: {format: json, schema: "a int"}}
sinks:
  one: {from: bytes, topic: o, key: timestampType, headers: headers}
  two: {from: text, topic: o, key: _key, value: value, partition: _partition}
  three: {from: json, topic: o, key: _offset, headers: _headers}
"""
    )
    valid(tmp_path, text)
    wrong = text.replace("key: _offset", "key: offset").replace("key: _key", "key: key")

    assert [code for code, _, _ in found(read(tmp_path, wrong))] == ["P07", "P07"]
