"""The reason in a report of Spark."""

import pytest

from odradek.spark.pipeline.engine.running.failures import Failure, parse_failure

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
    failure = parse_failure(text, position="orders-0@5")
    assert failure == Failure(kind, message, "orders-0@5")


def test_a_failure_is_told_with_the_position() -> None:
    """12:SP-64: the source position."""
    assert str(Failure("IOException", "x", "a-0@5")) == "IOException: x (batch from a-0@5)"
    assert str(Failure("IOException", "x")) == "IOException: x"


def test_a_long_message_is_cut() -> None:
    assert len(parse_failure("x" * 5_000).message) == 500
