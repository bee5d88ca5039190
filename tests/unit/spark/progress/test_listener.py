"""Which reports are committed to which group."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from odradek.client.consumer.commits import OffsetAndMetadata
from odradek.model import TopicPartition
from odradek.spark.progress.commits import GroupCommitter
from odradek.spark.progress.listener import ProgressListener
from odradek.spark.progress.targets import ProgressTarget

A = ProgressTarget(group="a", kafka=(("bootstrap.servers", "x:1"),))
B = ProgressTarget(group="b", kafka=(("bootstrap.servers", "x:1"),))


class Committed(GroupCommitter):
    """Remembers what was submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[tuple[str, dict[TopicPartition, int]]] = []

    def submit(
        self, target: ProgressTarget, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        plain = {tp: one.offset for tp, one in offsets.items()}
        self.submitted.append((target.group, plain))


def position(topic: str, offset: int) -> str:
    topics = {topic: {"id": "", "p": {"0": offset}}}
    return json.dumps({"v": 1, "topics": topics, "split": {"min": 0, "max": 0}})


def report(*sources: tuple[str, int, int], run: str = "run-1", name: str | None = None) -> Any:
    """A batch of query `q`: topic, end and latest offset of each source."""
    told = [
        SimpleNamespace(endOffset=position(topic, end), latestOffset=position(topic, latest))
        for topic, end, latest in sources
    ]
    progress = SimpleNamespace(id="q", runId=run, name=name, batchId=3, sources=told)
    return SimpleNamespace(progress=progress)


def end(run: str) -> Any:
    return SimpleNamespace(id="q", runId=run)


def listening(*targets: ProgressTarget | None) -> tuple[ProgressListener, Committed]:
    committed = Committed()
    listener = ProgressListener(None, committed)
    listener.watch("q", targets)
    return listener, committed


def test_every_source_has_its_own_group() -> None:
    """12:SP-39."""
    listener, committed = listening(A, None, B)
    listener.onQueryProgress(report(("t", 1, 9), ("u", 2, 9), ("v", 3, 9)))
    assert committed.submitted == [
        ("a", {TopicPartition("t", 0): 1}),
        ("b", {TopicPartition("v", 0): 3}),
    ]


def test_sources_that_spark_has_merged_share_the_group_that_all_have() -> None:
    listener, committed = listening(A, A)
    listener.onQueryProgress(report(("t", 1, 9)))
    assert committed.submitted == [("a", {TopicPartition("t", 0): 1})]


def test_nothing_is_committed_where_the_group_is_not_sure() -> None:
    listener, committed = listening(A, B)
    listener.onQueryProgress(report(("t", 1, 9)))
    assert committed.submitted == []


def test_a_query_may_be_told_by_its_name_before_it_has_an_id() -> None:
    """12:SP-39: the group of one holds for all sources that Spark reports."""
    committed = Committed()
    listener = ProgressListener(None, committed)
    listener.watch("orders.lake", [A])
    listener.onQueryProgress(report(("t", 1, 9), ("u", 2, 9), name="orders.lake"))
    listener.onQueryProgress(report(("t", 5, 9), name="orders.files"))
    assert committed.submitted == [
        ("a", {TopicPartition("t", 0): 1}),
        ("a", {TopicPartition("u", 0): 2}),
    ]


def test_reports_are_waited_for_until_the_end_of_each_run_is_told() -> None:
    """12:SP-39: behind Spark Connect they are on their way when a query has ended."""

    class Session:
        streams = SimpleNamespace(active=[end("run-1")])

    session: Any = Session()
    listener = ProgressListener(session, Committed())
    listener.onQueryStarted(end("run-1"))
    assert listener.settle(0), "a run that is active is not waited for"
    Session.streams.active.clear()
    assert not listener.settle(0)
    listener.onQueryTerminated(end("run-1"))
    assert listener.settle(0)


def test_a_query_that_nobody_told_of_is_not_committed() -> None:
    committed = Committed()
    listener = ProgressListener(None, committed)
    listener.onQueryProgress(report(("t", 1, 9)))
    assert committed.submitted == []
    assert listener.lag("q") == {TopicPartition("t", 0): 8}


def test_positions_of_other_kinds_of_sources_are_passed_over() -> None:
    listener, committed = listening(A)
    other = report(("t", 1, 9))
    other.progress.sources[0].endOffset = '{"logOffset": 7}'
    listener.onQueryProgress(other)
    assert committed.submitted == []
    assert listener.lag("q") is None


def test_the_end_of_an_earlier_run_does_not_end_a_later_one() -> None:
    """A query is started again before its end has been reported."""
    listener, committed = listening(A)
    listener.onQueryProgress(report(("t", 1, 9), run="run-1"))
    listener.onQueryProgress(report(("t", 2, 9), run="run-2"))
    listener.onQueryTerminated(end("run-1"))
    assert listener.lag("q") == {TopicPartition("t", 0): 7}
    listener.onQueryProgress(report(("t", 3, 9), run="run-2"))
    assert [offsets[TopicPartition("t", 0)] for _, offsets in committed.submitted] == [1, 2, 3]
    listener.onQueryTerminated(end("run-2"))
    assert listener.lag("q") is None
