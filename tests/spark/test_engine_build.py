"""A pipeline's graph as frames: decoding, rules, transforms, and the tests a file holds."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.fixtures.deep import deep_problems
from odradek.spark.pipeline.engine.fixtures.fixture_runs import (
    FixtureInputs,
    FixtureResult,
    run_fixture,
)
from odradek.spark.pipeline.engine.frames.build import Build
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import (
    Action,
    Dedup,
    Fixture,
    JsonCodec,
    OnError,
    Pipeline,
    PythonFunction,
    RowsInput,
    StringCodec,
    TableInput,
    TopicTarget,
    Transform,
    Watermark,
)
from tests.support.pipelines import (
    ORDERS,
    PLACE,
    fixture,
    function,
    pipeline,
    rule,
    select,
    sink,
    static_source,
    topic_source,
)

GOOD = '{"id": 1, "user": "a", "amount": 2.5, "ts": "2026-01-01T00:00:10Z"}'
BAD = {
    "text": "hello",
    "empty": "",
    "cut": '{"id": 1',
    "array": '[{"id": 1}, {"id": 2}]',
    "two": '{"id": 1}{"id": 2}',
    "list": '{"id": 1},{"id": 2}',
    "behind": '{"id": 1} xyz',
    "null": "null",
    "type": '{"id": "x", "user": "a"}',
    "fraction": '{"id": 1.5}',
    "range": '{"id": 99999999999999999999}',
    "quotes": "{'id': 1}",
    "nan": '{"amount": NaN}',
    "time": '{"ts": "nonsense"}',
}


Given = dict[str, list[dict[str, Any]]]


def tried(spark: SparkSession, tested: Pipeline, given: Fixture) -> FixtureResult:
    return run_fixture(spark, tested, given, AvroSchemas(tested.registry))


def assert_passes(spark: SparkSession, tested: Pipeline, given: Fixture) -> None:
    result = tried(spark, tested, given)
    assert result.is_passed, "\n".join(result.lines())


def test_the_example_of_the_specification(spark: SparkSession) -> None:
    """12:SP-60, 12:SP-52: rules apply to given rows, letters are compared by what is named."""
    tested = pipeline(
        topic_source(
            "raw",
            ORDERS,
            on_error=OnError.DLQ,
            watermark=Watermark("ts", 30_000),
            expect=[
                rule("positive", "amount > 0", Action.DLQ),
                rule("has_user", "user is not null", Action.DROP),
            ],
        ),
        static_source("users", TableInput("parquet", "/nowhere", "user string, country string")),
        transforms=[
            select(
                "named",
                "select r.*, u.country from raw r left join users u on r.user = u.user",
                "raw",
                "users",
            ),
            select(
                "per_country",
                "select window(ts, '1 minute') as w, country, sum(amount) as total, count(*) as n"
                " from named group by window(ts, '1 minute'), country",
                "named",
            ),
            select(
                "flat",
                "select w.start as minute, country, total, n from per_country",
                "per_country",
            ),
        ],
    )
    given: Given = {
        "raw": [
            {"id": 1, "user": "a", "amount": 2.0, "ts": "2026-01-01T00:00:10Z"},
            {"id": 2, "user": "a", "amount": 3.0, "ts": "2026-01-01T00:00:50Z"},
            {"id": 3, "user": "a", "amount": -1.0, "ts": "2026-01-01T00:00:55Z"},
            {"id": 4, "user": None, "amount": 9.0, "ts": "2026-01-01T00:00:56Z"},
        ],
        "users": [{"user": "a", "country": "se"}],
    }
    right = {"minute": "2026-01-01T00:00:00Z", "country": "se", "total": 5.0, "n": 2}
    assert_passes(
        spark,
        tested,
        fixture(
            given,
            {"flat": [right], "raw": [{"id": 1}, {"id": 2}]},
            dlq=[{"reason": "expect:positive", "stage": "raw", "error": "not true: amount > 0"}],
        ),
    )
    wrong = tried(spark, tested, fixture(given, {"flat": [right | {"n": 3}]}, dlq=[]))
    assert not wrong.is_passed
    shown = "\n".join(wrong.lines())
    assert "flat: missing 1 row\n  - {minute:" in shown
    assert "n: 3}" in shown
    assert "flat: surplus 1 row\n  + {minute:" in shown
    assert "dlq: surplus 1 row" in shown


def test_json_that_cannot_be_read(spark: SparkSession) -> None:
    """12:SP-56, 12:SP-9: what is no object of the schema is told apart from what is."""
    given: Given = {
        "raw": [
            {"key": "good", "value": GOOD},
            {"key": "none", "value": None},
            {"key": "few", "value": "{}"},
            {"key": "more", "value": ' {"id": 7, "other": [1, {"a": "}{"}]} '},
            *({"key": key, "value": value} for key, value in BAD.items()),
        ]
    }
    seen: list[dict[str, Any]] = [
        {"_key": "good", "id": 1, "user": "a", "amount": 2.5, "ts": "2026-01-01T00:00:10Z"},
        {"_key": "none"},
        {"_key": "few"},
        {"_key": "more", "id": 7},
    ]
    for action in (OnError.DLQ, OnError.DROP):
        tested = pipeline(topic_source("raw", ORDERS, key=StringCodec(), on_error=action))
        dead = [
            {"key": key, "value": value, "reason": "decode", "topic": "orders", "partition": 0}
            for key, value in BAD.items()
        ]
        expected = dead if action is OnError.DLQ else []
        assert_passes(spark, tested, fixture(given, {"raw": seen}, dlq=expected, raw=True))
    kept = pipeline(topic_source("raw", ORDERS, key=StringCodec(), on_error=OnError.NULL))
    nulls: list[dict[str, Any]] = [{"_key": None}] * len(BAD)
    assert_passes(spark, kept, fixture(given, {"raw": [*seen, *nulls]}, dlq=[], raw=True))


def test_a_record_that_must_be_readable_fails_the_query_with_its_position(
    spark: SparkSession,
) -> None:
    """12:SP-64: also if the rows that are asked for would not include it."""
    tested = pipeline(
        topic_source("raw", ORDERS),
        transforms=[select("few", "select id from raw where id is not null and id > 5", "raw")],
    )
    given = fixture({"raw": [{"value": GOOD}, {"value": "x"}]}, {"few": []}, raw=True)
    told = tried(spark, tested, given).error
    assert told is not None
    assert "source raw: a record cannot be decoded: the value is not a JSON object" in told
    assert "(record orders-0 at offset 1)" in told


def test_required_fields_and_keys(spark: SparkSession) -> None:
    """12:SP-56: a missing required field makes a record undecodable, null in it does not."""
    codec = JsonCodec(
        ddl="id bigint, user struct<name: string, age: bigint>, items array<struct<sku: string>>",
        required=("id", "user.name", "items[].sku"),
    )
    tested = pipeline(
        topic_source("raw", codec, key=JsonCodec(ddl="shop bigint"), on_error=OnError.DLQ)
    )
    records = {
        '{"id": 1}': None,
        '{"id": null, "user": {"name": null, "age": 3}}': None,
        '{"id": 2, "user": null, "items": [{"sku": "a"}, {"sku": null}]}': None,
        '{"user": {"name": "x"}}': "the value lacks the required field id",
        '{"id": 3, "user": {"age": 3}}': "the value lacks the required field user.name",
        '{"id": 4, "items": [{"sku": "a"}, {}]}': "the value lacks the required field items[].sku",
    }
    rows: list[dict[str, Any]] = [{"key": '{"shop": 5}', "value": value} for value in records]
    rows += [{"key": "nonsense", "value": '{"id": 9}'}, {"key": None, "value": None}]
    dead: list[dict[str, Any]] = [
        {"error": error, "value": value} for value, error in records.items() if error
    ]
    dead += [
        {"error": "the key is not a JSON object of shop bigint", "value": '{"id": 9}'},
        {"error": "the value is null, but requires id, user.name, items[].sku", "value": None},
    ]
    seen: list[dict[str, Any]] = [{"id": 1, "_key": {"shop": 5}}, {"id": None, "_key": {"shop": 5}}]
    seen.append({"id": 2, "_key": {"shop": 5}})
    assert_passes(spark, tested, fixture({"raw": rows}, {"raw": seen}, dlq=dead, raw=True))


def test_columns_of_sources(spark: SparkSession) -> None:
    """12:SP-56: the columns of `raw`, `string` and `json`, with headers and without."""
    tested = pipeline(
        topic_source("plain"),
        topic_source("named", key=StringCodec(), headers=True),
        topic_source("text", StringCodec(), on_error=OnError.NULL),
        topic_source("full", JsonCodec(ddl="a int"), headers=True),
        static_source("rows", RowsInput(({"a": 1, "b": "x"}, {"a": 2, "c": 0.5}))),
    )
    inputs = FixtureInputs(spark, fixture({}, {}, raw=True), AvroSchemas(None))
    build = Build(spark, tested, inputs, AvroSchemas(None))
    record = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    added = ["_key", "_topic", "_partition", "_offset", "_timestamp"]
    assert build.frame("plain").columns == record
    assert build.frame("named").columns == [*record, "headers"]
    assert dict(build.frame("named").dtypes)["key"] == "string"
    assert build.frame("text").columns == ["value", *added]
    assert build.frame("full").columns == ["a", *added, "_headers"]
    assert build.frame("rows").dtypes == [("a", "bigint"), ("b", "string"), ("c", "double")]
    record_of = {"key": "k", "value": b"\xff\xfe", "timestamp": "2026-01-01T00:00:00Z"}
    assert_passes(
        spark,
        tested,
        fixture(
            {"text": [record_of, {"value": "é"}], "plain": [record_of]},
            {
                "text": [
                    {"value": None, "_key": None, "_offset": 0},
                    {"value": "é", "_key": None, "_offset": 1},
                ],
                "plain": [record_of | {"topic": "orders", "offset": 0}],
                "rows": [],
            },
            raw=True,
        ),
    )


def test_rules(spark: SparkSession) -> None:
    """12:SP-52, 12:SP-17: null counts as failed; a letter wins over a drop; all are counted."""
    rules = [
        rule("known", "user is not null", Action.DROP),
        rule("positive", "amount > 0", Action.DLQ),
        rule("small", "amount < 100"),
    ]
    tested = pipeline(
        topic_source("raw", ORDERS),
        transforms=[
            select("big", "select id, amount from raw", "raw", expect=[
                rule("tiny", "amount < 1000", Action.DLQ)
            ]),
            select("strict", "select id from raw", "raw", expect=[
                rule("low", "id < 4", Action.FAIL)
            ]),
        ],
    )  # fmt: skip
    tested = pipeline(
        topic_source("raw", ORDERS, expect=rules), transforms=list(tested.transforms.values())
    )
    given: Given = {
        "raw": [
            {"id": 1, "user": "a", "amount": 1.0},
            {"id": 2, "user": "a", "amount": None},
            {"id": 3, "user": None, "amount": -1.0},
            {"id": 4, "user": None, "amount": 1.0},
            {"id": 5, "user": "a", "amount": 500.0},
            {"id": 6, "user": "a", "amount": 5000.0},
        ]
    }
    row = {"id": 6, "amount": 5000.0}
    assert_passes(
        spark,
        tested,
        fixture(
            given,
            {"raw": [{"id": 1}, {"id": 5}, {"id": 6}], "big": [{"id": 1}, {"id": 5}]},
            dlq=[
                {"stage": "raw", "reason": "expect:positive", "topic": None},
                {"stage": "raw", "reason": "expect:positive", "topic": None},
                {"stage": "big", "reason": "expect:tiny", "topic": None},
            ],
        ),
    )
    inputs = FixtureInputs(spark, fixture(given, {}), AvroSchemas(None))
    letters = Build(spark, tested, inputs, AvroSchemas(None)).letters(["big"])
    assert letters is not None
    assert [json.loads(one.value) for one in letters.collect()] == [row]
    told = tried(spark, tested, fixture(given, {"strict": []})).error
    assert told is not None
    assert "strict: a row breaks the rule 'low' (id < 4): {\"id\":" in told


def doubled(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("id * 2 as id")


def test_python_steps(spark: SparkSession, tmp_path: Path) -> None:
    """12:SP-5, 12:SP-51: functions beside the file, with what they import, run on workers."""
    (tmp_path / "helpers.py").write_text("FACTOR = 10\n")
    (tmp_path / "steps.py").write_text(
        "from pyspark.sql.functions import udf\n"
        "import helpers\n"
        "def times(n):\n    return n * helpers.FACTOR\n"
        "def scaled(left, right):\n"
        "    return left.union(right).select(udf(times, 'bigint')('id').alias('id'))\n"
        "def nothing(rows):\n    return None\n"
        "def broken(rows):\n    return rows.nonsense\n"
        "VALUE = 3\n"
    )
    tested = pipeline(
        topic_source("raw", ORDERS),
        file=str(tmp_path / "pipeline.yaml"),
        transforms=[
            function("twice", PythonFunction("doubled", doubled), "raw"),
            select("ids", "select id from raw", "raw"),
            function("scaled", PythonFunction("steps:scaled"), "twice", "ids"),
            function("nothing", PythonFunction("steps:nothing"), "raw"),
            function("broken", PythonFunction("steps:broken"), "raw"),
            function("value", PythonFunction("steps:VALUE"), "raw"),
            function("gone", PythonFunction("nosuch:f"), "raw"),
        ],
    )
    given: Given = {"raw": [{"id": 1}, {"id": 2}]}
    scaled = [{"id": 20}, {"id": 40}, {"id": 10}, {"id": 20}]
    assert_passes(spark, tested, fixture(given, {"scaled": scaled}))
    for name, words in {
        "nothing": "expected a DataFrame from the function of 'nothing', found NoneType",
        "broken": "the function of 'broken' raised",
        "value": "expected a function for 'steps:VALUE'",
        "gone": "the module of 'nosuch:f' cannot be imported",
    }.items():
        told = tried(spark, tested, fixture(given, {name: []})).error
        assert told is not None
        assert words in told
        assert told.startswith(str(PLACE))


def test_dedup_keeps_the_first_within_the_time(spark: SparkSession) -> None:
    """12:SP-51: of equal keys, one row within the time, in the order of event time."""
    tested = pipeline(
        topic_source("raw", ORDERS, watermark=Watermark("ts", 60_000)),
        transforms=[
            select("renamed", "select id, user, ts as at from raw", "raw"),
            Transform("once", Dedup(("user",), 3_600_000), ("renamed",), None, (), PLACE),
            Transform("wrong", Dedup(("nosuch",), 1), ("renamed",), None, (), PLACE),
        ],
    )
    given: Given = {
        "raw": [
            {"id": 1, "user": "a", "ts": "2026-01-01T00:00:00Z"},
            {"id": 2, "user": "a", "ts": "2026-01-01T01:00:00Z"},
            {"id": 3, "user": "a", "ts": "2026-01-01T01:00:01Z"},
            {"id": 4, "user": "b", "ts": "2026-01-01T00:00:00Z"},
            {"id": 5, "user": None, "ts": "2026-01-01T00:00:00Z"},
            {"id": 6, "user": None, "ts": "2026-01-01T00:00:02Z"},
        ]
    }
    kept = [{"id": 1}, {"id": 3}, {"id": 4}, {"id": 5}]
    assert_passes(spark, tested, fixture(given, {"once": kept}))
    told = tried(spark, tested, fixture(given, {"wrong": []})).error
    assert told is not None
    assert "expected the keys nosuch of 'wrong'" in told


def test_what_is_wrong_with_sql_is_told_with_its_line(spark: SparkSession) -> None:
    """12:SP-59: Spark's message, and the line of the file that holds the SQL."""
    tested = pipeline(
        topic_source("raw", ORDERS, expect=[]),
        transforms=[
            select("unknown", "select id,\n  nosuch\nfrom raw", "raw"),
            select("syntax", "select id\nfrom raw where where", "raw"),
        ],
    )
    inputs = FixtureInputs(spark, fixture({}, {}), AvroSchemas(None))
    build = Build(spark, tested, inputs, AvroSchemas(None))
    with pytest.raises(PipelineError, match=r"pipeline.yaml:11:1: the SQL of 'unknown' .*nosuch"):
        build.frame("unknown")
    with pytest.raises(PipelineError, match=r"pipeline.yaml:11:1: the SQL of 'syntax'"):
        build.frame("syntax")
    views = {view.name for view in spark.catalog.listTables() if view.isTemporary}
    assert not views & {"raw", "unknown", "syntax"}


def test_given_rows_that_do_not_fit(spark: SparkSession) -> None:
    """12:SP-60: what is wrong with a test's rows is told by row and column."""
    codec = JsonCodec(
        ddl="id bigint, at timestamp, tags array<string>, m map<string, int>, b binary"
    )
    tested = pipeline(topic_source("raw", codec))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"nosuch": 1}, "row 1: expected the columns id, at"),
        ({"id": "x"}, "row 1: expected bigint for id, found 'x'"),
        ({"id": True}, "row 1: expected bigint for id, found True"),
        ({"at": "noon"}, "row 1: expected timestamp for at, found 'noon'"),
        ({"tags": [1]}, "row 1: expected string for tags[0], found 1"),
    ]
    for row, words in cases:
        told = tried(spark, tested, fixture({"raw": [row]}, {"raw": []})).error
        assert told is not None
        assert words in told
    whole: dict[str, Any] = {
        "id": 1,
        "at": "2026-01-01T00:00:00+01:00",
        "tags": ["a"],
        "m": {"x": 1},
        "b": "b",
    }
    same = whole | {"at": datetime(2025, 12, 31, 23, tzinfo=UTC)}
    assert_passes(spark, tested, fixture({"raw": [whole]}, {"raw": [same]}))
    told = tried(spark, tested, fixture({"raw": [whole]}, {"raw": [{"nosuch": 1}]})).error
    assert told is not None
    assert "expected rows of 'raw' name the columns nosuch" in told


def test_spark_looks_at_every_query_without_a_broker(spark: SparkSession) -> None:
    """12:SP-59: `validate --deep`."""
    users = TableInput("parquet", "/nowhere", "user string, country string")
    grouped = "select user, count(*) as n from {} group by user"
    joined = "select raw.* from raw join users u on raw.user = u.user"

    def out(key: str) -> TopicTarget:
        return TopicTarget("t", key, JsonCodec(), None, None, False, {})

    good = pipeline(
        topic_source("raw", ORDERS),
        static_source("users", users),
        transforms=[select("named", joined, "raw", "users")],
        sinks=[sink("out", "named", out("user"))],
    )
    assert deep_problems(spark, good) == []
    bad = pipeline(
        topic_source("raw", ORDERS, expect=[rule("r", "nosuch > 0")]),
        topic_source("plain", ORDERS),
        static_source("gone", TableInput("parquet", "/nowhere", None)),
        transforms=[
            select("typo", "select\n  usr from plain", "plain"),
            select("counts", grouped.format("plain"), "plain"),
        ],
        sinks=[sink("typed", "typo", out("usr")), sink("counted", "counts", out("nosuch"))],
    )
    found = deep_problems(spark, bad)
    assert [(place.line, message.split(":")[0]) for place, message in found] == [
        (1, "the rules of 'raw' do not fit its rows"),
        (1, "source 'gone'"),
        (11, "the SQL of 'typo' is refused by Spark"),
        (1, "sink 'counted'"),
    ]
    late = pipeline(
        topic_source("plain", ORDERS),
        transforms=[select("counts", grouped.format("plain"), "plain")],
        sinks=[sink("counted", "counts", out("user"))],
    )
    assert ["watermark" in message for _, message in deep_problems(spark, late)] == [True]
