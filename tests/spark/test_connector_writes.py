"""Spark's own Kafka connector writes to Odradek; what it wrote is read by our source."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.odradek_broker import OdradekBroker
from tests.support.spark_connector import WHY_MISSING, connector_jars
from tests.support.spark_python import patiently

TIMEOUT_S = 240

pytestmark = pytest.mark.skipif(not connector_jars(), reason=WHY_MISSING)


def test_what_the_connector_writes_is_there_once(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """A batch with keys, headers and partitions, then a stream of the same records onwards."""
    first, second = topic(partitions=3), topic(partitions=3)
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    frame = spark.sql(
        "select cast(id as string) as key, cast(id * 2 as string) as value,"
        " array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary))) as headers,"
        " cast(id % 3 as int) as partition from range(300)"
    )
    options = {**kafka, "includeHeaders": "true"}
    frame.write.format("kafka").options(**options, topic=first).save()
    stream = (
        spark.readStream.format("kafka")
        .options(**options, subscribe=first, startingOffsets="earliest")
        .load()
        .select("key", "value", "headers")
        .writeStream.format("kafka")
        .options(**options, topic=second, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert stream.awaitTermination(TIMEOUT_S)
    finally:
        stream.stop()

    def read(name: str) -> list[Any]:
        rows = (
            spark.read.format("odradek")
            .options(**options, subscribe=name)
            .load()
            .selectExpr(
                "int(string(key))", "int(string(value))", "string(headers[0].value)", "partition"
            )
        )
        found: list[Any] = patiently(rows.collect)
        return sorted(tuple(row) for row in found)

    assert read(first) == [(n, 2 * n, str(n), n % 3) for n in range(300)]
    assert [row[:3] for row in read(second)] == [(n, 2 * n, str(n)) for n in range(300)]
