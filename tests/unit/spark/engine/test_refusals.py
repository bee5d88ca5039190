"""Runs that are refused before Spark is asked for anything."""

import io
from pathlib import Path

import pytest

from odradek.spark.pipeline.engine.operations.checkpoint import (
    CheckpointFolder,
    CheckpointHeldError,
    Notes,
)
from odradek.spark.pipeline.engine.problems import PipelineError, RefusedError
from odradek.spark.pipeline.engine.running.run import run_pipeline
from odradek.spark.pipeline.graph.fingerprint import fingerprint
from odradek.spark.pipeline.graph.model import ConsoleTarget, FilesTarget, OutputMode, Pipeline
from tests.support.pipelines import ORDERS, pipeline, select, sink, topic_source

CONSOLE = ConsoleTarget(20)


def counting(folder: Path, *keys: str) -> Pipeline:
    listed = ", ".join(keys)
    return pipeline(
        topic_source("raw", ORDERS),
        transforms=[
            select("n", f"select {listed}, count(*) as n from raw group by {listed}", "raw")
        ],
        sinks=[
            sink("first", "raw", CONSOLE),
            sink("counts", "n", CONSOLE, OutputMode.UPDATE),
        ],
        checkpoint=str(folder),
    )


def run(tested: Pipeline) -> None:
    run_pipeline(tested, is_once=True, out=io.StringIO())


def begin(checkpoint: Path) -> None:
    """Leaves behind what Spark does when a batch begins."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / "0").write_text("v1\n{}\n{}")


def test_files_of_another_query_are_refused(tmp_path: Path) -> None:
    """Spark would leave out batches with numbers that it finds there."""
    target = FilesTarget("parquet", str(tmp_path / "out"), (), None, {})
    tested = pipeline(
        topic_source("raw", ORDERS),
        sinks=[sink("first", "raw", target)],
        checkpoint=str(tmp_path / "checkpoints"),
    )
    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(RefusedError, match="was written by another query"):
        run(tested)
    assert CheckpointFolder(str(tmp_path / "checkpoints" / "first")).read() is None
    twice = pipeline(
        topic_source("raw", ORDERS),
        sinks=[sink("first", "raw", target), sink("second", "raw", target)],
        checkpoint=str(tmp_path / "checkpoints"),
    )
    with pytest.raises(RefusedError, match="two sinks write to the folder"):
        run(twice)


def test_another_grouping_key_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    """12:SP-62, 12:SP-7: and the locks that were taken are given back."""
    before = counting(tmp_path, "user")
    document = fingerprint(before, "counts")
    folder = CheckpointFolder(str(tmp_path / "counts"))
    folder.take(Notes("orders", "counts", document))
    folder.release()
    begin(tmp_path / "counts")
    with pytest.raises(RefusedError, match=r"'counts' cannot continue .* reset .* a new name"):
        run(counting(tmp_path, "user", "id"))
    first = CheckpointFolder(str(tmp_path / "first"))
    assert first.holder() is None
    notes = folder.read()
    assert notes is not None
    assert notes.fingerprint == document


def test_a_checkpoint_in_use_is_refused(tmp_path: Path) -> None:
    """12:SP-62: two runs on one checkpoint would write everything twice."""
    other = CheckpointFolder(str(tmp_path / "counts"))
    other.take(Notes("orders", "counts", {}))
    with pytest.raises(CheckpointHeldError, match="is used by process"):
        run(counting(tmp_path, "user"))
    assert CheckpointFolder(str(tmp_path / "first")).holder() is None
    assert other.holder() is not None


def test_nothing_to_run(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no query to run"):
        run_pipeline(counting(tmp_path, "user"), sinks=[], out=io.StringIO())
