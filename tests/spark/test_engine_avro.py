"""Avro with a registry: read and written by Python functions on Spark's workers."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from odradek import Producer
from odradek.spark.pipeline.engine.avro.registry import frame_prefix
from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.fixtures.fixture_runs import FixtureInputs, run_fixture
from odradek.spark.pipeline.engine.frames.build import Build
from odradek.spark.pipeline.engine.frames.encoding import encode
from odradek.spark.pipeline.engine.running.run import run_pipeline
from odradek.spark.pipeline.graph.model import (
    AvroCodec,
    ConsoleTarget,
    Fixture,
    JsonCodec,
    OnError,
    Pipeline,
    Registry,
    StringCodec,
    TopicTarget,
)
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipelines import ORDERS, fixture, pipeline, sink, topic_source
from tests.support.schema_registry import SchemaRegistry, running_registry
from tests.support.topic_records import records_of

OLD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "gone", "type": "string"},
    ],
}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "user", "type": ["null", "string"], "default": None},
    ],
}
NOON = "2026-01-01T12:00:00Z"
NOON_MS = 1_767_268_800_000


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as server:
        server.add("orders-value", 1, OLD)
        server.add("orders-value", 2, NEW)
        yield server


def avro(schema: Any, schema_id: int | None, **row: Any) -> bytes:
    out = io.BytesIO()
    if schema_id is not None:
        out.write(frame_prefix(schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def failures(spark: SparkSession, tested: Pipeline, given: Fixture) -> str:
    result = run_fixture(spark, tested, given, AvroSchemas(tested.registry))
    return "\n".join(result.lines())


def test_records_of_several_writers(spark: SparkSession, registry: SchemaRegistry) -> None:
    """12:SP-57, 12:SP-10: resolved against the newest schema; what cannot be is a dead letter."""
    old = avro(OLD, 1, id=1, at=NOON_MS, gone="x")
    new = avro(NEW, 2, id=2**40, at=NOON_MS, tags=["a"], user="u")
    bad = {
        "prefix": b"\x01" + new[1:],
        "short": new[:3],
        "unknown": frame_prefix(99) + new[5:],
        "cut": new[:-2],
        "long": new + b"!",
        "garbage": frame_prefix(2) + b"\xff" * 12,
    }
    tested = pipeline(
        topic_source("raw", AvroCodec(), key=StringCodec(), on_error=OnError.DLQ, headers=True),
        registry=Registry(registry.url, None, None),
    )
    rows: list[dict[str, Any]] = [
        {"key": "old", "value": old, "headers": [{"key": "h", "value": "1"}]},
        {"key": "new", "value": new},
        {"key": "none", "value": None},
        *({"key": key, "value": value} for key, value in bad.items()),
    ]
    seen: list[dict[str, Any]] = [
        {"_key": "old", "id": 1, "at": NOON, "tags": [], "user": None},
        {"_key": "new", "id": 2**40, "at": NOON, "tags": ["a"], "user": "u"},
        {"_key": "none"},
    ]
    dead = [{"key": key, "value": value, "reason": "decode"} for key, value in bad.items()]
    assert not failures(spark, tested, fixture({"raw": rows}, {"raw": seen}, dlq=dead, raw=True))
    # Each schema was asked for once by whoever needed it, not once a record.
    assert len(registry.asked) < 20


def test_a_registry_that_gives_no_answer_fails_the_query(
    spark: SparkSession, registry: SchemaRegistry
) -> None:
    """12:SP-57: its records are not taken for bad ones."""
    registry.answers["/schemas/ids/7"] = [(401, {})]
    tested = pipeline(
        topic_source("raw", AvroCodec(), on_error=OnError.DROP),
        registry=Registry(registry.url, None, None),
    )
    rows = [{"value": avro(NEW, 7, id=1, at=NOON_MS, tags=[], user=None)}]
    told = failures(spark, tested, fixture({"raw": rows}, {"raw": []}, raw=True))
    assert "RegistryError" in told
    assert "refuses schema 7: 401" in told


def test_what_is_written_is_read_again(spark: SparkSession, registry: SchemaRegistry) -> None:
    """12:SP-53: Avro, JSON and text as key and value, headers and partition."""
    codec = AvroCodec(schema=json.dumps(NEW))
    tested = pipeline(
        topic_source("raw", JsonCodec(ddl="id bigint, at timestamp, tags array<string>, n int"),
                     key=StringCodec(), headers=True),
        registry=Registry(registry.url, None, None),
    )  # fmt: skip
    row = {"id": 5, "at": NOON, "tags": ["x"], "n": 1, "_key": "k", "_partition": 3}
    headers = [{"key": "h", "value": "1"}]
    given = fixture({"raw": [row | {"_headers": headers}, row]}, {})
    schemas = AvroSchemas(tested.registry)
    rows = Build(spark, tested, FixtureInputs(spark, given, schemas), schemas).frame("raw")
    columns = ("id", "at", "tags")

    def written(key: Any, value: Any, headers: str | None = None) -> list[Any]:
        target = TopicTarget("orders", key, value, headers, "_partition", False, {})
        return encode(rows, target, "out", schemas.writer).collect()

    framed = written("_key", AvroCodec(columns=columns), "_headers")
    expected = {"id": 5, "at": NOON_MS, "tags": ["x"], "user": None}
    assert framed[0].key == b"k"
    assert framed[0].value == avro(NEW, 2, **expected)
    assert framed[0].partition == 3
    assert [tuple(one) for one in framed[0].headers] == [("h", b"1")]
    assert framed[1].headers == []
    plain = written(AvroCodec(schema=codec.schema, columns=columns), "n")
    assert plain[0].key == avro(NEW, None, **expected)
    assert plain[0].value == b"1"
    as_json = written(JsonCodec(columns=("n",)), JsonCodec())
    assert as_json[0].key == '{"n":1}'
    left = json.loads(as_json[0].value)
    assert left["at"] == "2026-01-01T12:00:00.000000Z"
    assert set(left) == {"id", "at", "tags", "_key", "_topic", "_offset", "_timestamp", "_headers"}


def test_columns_that_cannot_be_written(spark: SparkSession) -> None:
    """12:SP-53: told before a row is written."""
    tested = pipeline(topic_source("raw", ORDERS))
    schemas = AvroSchemas(None)
    rows = Build(spark, tested, FixtureInputs(spark, fixture({}, {}), schemas), schemas).frame(
        "raw"
    )
    for target, words in (
        (TopicTarget("t", "nosuch", JsonCodec(), None, None, False, {}), "the column 'nosuch'"),
        (TopicTarget("t", "id", StringCodec(), None, None, False, {}), "one column for the value"),
    ):
        with pytest.raises(Exception, match=words):
            encode(rows, target, "out", schemas.writer)


def test_garbage_on_a_topic_becomes_dead_letters(
    spark: SparkSession,
    registry: SchemaRegistry,
    broker: OdradekBroker,
    topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    """12:SP-9, 12:SP-57, 12:SP-58: records as they came, with where they lay and why."""
    orders, dead = topic(partitions=1), topic(partitions=1)
    registry.add(f"{orders}-value", 2, NEW)
    good = avro(NEW, 2, id=1, at=NOON_MS, tags=[], user="u")
    bad = {b"short": good[:3], b"unknown": frame_prefix(99) + good[5:], b"cut": good[:-2]}
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(orders, good, key=b"good", timestamp=NOON_MS)
        for key, value in bad.items():
            producer.send(orders, value, key=key, headers=[("h", b"1")], timestamp=NOON_MS)
    tested = pipeline(
        topic_source("raw", AvroCodec(), topics=[orders], on_error=OnError.DLQ),
        sinks=[sink("seen", "raw", ConsoleTarget(20))],
        registry=Registry(registry.url, None, None),
        bootstrap=broker.bootstrap,
        checkpoint=str(tmp_path / "checkpoints"),
        dead_letters=dead,
    )
    assert run_pipeline(tested, is_once=True, sinks=["dlq"], session=spark, out=io.StringIO())
    letters = {one.key: one for one in records_of(broker.bootstrap, dead, [0])}
    assert {key: one.value for key, one in letters.items()} == bad
    errors = {}
    for place, key in enumerate(bad, start=1):
        told = dict(letters[key].headers)
        errors[key] = told.pop("odradek.dlq.error")
        assert told == {
            "h": b"1",
            "odradek.dlq.pipeline": b"orders",
            "odradek.dlq.stage": b"raw",
            "odradek.dlq.reason": b"decode",
            "odradek.dlq.topic": orders.encode(),
            "odradek.dlq.partition": b"0",
            "odradek.dlq.offset": b"%d" % place,
            "odradek.dlq.timestamp": b"%d" % NOON_MS,
        }
    assert b"99" in (errors[b"unknown"] or b"")
    assert all(errors.values())
