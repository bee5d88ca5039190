"""A real cluster: a master and two workers, which cannot see this package."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from odradek import Admin, Producer
from tests.support.held_connections import holders
from tests.support.odradek_broker import OdradekBroker
from tests.support.spark_cluster import running_cluster
from tests.support.topic_records import records_of

TIMEOUT_S = 600
# An idle producer or reader is closed after half of it.
LONGEST_HOLD_S = 60


@pytest.fixture
def left_behind(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> Callable[[], None]:
    """Has the workers of another session connect to the broker; checks that they let go of it.

    They may take a minute: less than the cluster needs, so that nobody has to wait for them.
    """
    process = SparkContext._gateway.proc  # type: ignore[union-attr]  # of a running session
    name, kafka = topic(partitions=2), {"kafka.bootstrap.servers": broker.bootstrap}
    for number in range(5):  # On a machine that stood still, they may have let go already.
        frame = spark.createDataFrame([("x",)], "value string")
        frame.write.format("odradek").mode("append").options(**kafka, topic=name).save()
        query = (
            spark.readStream.format("odradek")
            .options(**kafka, subscribe=name, startingOffsets="earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()
        if holders(process.pid, broker.port):
            break
    else:
        raise AssertionError("nobody keeps a connection; this cannot show that they are closed")
    stopped = time.monotonic()

    def check() -> None:
        while held := holders(process.pid, broker.port):
            # As much again, for a machine that is busy.
            assert time.monotonic() < stopped + 2 * LONGEST_HOLD_S, held
            time.sleep(0.2)

    return check


def test_the_package_reaches_workers_that_do_not_have_it(
    broker: OdradekBroker,
    topic: Callable[..., str],
    tmp_path: Path,
    left_behind: Callable[[], None],
) -> None:
    """12:SP-14, 12:SP-41: refused with a table without shipping; with it, reads and writes.

    12:SP-45: meanwhile, what the queries of another session held is let go.
    """
    source, sink = topic(partitions=4), topic(partitions=2)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type="lz4") as producer:
        for number in range(1000):
            producer.send(source, str(number).encode(), key=str(number % 7).encode())
    with running_cluster(tmp_path / "cluster", workers=2) as cluster:
        told = subprocess.run(
            [
                sys.executable,
                str(Path(__file__).with_name("cluster_job.py")),
                cluster.url,
                broker.bootstrap,
                source,
                sink,
                str(tmp_path),
            ],
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                "PYSPARK_PYTHON": cluster.python,
                "ODRADEK_CACHE": str(tmp_path / "cache"),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert told.returncode == 0, f"{told.stdout}\n{told.stderr[-6000:]}\n{cluster.logs()}"
    answer = json.loads(told.stdout.splitlines()[-1])
    assert "executors have other versions than the driver" in answer["refusal"]
    assert "none: No module named 'odradek'" in answer["refusal"]
    assert answer["count"] == 1000
    assert answer["executors"] == 2
    values = sorted(
        int(record.value or b"") for record in records_of(broker.bootstrap, sink, [0, 1])
    )
    assert values == list(range(1000))
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        offsets = admin.list_group_offsets(["cluster"])["cluster"]
    assert not isinstance(offsets, Exception)
    assert sum(one.offset for one in offsets.values()) == 1000
    left_behind()
