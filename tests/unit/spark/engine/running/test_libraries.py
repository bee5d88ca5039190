"""What the tasks of a pipeline need, and what they do without."""

import subprocess
import sys

import pytest

from odradek.spark.pipeline.engine.running.libraries import task_libraries
from odradek.spark.pipeline.graph.model import (
    AvroCodec,
    DeltaTarget,
    JdbcTarget,
    JsonCodec,
    TopicTarget,
)
from tests.support.pipelines import pipeline, sink, topic_source

DELTA = DeltaTarget("/lake", (), 1 << 20, 0, ())
JDBC = JdbcTarget(url="postgresql://x/y", table="t", key=("id",), user=None, password=None)


def test_what_a_pipeline_needs() -> None:
    """12:SP-41: Avro on either side, a database; of the sinks that run."""
    plain = pipeline(topic_source("raw", JsonCodec(ddl="id int")), sinks=[sink("a", "raw", DELTA)])
    assert task_libraries(plain) == ()
    avro = pipeline(topic_source("raw", key=AvroCodec()), sinks=[sink("a", "raw", JDBC)])
    assert task_libraries(avro) == ("fastavro", "psycopg")
    assert task_libraries(avro, ["dlq"]) == ("fastavro",)
    written = TopicTarget("t", "id", AvroCodec(), None, None, False, {})
    into = pipeline(topic_source("raw"), sinks=[sink("a", "raw", written)])
    assert task_libraries(into) == ("fastavro",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("odradek.spark.pipeline.engine.sinks.delta_files", ["deltalake", "pandas", "psycopg"]),
        ("odradek.spark.pipeline.engine.sinks.jdbc_copy", ["deltalake", "pandas", "fastavro"]),
        ("odradek.spark.pipeline.engine.avro.frames", ["deltalake", "pandas", "psycopg"]),
    ],
)
def test_tasks_import_no_more_than_they_need(module: str, needless: list[str]) -> None:
    """12:SP-41: an executor lacks what only the driver uses, and what other pipelines do."""
    lacking = [*needless, "ruamel", "sqlglot"]
    program = f"import sys; sys.modules.update(dict.fromkeys({lacking})); import {module}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
