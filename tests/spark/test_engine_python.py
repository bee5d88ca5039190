"""Pipelines in Python on Spark's workers, which see neither the file nor what lies beside it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.fixtures.fixture_runs import run_fixture
from odradek.spark.pipeline.file.load import load

_BESIDE = """\
OFFSET = 100

class Shift:
    def __init__(self, by):
        self.by = by

def shifted(number):
    return number + Shift(OFFSET).by
"""
_INNER = """\
from pyspark.sql.functions import udf

@udf("bigint")
def negative(number):
    return -number
"""
_PARTS = """\
import {beside}
from pyspark.sql.functions import udf

from odradek.spark import {names}

@udf("bigint")
def shifted(number):
    return {beside}.shifted(number)
{head}
@{transform}(inputs=["raw"])
def moved(raw):
    return raw.select(shifted("id").alias("id"))

@{transform}(inputs=["moved"])
def turned(moved):
    from {beside}_package.inner import negative
    return moved.select(negative("id").alias("id"))
"""
_IN_PYTHON = """
p = pipeline("orders", bootstrap="localhost:9092")
p.source("raw", topic="orders", value=json("id bigint"))
p.sink("out", from_="turned", topic="out")
p.test("turned", given={"raw": [{"id": 1}]}, expect={"turned": [{"id": -101}]})
"""
_IN_YAML = """\
name: orders
bootstrap: localhost:9092
include: [steps_of_yaml.py]
sources: {raw: {topic: orders, value: {format: json, schema: "id bigint"}}}
sinks: {out: {from: turned, topic: out}}
tests:
  - {name: turned, given: {raw: [{id: 1}]}, expect: {turned: [{id: -101}]}}
"""


@pytest.mark.parametrize("front_end", ["python", "include"])
def test_what_lies_beside_the_file_reaches_the_workers(
    spark: SparkSession, tmp_path: Path, front_end: str
) -> None:
    """12:SP-5, 12:SP-66: also of decorated functions, and what they import when they are called."""
    beside = f"beside_{front_end}"
    (tmp_path / f"{beside}.py").write_text(_BESIDE)
    package = tmp_path / f"{beside}_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text(_INNER)
    if front_end == "python":
        file = tmp_path / "pipe.py"
        file.write_text(
            _PARTS.format(
                beside=beside, names="json, pipeline", head=_IN_PYTHON, transform="p.transform"
            )
        )
    else:
        file = tmp_path / "pipe.yaml"
        file.write_text(_IN_YAML)
        (tmp_path / "steps_of_yaml.py").write_text(
            _PARTS.format(beside=beside, names="transform", head="", transform="transform")
        )
    loaded = load(str(file), environment={})
    assert loaded.pipeline is not None, loaded.problems
    (given,) = loaded.pipeline.tests
    result = run_fixture(spark, loaded.pipeline, given, AvroSchemas(None))
    assert not result.lines()
