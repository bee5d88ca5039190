"""What `status` and `reset` do with checkpoints as Spark writes them, against a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import Admin, Producer
from odradek.client.admin import NewTopic
from odradek.client.consumer import OffsetAndMetadata
from odradek.model import TopicPartition
from odradek.spark.pipeline.engine.operations.checkpoint import (
    CheckpointFolder,
    CheckpointHeldError,
    Notes,
)
from odradek.spark.pipeline.engine.operations.reset import reset_queries
from odradek.spark.pipeline.engine.operations.status import pipeline_status
from odradek.spark.pipeline.engine.running.query_plans import plan_queries
from odradek.spark.pipeline.file import load
from odradek.spark.pipeline.graph.model import Pipeline, StartPosition
from odradek.testing import EmbeddedBroker

_FILE = """
name: shop
bootstrap: {bootstrap}
checkpoint: ./checkpoints
sources:
  orders: {{topic: orders, value: string}}
sinks:
  files: {{from: orders, files: {{path: ./out}}}}
  copy: {{from: orders, topic: copies}}
"""
_GROUP = "odradek-pipeline-shop-files"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with seven orders in two partitions."""
    with EmbeddedBroker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name="orders", partition_count=2)])
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(7):
                producer.send("orders", b"%d" % number, partition=number % 2)
        yield broker.bootstrap_servers


def _pipeline(folder: Path, bootstrap: str) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(_FILE.format(bootstrap=bootstrap))
    loaded = load(str(file), environment={})
    assert loaded.pipeline is not None, loaded.problems
    return loaded.pipeline


def _write_checkpoint(folder: Path, begun: int, done: int) -> None:
    """Batch n ends behind offset n of both partitions."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"f3c1"}')
    for batch in range(begun + 1):
        topics = {"orders": {"id": "", "p": {"0": batch + 1, "1": batch + 1}}}
        offset = {"v": 1, "topics": topics, "split": {"min": 0, "max": 0}}
        text = f"v1\n{{}}\n{json.dumps(offset)}"
        (folder / "offsets" / str(batch)).write_text(text)
        if batch <= done:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "offsets" / ".9.crc").write_text("not a batch")


def test_a_pipeline_that_never_ran_is_new(tmp_path: Path, bootstrap: str) -> None:
    pipeline = _pipeline(tmp_path, bootstrap)
    found, why = pipeline_status(pipeline, plan_queries(pipeline))
    assert why is None
    assert [(one.sink, one.state, one.batch, one.lag) for one in found] == [
        ("files", "new", None, None), ("copy", "new", None, None),
    ]  # fmt: skip


def test_status_tells_batch_and_lag_of_what_is_done(tmp_path: Path, bootstrap: str) -> None:
    """12:SP-61: from the checkpoint, also while no run is up; a batch in hand does not count."""
    pipeline = _pipeline(tmp_path, bootstrap)
    _write_checkpoint(tmp_path / "checkpoints" / "files", begun=11, done=1)
    found, _ = pipeline_status(pipeline, plan_queries(pipeline, sinks=["files"]))
    (one,) = found
    assert (one.state, one.batch, one.is_in_batch, one.query_id) == ("stopped", 1, True, "f3c1")
    assert [(part.partition, part.next_offset, part.end) for part in one.partitions] == [
        (0, 2, 4), (1, 2, 3),
    ]  # fmt: skip
    assert one.lag == 3
    assert one.as_json()["partitions"][0]["lag"] == 2
    folder = CheckpointFolder(str(tmp_path / "checkpoints" / "files"))
    folder.take(Notes("shop", "files", {}))
    (one,) = pipeline_status(pipeline, plan_queries(pipeline, sinks=["files"]))[0]
    assert one.state == "running"


def test_status_tells_what_the_group_shows(tmp_path: Path, bootstrap: str) -> None:
    """12:SP-61: from the checkpoint and the group, which may be behind."""
    pipeline = _pipeline(tmp_path, bootstrap)
    _write_checkpoint(tmp_path / "checkpoints" / "copy", begun=1, done=1)
    offsets = {TopicPartition("orders", number): OffsetAndMetadata(1) for number in range(2)}
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets("odradek-pipeline-shop-copy", offsets)
    (one,), why = pipeline_status(pipeline, plan_queries(pipeline, sinks=["copy"]))
    assert why is None
    assert (one.lag, one.group_lag) == (3, 5)
    assert one.as_json()["partitions"][0] == {
        "source": "orders",
        "topic": "orders",
        "partition": 0,
        "offset": 2,
        "committed": 1,
        "end": 4,
        "lag": 2,
    }


def test_a_source_with_a_cluster_of_its_own_is_asked_for_there(
    tmp_path: Path, bootstrap: str
) -> None:
    """12:SP-61, 12:SP-48: also with settings that only a producer knows."""
    file = tmp_path / "shop.yaml"
    own = f"value: string, kafka: {{{{bootstrap.servers: '{bootstrap}'}}}}"
    text = _FILE.replace("value: string", own).format(bootstrap="127.0.0.1:1")
    file.write_text(text + "kafka: {compression.type: zstd, fetch.max.bytes: 100000}\n")
    pipeline = load(str(file), environment={}).pipeline
    assert pipeline is not None
    _write_checkpoint(tmp_path / "checkpoints" / "files", begun=0, done=0)
    plans = plan_queries(pipeline, sinks=["files"])
    (one,), why = pipeline_status(pipeline, plans)
    assert (one.lag, why) == (5, None)
    assert reset_queries(pipeline, plans, None) == ()


def test_a_topic_that_no_source_reads_any_more_has_no_lag(tmp_path: Path, bootstrap: str) -> None:
    pipeline = _pipeline(tmp_path, bootstrap)
    _write_checkpoint(tmp_path / "checkpoints" / "files", begun=0, done=0)
    path = tmp_path / "checkpoints" / "files" / "offsets" / "0"
    path.write_text(path.read_text().replace("orders", "others"))
    (one,), why = pipeline_status(pipeline, plan_queries(pipeline, sinks=["files"]))
    assert why == "no source of files reads others any more"
    assert [(part.topic, part.next_offset, part.lag) for part in one.partitions] == [
        ("others", 1, None), ("others", 1, None),
    ]  # fmt: skip


def test_status_without_a_broker_tells_what_it_can(tmp_path: Path) -> None:
    pipeline = _pipeline(tmp_path, "127.0.0.1:1")
    _write_checkpoint(tmp_path / "checkpoints" / "files", begun=0, done=0)
    (one,), why = pipeline_status(pipeline, plan_queries(pipeline, sinks=["files"]))
    assert why is not None
    assert (one.batch, one.lag, one.partitions[0].next_offset) == (0, None, 1)


def test_reset_forgets_checkpoint_and_group_and_notes_where_to_begin(
    tmp_path: Path, bootstrap: str
) -> None:
    """12:SP-61: refused while a run holds the lock; then everything goes."""
    pipeline = _pipeline(tmp_path, bootstrap)
    path = tmp_path / "checkpoints" / "files"
    _write_checkpoint(path, begun=1, done=1)
    plans = plan_queries(pipeline)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets(_GROUP, {TopicPartition("orders", 0): OffsetAndMetadata(2)})
        held = CheckpointFolder(str(tmp_path / "checkpoints" / "copy"))
        held.take(Notes("shop", "copy", {}))
        with pytest.raises(CheckpointHeldError, match="nothing was changed"):
            reset_queries(pipeline, plans, None)
        assert (path / "offsets" / "1").exists()
        held.release()
        assert reset_queries(pipeline, plans, StartPosition(edge="latest")) == ()
        assert _GROUP not in [group.group_id for group in admin.list_groups()]
    notes = CheckpointFolder(str(path)).read()
    assert notes is not None
    assert (notes.start, notes.lock) == ("latest", None)
    assert [one.name for one in path.iterdir()] == ["odradek.json"]
    assert reset_queries(pipeline, plans, None) == (), "a group that is gone is no reason to warn"
    assert CheckpointFolder(str(path)).read() is None
