"""Fetches of very many partitions: read in steps, parked before they are read (02 section 12)."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from odradek.model import TopicPartition
from odradek.replication import DelayedFetch, FetchParams, FetchPartition, FetchResults
from odradek.replication.delayed_fetch import MANY_PARTITIONS
from tests.support.logs import batch
from tests.support.replicas import ReplicaFixture, tp

A, B = tp("a"), tp("b")
SIZE = 100


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path) as fixture:
        for partition in (A, B):
            fixture.lead(partition)
        yield fixture


def want(partition: TopicPartition) -> FetchPartition:
    return FetchPartition(partition, None, 0, 1 << 20, -1, -1, -1)


class ManyFetch:
    """A fetch of B, and of A very many times."""

    def __init__(self, fixture: ReplicaFixture, *, max_wait_ms: int = 500) -> None:
        self.purgatory = fixture.purgatories.fetch
        self.answers: list[FetchResults] = []
        self.resumed: list[Generator[None, None, None]] = []
        self.parked: list[DelayedFetch] = []
        self.is_wanted = True
        self.steps = fixture.replicas.reads.fetch_many(
            FetchParams(max_wait_ms, 1, 1 << 20),
            [want(B), *[want(A)] * (MANY_PARTITIONS + 1)],
            self.answers.append,
            resume=self.resumed.append,
            is_wanted=lambda: self.is_wanted,
            on_parked=self.parked.append,
        )

    def finish(self) -> None:
        for _ in self.steps:
            pass
        self.finish_resumed()

    def finish_resumed(self) -> None:
        for steps in self.resumed:
            for _ in steps:
                pass

    def sizes(self) -> list[int]:
        [results] = self.answers
        return [0 if r.records is None else len(r.records) for _, r in results]


def test_what_is_there_is_answered_and_the_fetch_is_forgotten(fixture: ReplicaFixture) -> None:
    fixture.produce({B: batch(1, size=SIZE)})
    fetch = ManyFetch(fixture)
    fetch.finish()
    assert fetch.sizes() == [SIZE] + [0] * (MANY_PARTITIONS + 1)
    assert (fetch.purgatory.watched, fetch.purgatory.num_delayed) == (0, 0)


def test_a_fetch_without_time_is_answered_at_once(fixture: ReplicaFixture) -> None:
    fetch = ManyFetch(fixture, max_wait_ms=0)
    fetch.finish()
    assert sum(fetch.sizes()) == 0
    assert fetch.purgatory.watched == 0


def test_an_append_ends_the_wait(fixture: ReplicaFixture) -> None:
    fetch = ManyFetch(fixture)
    fetch.finish()
    assert len(fetch.parked) == 1
    assert not fetch.answers
    fixture.produce({B: batch(1, size=SIZE)})
    fetch.finish_resumed()
    assert fetch.sizes()[0] == SIZE
    assert (fetch.purgatory.watched, fetch.purgatory.num_delayed) == (0, 0)


def test_an_append_to_a_partition_that_was_read_is_noticed(fixture: ReplicaFixture) -> None:
    fetch = ManyFetch(fixture)
    next(fetch.steps)  # It is parked.
    next(fetch.steps)  # The first partitions are read.
    fixture.produce({B: batch(1, size=SIZE)})
    fetch.finish()
    assert not fetch.parked
    assert fetch.sizes()[0] == SIZE
    assert fetch.purgatory.watched == 0


def test_the_wait_ends_with_its_time(fixture: ReplicaFixture) -> None:
    fetch = ManyFetch(fixture)
    fetch.finish()
    fixture.pass_time(1_000)
    fetch.finish_resumed()
    assert sum(fetch.sizes()) == 0
    assert fetch.purgatory.watched == 0


@pytest.mark.parametrize("is_parked", [True, False])
def test_a_client_that_disconnects_leaves_nothing(fixture: ReplicaFixture, is_parked: bool) -> None:
    """Else each would stay in as many lists as it named partitions."""
    fetch = ManyFetch(fixture)
    if is_parked:
        fetch.finish()
        fetch.is_wanted = False
        fetch.parked[0].force_complete()
    else:
        next(fetch.steps)
        next(fetch.steps)
        fetch.steps.close()
    fetch.finish_resumed()
    assert not fetch.answers
    assert (fetch.purgatory.watched, fetch.purgatory.num_delayed) == (0, 0)
