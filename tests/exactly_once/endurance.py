"""``python -m tests.exactly_once.endurance [BATCHES]``: many batches leave nothing behind.

Blocks and shuffle files of Spark, threads, sockets and other descriptors of the driver are counted
after the first batches and after the last one.
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from odradek import Admin
from odradek.client.admin import NewTopic
from odradek.spark.session import build_session
from odradek.spark.transactional.marker import QueryIdentity
from odradek.spark.transactional.notes import CheckpointNotes
from odradek.spark.transactional.stream import read_sink
from odradek.spark.transactional.writer import TransactionalWriter
from tests.support.odradek_broker import running_odradek

__all__ = ["left_behind", "settled"]

_WARM_UP = 5
_SETTLE_S = 60


def left_behind(spark: SparkSession, local_dir: Path) -> dict[str, int]:
    """What a driver holds now."""
    context = spark.sparkContext._jsc.sc()
    return {
        "blocks": int(context.getPersistentRDDs().size()),
        "shuffle files": sum(1 for _ in local_dir.rglob("shuffle_*")),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def settled(count: Callable[[], dict[str, int]], before: dict[str, int]) -> dict[str, int]:
    """The counts when they are no more than before, or after a while: Spark removes in turn."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        found = count()
        if all(found[name] <= before[name] for name in before) or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def main() -> int:
    """Writes batches; 0 if nothing is left."""
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = build_session(
            master="local[2]",
            checkpoint=name,
            quick_start=True,
            keep_class_data=False,
            conf={"spark.driver.memory": "1g", "spark.local.dir": str(folder / "local")},
        )
        with running_odradek(folder / "broker") as broker:
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.create_topics([NewTopic(name="target", partition_count=2)])
            rows = spark.sql("select string(id) as value from range(20)")
            options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "target"}
            identity = QueryIdentity(name="endurance", query_id="1", target="target")
            (folder / "checkpoint").mkdir()
            notes = CheckpointNotes(str(folder / "checkpoint"))
            writer = TransactionalWriter(identity, *read_sink(rows, options), notes)
            before: dict[str, int] = {}
            began = time.monotonic()
            for batch in range(batches):
                assert writer.write(rows, batch, str(batch)) == 20
                if batch == _WARM_UP:
                    before = settled(lambda: left_behind(spark, folder / "local"), {})
            after = settled(lambda: left_behind(spark, folder / "local"), before)
            took = time.monotonic() - began
            writer.close()
        spark.stop()
    print(f"{batches} batches in {took:.0f} s: before {before}, after {after}")
    return 0 if all(after[name] <= before[name] for name in before) else 1


if __name__ == "__main__":
    sys.exit(main())
