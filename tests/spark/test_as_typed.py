"""Spark as a new user starts it: the command on a terminal, and a session of plain Spark."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from odradek import Producer
from tests.support.odradek_broker import OdradekBroker

_TIMEOUT_S = 600
_CLEARED = re.compile(r"\r\x1b\[K|\x1b\[[KJ]|\r?\x1b\[\d+A")

PEOPLE = """\
name: people
bootstrap: BROKER
checkpoint: ./checkpoints
sources:
  people: {topic: TOPIC, key: string, value: string}
transforms:
  grown_up:
    sql: |
      select _key as name,
        cast(value as int) as age
      from people
sinks:
  table: {from: grown_up, delta: {path: ./grown-up}}
"""

PLAIN = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", options).getOrCreate()


def count():
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", sys.argv[1])
    return reader.option("subscribe", sys.argv[2]).load().count()


try:
    print("by itself", count())
except Exception as error:
    print("by itself", str(error).partition("]")[0].rpartition("[")[2])

from odradek.spark import register

register(spark)
register(spark)
print("registered", count())
print("python", spark.range(1).select(udf(lambda _: sys.executable)("id")).head()[0])
spark.stop()
"""


def produce(broker: OdradekBroker, topic: str, *values: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, key=b"k", value=value.encode())


def on_a_terminal(command: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and output of a command on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'stty cols 80; exec "$@"', "sh", *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        start_new_session=True,
    )
    os.close(theirs)
    read: list[bytes] = []

    def drain() -> None:
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # The last process has closed it.
                return
            read.append(part)

    draining = threading.Thread(target=drain)
    draining.start()
    try:
        code = process.wait(_TIMEOUT_S)
    finally:
        process.kill()
    draining.join(_TIMEOUT_S)
    os.close(ours)
    return code, b"".join(read).decode().replace("\r\n", "\n")


def test_a_value_that_cannot_be_cast_ends_the_command(
    broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """At once, with the line, the offsets and the whole reason, and nothing of Java's."""
    name = topic(partitions=1)
    produce(broker, name, "41", "old")
    file = tmp_path / "people.yaml"
    file.write_text(PEOPLE.replace("BROKER", broker.bootstrap).replace("TOPIC", name))
    command = [sys.executable, "-m", "odradek.cli.main", "pipeline", "run", "people.yaml", "--once"]

    code, shown = on_a_terminal(command, tmp_path)

    assert code == 1, shown
    assert "starting Spark, " in shown
    lines = [line for line in _CLEARED.sub("\n", shown).splitlines() if line.strip()]
    (failed,) = [line for line in lines if line.startswith("table failed: people.yaml")]
    assert failed == (
        "table failed: people.yaml:10:1: CAST_INVALID_INPUT: The value 'old' of the type"
        ' "STRING" cannot be cast to "INT" because it is malformed. Correct the value as per the'
        " syntax, or change its target type. Use `try_cast` to tolerate malformed input and return"
        f" NULL instead. (in the batch of {name}-0 from 0 to 2)"
    )
    assert lines[-1] == "table failed: 0 records read and 0 rows written in 0 batches"
    assert [
        line for line in lines if "WARN" in line or "log4j" in line or "log level" in line
    ] == []


def test_a_session_of_plain_spark_takes_the_source(
    broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """In an environment that is not activated: the Python on the path is another one."""
    name = topic(partitions=1)
    produce(broker, name, "1", "2", "3")
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    base = os.path.realpath(sys.executable)
    other.write_text(f'#!/bin/sh\nexec "{base}" -S "$@"\n')
    other.chmod(0o755)
    (tmp_path / "plain.py").write_text(PLAIN)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}

    done = subprocess.run(
        [sys.executable, "plain.py", broker.bootstrap, name],
        cwd=tmp_path,
        env={**kept, "PATH": f"{other.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "by itself DATA_SOURCE_NOT_FOUND",
        "registered 3",
        f"python {sys.executable}",
    ]
    assert "statically registered" not in done.stderr
