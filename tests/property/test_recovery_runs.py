"""Recovery that steps over runs of batches finds what looking at every batch finds."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.records.batch import Buffer
from odradek.records.scan import IS_COMPILED, ProducerTails, Run, step_over_headers, step_over_run
from odradek.records.scan_pure import ProducerTailsPure, step_over_headers_pure, step_over_run_pure
from odradek.storage.log.config import LogConfig
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.recovery import segment_recovery
from odradek.storage.recovery.segment_recovery import NEVER_CUT, SegmentOverflow, recover_segment
from odradek.storage.segments.segment import LogSegment
from tests.support.logs import PARTITION, T0, UnsyncedDisk, batch, marker
from tests.support.mutation import mutated

INTERVAL = 300
INT64 = st.integers(-(2**63), 2**63 - 1)


def log_of(*kinds: str) -> bytes:
    """Batches one behind the other: plain, of a new epoch, behind a gap, of a producer.

    "idempotent7" is one of producer 7, outside of transactions.
    """
    data, offset, epoch, sequence = bytearray(), 0, 0, 0
    for kind in kinds:
        timestamp = T0 + offset * (-1 if kind == "older" else 1)
        if kind == "epoch":
            epoch += 1
        if kind == "gap":
            offset += 3
        if kind == "marker":
            one = marker(commit=False, base_offset=offset, leader_epoch=epoch)
        else:
            fields: dict[str, Any] = {}
            if kind == "producer":
                fields = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": sequence,
                          "is_transactional": True}  # fmt: skip
                sequence += 2
            elif kind.startswith("idempotent"):
                producer_id = int(kind.removeprefix("idempotent"))
                fields = {"producer_id": producer_id, "producer_epoch": offset // 20,
                          "base_sequence": offset}  # fmt: skip
            one = batch(
                2, size=150 + offset % 7, base_offset=offset, timestamp=timestamp,
                leader_epoch=epoch, **fields,
            )  # fmt: skip
        data += one
        offset += 1 if kind == "marker" else 2
    return bytes(data)


LOGS = [
    log_of(*["plain"] * 12),
    log_of("plain", "plain", "older", "plain", "epoch", "plain", "plain", "gap", *["plain"] * 5),
    log_of("plain", "producer", "producer", "plain", "marker", *["plain"] * 6, "producer", "plain"),
    log_of(*["epoch", "plain"] * 3, *["producer"] * 4, "marker", "plain", "plain"),
    log_of("plain", *["idempotent7"] * 12, "epoch", "idempotent7", "plain"),
    log_of(*["idempotent7", "idempotent8", "idempotent1031"] * 4, "producer", "marker"),
]


def no_run(
    data: Buffer,
    position: int,
    next_offset: int,
    last_allowed_offset: int,
    latest_epoch: int,
    max_timestamp: int,
    offset_of_max_timestamp: int,
    entry_position: int,
    interval_bytes: int,
    tails: ProducerTails,
) -> Run:
    """Steps over nothing: every batch is looked at."""
    del data, last_allowed_offset, latest_epoch, interval_bytes, tails
    return position, next_offset, max_timestamp, offset_of_max_timestamp, entry_position, []


def recovered(data: bytes, cut_from: int) -> tuple[object, ...]:
    """All that a recovery leaves behind: answer, files, epochs, producers."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"{0:020d}.log")
        path.write_bytes(data)
        disk = UnsyncedDisk()
        segment = LogSegment(directory, 0, config=LogConfig(), disk=disk, now_ms=T0)
        state = ProducerStateManager(PARTITION, directory, disk=disk, expiration_ms=86_400_000)
        epochs = LeaderEpochCache(str(Path(directory, "epochs")), disk=disk)
        try:
            result = recover_segment(
                segment, state, epochs, cut_from=cut_from, index_interval_bytes=INTERVAL
            )
            return (
                result,
                list(segment.offset_index.get()),
                list(segment.time_index.get()),
                segment.transaction_index.all_entries(),
                (segment.max_timestamp, segment.offset_of_max_timestamp, segment.size),
                epochs.entries,
                (state.map_end_offset, state.first_unstable_offset),
                sorted((number, repr(entry)) for number, entry in state.producers.items()),
                path.read_bytes(),
            )
        except SegmentOverflow as error:
            return ("overflow", Path(str(error)).name)
        finally:
            segment.close_handles()


@settings(deadline=None, max_examples=150)
@given(
    data=st.sampled_from(LOGS) | mutated(LOGS), cut_from=st.sampled_from([0, 4, 9, 15, NEVER_CUT])
)
@example(data=LOGS[0], cut_from=0)
@example(data=LOGS[1], cut_from=NEVER_CUT)
def test_runs_change_nothing_that_recovery_finds(data: bytes, cut_from: int) -> None:
    """01:SEG-12."""
    with pytest.MonkeyPatch.context() as patch:
        results = []
        for step_over in (no_run, step_over_run_pure, step_over_run):
            patch.setattr(segment_recovery, "step_over_run", step_over)
            results.append(recovered(data, cut_from))
    assert results[1] == results[0]
    assert results[2] == results[0]


@pytest.mark.skipif(not IS_COMPILED, reason="_scan is not built: setup.py build_ext --inplace")
@settings(deadline=None, max_examples=500)
@given(
    data=st.sampled_from(LOGS) | mutated(LOGS) | st.binary(max_size=200),
    position=st.sampled_from([0, 1, 150]) | st.integers(0, 400),
    next_offset=st.sampled_from([0, 2]) | INT64,
    last_allowed=st.sampled_from([2**31 - 1, 9]) | INT64,
    latest_epoch=st.integers(-1, 3) | st.integers(-(2**31), 2**31 - 1),
    max_timestamp=st.sampled_from([-1, T0 + 4]) | INT64,
    entry_position=st.integers(-400, 400),
    interval=st.integers(0, 500),
)
def test_the_twins_agree_on_any_bytes(
    data: bytes,
    position: int,
    next_offset: int,
    last_allowed: int,
    latest_epoch: int,
    max_timestamp: int,
    entry_position: int,
    interval: int,
) -> None:
    last_allowed = min(last_allowed, 2**63 - 2)
    answers: list[object] = []
    compiled, pure = ProducerTails(), ProducerTailsPure()
    for step_over, tails in ((step_over_run, compiled), (step_over_run_pure, pure)):
        try:
            answers.append(
                step_over(
                    data,
                    position,
                    next_offset,
                    last_allowed,
                    latest_epoch,
                    max_timestamp,
                    0,
                    entry_position,
                    interval,
                    tails,  # type: ignore[arg-type]  # Each has its own.
                )
            )
        except ValueError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]
    assert len(compiled) == len(pure)
    assert compiled.drain() == pure.drain()


@pytest.mark.skipif(not IS_COMPILED, reason="_scan is not built: setup.py build_ext --inplace")
@settings(deadline=None, max_examples=300)
@given(
    data=st.sampled_from(LOGS) | mutated(LOGS) | st.binary(max_size=200),
    position=st.sampled_from([0, 1, 150]) | st.integers(0, 400),
    next_offset=st.sampled_from([0, 2]) | INT64,
)
def test_the_twins_step_over_the_same_headers(data: bytes, position: int, next_offset: int) -> None:
    answers: list[object] = []
    for step_over in (step_over_headers, step_over_headers_pure):
        try:
            answers.append(step_over(data, position, next_offset))
        except ValueError as error:
            answers.append(str(error))
    assert answers[0] == answers[1]
