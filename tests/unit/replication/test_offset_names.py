"""Log end, high watermark, last stable offset, log start: what each means, to the record."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.model import AppendOrigin
from odradek.records.batch import iter_headers
from odradek.replication import FetchPartition, FetchResult
from odradek.storage.segments.file_slice import FileSlice
from tests.support.log_scenarios import transactional
from tests.support.logs import batch, marker
from tests.support.replicas import MAX_LAG_MS, ReplicaFixture, tp


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path) as fixture:
        yield fixture


def read(fixture: ReplicaFixture, offset: int, *, read_committed: bool = False) -> FetchResult:
    """What a consumer gets at once."""
    wanted = FetchPartition(tp(), None, offset, 1 << 20)
    [[(_, result)]] = fixture.fetch(wanted, max_wait_ms=0, read_committed=read_committed)
    return result


def offsets_in(result: FetchResult) -> list[int]:
    """Offsets of an answer all of whose batches hold one record."""
    assert result.error is ErrorCode.NONE
    if result.records is None:
        return []
    return [header.base_offset for _, header in iter_headers(result.records.read())]


def test_the_log_end_is_the_offset_of_the_next_record(fixture: ReplicaFixture) -> None:
    """08:F-12: ten records from 0 on: the last has 9, the log ends at 10."""
    fixture.lead(tp())
    for _ in range(10):
        fixture.produce({tp(): batch(1)})
    assert offsets_in(read(fixture, 0)) == list(range(10))
    assert fixture.log(tp()).log_end_offset == 10
    [answer] = fixture.produce({tp(): batch(1)})
    assert answer[tp()].base_offset == 10


def test_a_consumer_sees_from_the_log_start_to_below_the_high_watermark(
    fixture: ReplicaFixture,
) -> None:
    """08:F-15: log start 2, high watermark 5, log end 7."""
    fixture.lead(tp(), replicas=(1, 2))
    for _ in range(7):
        fixture.produce({tp(): batch(1)}, acks=1)
    fixture.fetch_as(2, tp(), 5)
    fixture.delete_records({tp(): 2})
    assert fixture.high_watermark(tp()) == 5
    assert fixture.log(tp()).log_end_offset == 7
    assert read(fixture, 1).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets_in(read(fixture, 2)) == [2, 3, 4]
    assert offsets_in(read(fixture, 4)) == [4]
    for invisible in (5, 6):
        assert offsets_in(read(fixture, invisible)) == []
    assert (read(fixture, 2).log_start_offset, read(fixture, 2).high_watermark) == (2, 5)
    fixture.fetch_as(2, tp(), 6)
    assert offsets_in(read(fixture, 5)) == [5]


def test_the_last_stable_offset_is_not_the_log_start(fixture: ReplicaFixture) -> None:
    """08:F-13: log start 1, last stable offset 3, high watermark 5, each under its own name."""
    fixture.lead(tp())
    for _ in range(3):
        fixture.produce({tp(): batch(1)})
    # Without transactions it says nothing that the high watermark does not say.
    assert (read(fixture, 0).last_stable_offset, read(fixture, 0).high_watermark) == (3, 3)
    fixture.produce({tp(): transactional(0, 1)})
    fixture.produce({tp(): batch(1)})
    fixture.delete_records({tp(): 1})

    committed = read(fixture, 1, read_committed=True)
    assert committed.log_start_offset == 1
    assert committed.last_stable_offset == 3
    assert committed.high_watermark == 5
    assert offsets_in(committed) == [1, 2]
    assert offsets_in(read(fixture, 3, read_committed=True)) == []
    assert offsets_in(read(fixture, 1)) == [1, 2, 3, 4]

    fixture.produce({tp(): marker(commit=True, producer_id=4000)}, origin=AppendOrigin.COORDINATOR)
    stable = read(fixture, 1, read_committed=True)
    assert stable.last_stable_offset == 6
    assert offsets_in(stable) == [1, 2, 3, 4, 5]


def test_records_in_a_file_and_in_memory(fixture: ReplicaFixture) -> None:
    """08:P-9: what is read is a piece of a file, a type of its own, until bytes are asked for."""
    fixture.lead(tp())
    sent = batch(3)
    fixture.produce({tp(): bytearray(sent)})
    found = read(fixture, 0).records
    assert type(found) is FileSlice
    in_memory = found.read()
    assert isinstance(in_memory, bytes)
    [(_, header)] = iter_headers(in_memory)
    assert (header.base_offset, header.last_offset) == (0, 2)
    # All but what the leader stamps: the base offset, and the leader epoch behind the length.
    assert in_memory[8:12] + in_memory[16:] == bytes(sent[8:12] + sent[16:])


@pytest.mark.parametrize(
    ("silence_ms", "isr"),
    [
        pytest.param(MAX_LAG_MS, (1, 2), id="08:F-14-not-longer"),
        pytest.param(MAX_LAG_MS + 1, (1,), id="08:F-14-longer"),
    ],
)
def test_who_lags_for_too_long_leaves_the_in_sync_replicas(
    fixture: ReplicaFixture, silence_ms: int, isr: tuple[int, ...]
) -> None:
    """The leader never does, and nobody is in sync who is not assigned."""
    partition = fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 2))
    fixture.produce({tp(): batch(1)}, acks=1)
    fixture.clock.advance(silence_ms)
    proposed = [change.isr for _, change in fixture.isr_shrinks()]
    assert (proposed or [(1, 2)]) == [isr]
    fixture.fetch_as(9, tp(), 1)  # Of no replica.
    assert 9 not in partition.isr
