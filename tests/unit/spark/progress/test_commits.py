"""Positions are committed behind the query's back; what fails is counted."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from odradek.client.consumer.commits import OffsetAndMetadata
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.spark.progress.commits import GroupCommitter
from odradek.spark.progress.targets import ProgressTarget

TARGET = ProgressTarget(group="g", kafka=(("bootstrap.servers", "a:1"),))
OTHER = ProgressTarget(group="h", kafka=(("bootstrap.servers", "a:1"),))
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_S = 60


class FakeAdmin:
    """Takes commits when it may; refuses those of some groups."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []
        self.opened = 0
        self.closed = threading.Event()
        self.called = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.refused_group = ""

    def open(self, settings: Mapping[str, str]) -> "FakeAdmin":
        assert settings == {"bootstrap.servers": "a:1"}
        self.opened += 1
        return self

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[Any, OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        self.called.set()
        assert self.may_go_on.wait(TIMEOUT_S)
        if group_id == self.refused_group:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "somebody else is in there")
        self.commits.append((group_id, {tp: one.offset for tp, one in offsets.items()}))

    def close(self, timeout: float | None = None) -> None:
        self.closed.set()


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition("t", int(name[1:])): OffsetAndMetadata(n) for name, n in offsets.items()}


def test_commits_what_it_is_given() -> None:
    admin = FakeAdmin()
    committer = GroupCommitter(admin.open)
    committer.submit(TARGET, at(p0=1))
    assert committer.settle(TIMEOUT_S)
    committer.submit(TARGET, at(p0=2))
    committer.submit(OTHER, at(p1=3))
    committer.close()
    assert ("g", {ZERO: 1}) in admin.commits
    assert ("g", {ZERO: 2}) in admin.commits
    assert ("h", {ONE: 3}) in admin.commits
    assert (admin.opened, admin.closed.is_set()) == (1, True)
    assert (committer.committed_total, committer.failed_total) == (3, 0)


def test_only_the_newest_position_waits() -> None:
    admin = FakeAdmin()
    committer = GroupCommitter(admin.open)
    admin.may_go_on.clear()
    committer.submit(TARGET, at(p0=1))
    assert admin.called.wait(TIMEOUT_S)
    for offset in range(2, 100):
        committer.submit(TARGET, at(p0=offset, p1=offset + 1))
    assert not committer.settle(0)
    admin.may_go_on.set()
    committer.close()
    assert admin.commits == [("g", {ZERO: 1}), ("g", {ZERO: 99, ONE: 100})]


def test_a_failure_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """12:SP-39."""
    admin = FakeAdmin()
    admin.refused_group = "g"
    committer = GroupCommitter(admin.open)
    committer.submit(TARGET, at(p0=1))
    committer.submit(OTHER, at(p0=2))
    committer.close()
    assert (committer.committed_total, committer.failed_total) == (1, 1)
    assert admin.commits == [("h", {ZERO: 2})]
    assert "progress of group g not committed: somebody else is in there" in caplog.text


def test_a_client_that_cannot_be_opened_is_a_failure_too() -> None:
    committer = GroupCommitter()
    committer.submit(
        ProgressTarget(group="g", kafka=(("bootstrap.servers", "no address"),)), at(p0=1)
    )
    committer.close()
    assert committer.failed_total == 1


class BrokenAdmin(FakeAdmin):
    """Makes a mistake with one group, and another one when it is closed."""

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[Any, OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        if group_id == self.refused_group:
            raise RuntimeError("the event loop is closed")
        super().alter_group_offsets(group_id, offsets, timeout=timeout)

    def close(self, timeout: float | None = None) -> None:
        super().close(timeout)
        raise RuntimeError("closed already")


def test_a_mistake_somewhere_does_not_end_the_commits(caplog: pytest.LogCaptureFixture) -> None:
    """12:SP-39: counted and logged, and the next ones are made by another client."""
    admin = BrokenAdmin()
    admin.refused_group = "g"
    committer = GroupCommitter(admin.open)
    committer.submit(TARGET, at(p0=1))
    assert committer.settle(TIMEOUT_S)
    assert admin.closed.is_set()
    committer.submit(OTHER, at(p0=2))
    committer.close()
    assert (committer.committed_total, committer.failed_total) == (1, 1)
    assert (admin.opened, admin.commits) == (2, [("h", {ZERO: 2})])
    assert "RuntimeError: the event loop is closed" in caplog.text


def test_the_thread_ends_when_there_is_nothing_to_do() -> None:
    """12:SP-45."""
    admin = FakeAdmin()
    committer = GroupCommitter(admin.open, idle_s=0)
    committer.submit(TARGET, at(p0=1))
    assert committer.settle(TIMEOUT_S)
    assert admin.closed.wait(TIMEOUT_S)
    committer.submit(TARGET, at(p0=2))
    committer.close()
    assert [offsets[ZERO] for _, offsets in admin.commits] == [1, 2]


def test_nothing_is_taken_after_the_end() -> None:
    admin = FakeAdmin()
    committer = GroupCommitter(admin.open)
    committer.close()
    committer.submit(TARGET, at(p0=1))
    assert committer.settle(0)
    assert admin.commits == []
