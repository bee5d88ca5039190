"""Truncation in steps: what happens between them (01 section 9.8, ADR 8)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ApiError, StorageError
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.services import Steps, run_beside, run_here
from tests.support.held_tasks import HeldTasks
from tests.support.logs import LogFixture, offsets, read_all


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path) as fixture:
        yield fixture


@pytest.fixture
def log(fixture: LogFixture) -> Log:
    """Segments 0, 3 and 6 of three batches of 100 bytes."""
    log = fixture.open(config=LogConfig(segment_bytes=300))
    fixture.append(8, size=100)
    log.flush()
    return log


def test_the_log_is_marked_until_the_last_step(log: Log) -> None:
    tasks = HeldTasks()
    ended: list[Exception | None] = []
    run_beside(tasks, [_without_result(log, 4)], ended.append, at_once=1)
    count = 0
    while tasks.waiting:
        assert log.is_truncating
        assert ended == []
        tasks.run_next()
        count += 1
    # The recovery point, the later segment's name, the file, the epochs, the producers.
    assert count == 5
    assert not log.is_truncating
    assert ended == [None]
    assert offsets(read_all(log)) == [0, 1, 2, 3]
    assert log.recovery_point == 4


def _without_result(log: Log, offset: int) -> Steps[None]:
    yield from log.truncate_steps(offset)


def test_nothing_to_cut_needs_no_thread(log: Log) -> None:
    """The usual case of a follower: its log is a prefix of the leader's."""
    steps = log.truncate_steps(8)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value is False
    assert not log.is_truncating


@pytest.mark.parametrize("failing", range(5))
def test_a_step_that_fails_ends_the_mark(log: Log, failing: int) -> None:
    tasks = HeldTasks()
    ended: list[Exception | None] = []
    run_beside(tasks, [_without_result(log, 4)], ended.append, at_once=1)
    for _ in range(failing):
        tasks.run_next()
    tasks.run_next(OSError(5, "no disk"))
    assert isinstance(ended[0], StorageError | ApiError)
    assert not log.is_truncating
    assert not log.is_usable


def test_a_directory_that_fails_between_the_steps(log: Log) -> None:
    tasks = HeldTasks()
    ended: list[Exception | None] = []
    run_beside(tasks, [_without_result(log, 4)], ended.append, at_once=1)
    log.mark_offline("the disk is gone")
    tasks.run_next()
    assert isinstance(ended[0], StorageError)
    assert not log.is_truncating


def test_beginning_anew_in_steps(log: Log) -> None:
    run_here(log.restart_steps(20))
    assert (log.log_start_offset, log.log_end_offset, log.is_truncating) == (20, 20, False)
