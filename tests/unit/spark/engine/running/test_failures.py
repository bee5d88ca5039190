"""The reason in a report of Spark."""

import pytest

from odradek.spark.pipeline.engine.problems import PipelineError, StageError
from odradek.spark.pipeline.engine.running.failures import (
    Failure,
    QueryStartError,
    failure_of_start,
    parse_failure,
)
from odradek.spark.pipeline.graph.model import Place

RAISED = """[STREAM_FAILED] Query [id = 27709cc9, runId = 88717786] terminated with exception: \
[USER_RAISED_EXCEPTION] source raw: a record cannot be decoded: the value is not UTF-8 \
(record orders-0 at offset 17) SQLSTATE: P0001 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: redef [id = 27709cc9]
Current Committed Offsets: {}

JVM stacktrace:
org.apache.spark.SparkException: ...
\tat org.apache.spark.Foo.bar(Foo.scala:1)
"""

PYTHON = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was \
thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in <module>
    raise ValueError("first")
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/read.py", line 9, in read
    raise DataLossError(x)
odradek.spark.datasource.data_loss.DataLossError: topic orders-0: expected offset 5, found 9

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
Caused by: java.lang.RuntimeException: x
"""

CONNECT = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_EXCEPTION] [session: 1] [userId: ] Found error inside foreachBatch Python process: \
Traceback (most recent call last):
  File "/x/worker.py", line 1, in <module>
odradek.spark.pipeline.engine.problems.TableMismatchError: the table has other columns
"""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            RAISED,
            "USER_RAISED_EXCEPTION",
            "source raw: a record cannot be decoded: the value is not UTF-8"
            " (record orders-0 at offset 17)",
        ),
        (PYTHON, "DataLossError", "topic orders-0: expected offset 5, found 9"),
        (CONNECT, "TableMismatchError", "the table has other columns"),
        ("java.io.IOException: No space left", "IOException", "No space left"),
        ("it broke: badly", "Error", "it broke: badly"),
        ("broken", "Error", "broken"),
        ("", "Error", "no reason given"),
    ],
)
def test_reasons(text: str, kind: str, message: str) -> None:
    """12:SP-64: class and message."""
    failure = parse_failure(text, position="orders-0 from 5 to 9")
    assert (failure.kind, failure.message) == (kind, message)
    assert failure.position == "orders-0 from 5 to 9"


def test_a_failure_is_told_with_the_position() -> None:
    """12:SP-64: the source position."""
    batch = "a-0 from 5 to 9"
    assert str(Failure("IOException", "x", batch)) == f"IOException: x (in the batch of {batch})"
    assert str(Failure("IOException", "x")) == "IOException: x"
    assert str(Failure("IOException", "x", place="a.yaml:3:1")) == "a.yaml:3:1: IOException: x"


def test_a_long_message_is_cut() -> None:
    assert len(parse_failure("x" * 5_000).message) == 500


CAST = """An exception was raised by the Python Proxy. Return Message: \
Traceback (most recent call last):
  File "/x/delta.py", line 93, in _append
    written = frame.mapInArrow(writer, WRITTEN).collect()
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
pyspark.errors.exceptions.captured.NumberFormatException: [CAST_INVALID_INPUT] The value 'old' \
cannot be cast. SQLSTATE: 22018
== SQL (line 1, position 66) ==
...s int) as age from people where cast(value as int) >= 18
                                   ^^^^^^^^^^^^^^^^^^


=== Streaming Query ===
Current Committed Offsets: {}
"""


def test_an_error_of_sql_names_the_condition_and_the_text() -> None:
    """The last error is Spark's own, thrown through a function of ours."""
    failure = parse_failure(CAST)
    assert (failure.kind, failure.message) == (
        "CAST_INVALID_INPUT",
        "The value 'old' cannot be cast.",
    )
    assert failure.fragment == "cast(value as int)"
    assert failure.is_final


@pytest.mark.parametrize(
    ("text", "is_final"),
    [
        (RAISED, True),  # A record that cannot be decoded.
        (PYTHON, True),  # Data loss.
        (CONNECT, True),  # A table with other columns.
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", True),
        ("[UNRESOLVED_COLUMN] A column cannot be resolved. SQLSTATE: 42703", True),
        ("x: orders does not exist; create the topic first, or subscribe to others", True),
        ("TopicError: TOPIC_AUTHORIZATION_FAILED: orders", True),
        ("java.io.IOException: No space left", False),
        ("[STREAM_FAILED] Query terminated: NOT_LEADER_OR_FOLLOWER SQLSTATE: XXKST", False),
        ("[FAILED_EXECUTE_UDF] User defined function failed. SQLSTATE: 39000", False),
    ],
)
def test_errors_that_no_other_attempt_can_avoid(text: str, is_final: bool) -> None:
    assert parse_failure(text).is_final is is_final


def test_a_python_process_that_does_not_start_in_time() -> None:
    text = "[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE] it failed. SQLSTATE: XXKST"
    assert parse_failure(text).is_of_start
    assert not parse_failure(CAST).is_of_start


def test_a_start_that_is_refused_keeps_its_reason() -> None:
    failure = parse_failure(CAST)
    assert failure_of_start(QueryStartError("lake", failure)) is failure
    place = Place("shop.yaml", 3, 1)
    assert failure_of_start(StageError(place, "no such column")).is_final
    assert not failure_of_start(PipelineError("the registry does not answer")).is_final
