"""A real cluster: a master and two workers, which cannot see this package."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek import Admin, Producer
from tests.support.odradek_broker import OdradekBroker
from tests.support.spark_cluster import running_cluster
from tests.support.topic_records import records_of

TIMEOUT_S = 240


@pytest.mark.timeout(600)
def test_the_package_reaches_workers_that_do_not_have_it(
    broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-14, 12:SP-41: refused with a table without shipping; with it, reads and writes."""
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
