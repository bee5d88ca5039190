"""The driver of `test_cluster`: a program of its own, because a process has one Spark session.

    cluster_job.py MASTER BOOTSTRAP SOURCE SINK FOLDER

Prints one JSON line: how the session was refused that did not ship, how many rows a batch read, and
on which executors.
"""

import json
import sys

from odradek.spark.progress.listener import progress_of
from odradek.spark.runtime.shipping import VersionsDifferError
from odradek.spark.session import build_session

_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.cores.max": "2",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def main(master: str, bootstrap: str, source: str, sink: str, folder: str) -> None:
    refusal = ""
    try:
        build_session(
            master=master,
            conf={**_CONF, "spark.cores.max": "1"},  # One executor is enough to be refused by.
            quick_start=True,
            keep_class_data=False,
            ship=False,
            task_libraries=["fastavro", "deltalake"],
        )
    except VersionsDifferError as error:
        refusal = str(error)
    spark = build_session(master=master, conf=_CONF, quick_start=True, keep_class_data=False)
    kafka = {"kafka.bootstrap.servers": bootstrap}
    frame = spark.read.format("odradek").options(**kafka, subscribe=source).load()
    count = frame.count()
    query = (
        spark.readStream.format("odradek")
        .options(**kafka, subscribe=source, startingOffsets="earliest", progressGroup="cluster")
        .load()
        .select("key", "value")
        .writeStream.format("odradek")
        .options(**kafka, topic=sink, checkpointLocation=f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress_of(spark).settle(60)
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print(json.dumps({"refusal": refusal, "count": count, "executors": executors}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
