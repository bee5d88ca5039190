"""`ProducerStateManager` against a model that keeps the whole log and computes from scratch.

The model is the specification read literally (10 §8.2, §8.3, §10), with lists and scans.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.errors import ApiError
from odradek.files import Disk
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import BatchHeader
from odradek.storage.producers.state import (
    CachedBatch,
    CompletedTransaction,
    ProducerStateManager,
)
from tests.support.producer_batches import T, data_batch, end_marker, marker_batch

MODULUS = 2**31
FAR_FUTURE_MS = 10**15

producer_ids = st.integers(0, 2)
epochs = st.integers(0, 2)
counts = st.integers(1, 3)
# Relative to the next one expected: mostly right or a repetition, sometimes a gap.
steps = st.sampled_from([0, 0, 0, -1, -2, -3, -5, 1])


@dataclass(frozen=True)
class Stored:
    """A batch or marker in the model's log."""

    header: BatchHeader
    first_offset: int
    last_offset: int
    commit: bool | None = None  # None: data.
    coordinator_epoch: int = -1


@dataclass
class ModelProducer:
    epoch: int
    coordinator_epoch: int
    batches: list[Stored]  # All of the epoch.
    transaction_first_offset: int | None


def model_of(log: list[Stored], producer_id: int) -> ModelProducer | None:
    """One producer's state by reading the whole log."""
    state: ModelProducer | None = None
    for stored in log:
        if stored.header.producer_id != producer_id:
            continue
        epoch = stored.header.producer_epoch
        if state is None:
            state = ModelProducer(epoch, -1, [], None)
        if state.epoch != epoch:
            state.epoch, state.batches = epoch, []
        if stored.commit is not None:
            state.coordinator_epoch = stored.coordinator_epoch
            state.transaction_first_offset = None
            continue
        state.batches.append(stored)
        if stored.header.is_transactional and state.transaction_first_offset is None:
            state.transaction_first_offset = stored.first_offset
    return state


def transactions_of(log: list[Stored]) -> Iterator[tuple[int, int | None]]:
    """(first offset, marker offset or none) of all transactions."""
    open_since: dict[int, int] = {}
    for stored in log:
        producer_id = stored.header.producer_id
        if stored.commit is None:
            if stored.header.is_transactional:
                open_since.setdefault(producer_id, stored.first_offset)
        elif producer_id in open_since:
            yield open_since.pop(producer_id), stored.last_offset
    for first_offset in open_since.values():
        yield first_offset, None


class ProducerStateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.log: list[Stored] = []
        self.end = 0
        self.high_watermark = 0
        self.replayed_from = 0  # Below it, transactions that have ended are forgotten.
        self.state = self.new_state()

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def new_state(self) -> ProducerStateManager:
        return ProducerStateManager(
            TopicPartition("t", 0), self.directory, disk=Disk(), expiration_ms=FAR_FUTURE_MS
        )

    @initialize(first=st.sampled_from([0, 7, MODULUS - 4]))
    def start(self, first: int) -> None:
        """Sequences of unknown producers start here: near the wrap, too."""
        self.first_sequence = first

    @rule(
        producer_id=producer_ids,
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        step=steps,
        count=counts,
        transactional=st.booleans(),
    )
    def produce(
        self, producer_id: int, epoch_step: int, step: int, count: int, transactional: bool
    ) -> None:
        model = model_of(self.log, producer_id)
        epoch = max(0, model.epoch + epoch_step) if model else 0
        if model is None:
            expected = self.first_sequence
        elif model.epoch == epoch:
            expected = (
                (model.batches[-1].header.last_sequence + 1) % MODULUS if model.batches else 0
            )
        else:
            expected = 0
        sequence = (expected + step) % MODULUS
        header = data_batch(
            sequence, count, producer_id=producer_id, epoch=epoch, transactional=transactional
        )
        self.check_produce(header, model)

    @rule(producer_id=producer_ids, back=st.integers(1, 7))
    def produce_again(self, producer_id: int, back: int) -> None:
        """Sends one of the last batches once more."""
        model = model_of(self.log, producer_id)
        if model is not None and len(model.batches) >= back:
            self.check_produce(model.batches[-back].header, model)

    def check_produce(self, header: BatchHeader, model: ModelProducer | None) -> None:
        expected = self.model_answer(header, model)
        actual: object
        try:
            actual = self.state.check_append(header, AppendOrigin.CLIENT)
        except ApiError as error:
            actual = error.code.value
        if isinstance(expected, Stored) and self.is_forgotten(expected):
            # Not among the batches kept by a snapshot and replayed after it.
            assert actual == 45
            return
        if isinstance(expected, Stored):
            assert isinstance(actual, CachedBatch)
            assert actual.first_offset == expected.first_offset
            assert actual.last_offset == expected.last_offset
            assert actual.first_sequence == expected.header.base_sequence
            return
        assert actual == expected
        if expected is None:
            self.store(Stored(header, self.end, self.end + header.last_offset_delta))

    def is_forgotten(self, stored: Stored) -> bool:
        entry = self.state.producers[stored.header.producer_id]
        return all(batch.first_offset != stored.first_offset for batch in entry.batches)

    @staticmethod
    def model_answer(header: BatchHeader, model: ModelProducer | None) -> Stored | int | None:
        if model is None:
            return None
        if model.epoch == header.producer_epoch:
            for stored in model.batches[-5:]:
                if (stored.header.base_sequence, stored.header.last_sequence) == (
                    header.base_sequence,
                    header.last_sequence,
                ):
                    return stored
        if header.producer_epoch < model.epoch:
            return 47
        next_sequence = 0
        if header.producer_epoch == model.epoch and model.batches:
            last = model.batches[-1].header.last_sequence
            next_sequence = 0 if last == MODULUS - 1 else last + 1
        if header.base_sequence != next_sequence:
            return 45
        if model.transaction_first_offset is not None and not header.is_transactional:
            return 48
        return None

    @rule(
        producer_id=producer_ids,
        epoch_step=st.sampled_from([0, 0, 0, 1, -1]),
        coordinator_epoch=epochs,
        commit=st.booleans(),
    )
    def end_transaction(
        self, producer_id: int, epoch_step: int, coordinator_epoch: int, commit: bool
    ) -> None:
        model = model_of(self.log, producer_id)
        epoch = max(0, model.epoch + epoch_step) if model else 0
        header = marker_batch(producer_id=producer_id, epoch=epoch)
        marker = end_marker(commit=commit, coordinator_epoch=coordinator_epoch)
        expected = None
        if model is not None and epoch < model.epoch:
            expected = 47
        elif model is not None and coordinator_epoch < model.coordinator_epoch:
            expected = 52
        actual: int | None = None
        try:
            self.state.check_marker(header, marker)
        except ApiError as error:
            actual = error.code.value
        assert actual == expected
        if expected is None:
            others = [first for first, end in transactions_of(self.log) if end is None]
            completed = self.store(Stored(header, self.end, self.end, commit, coordinator_epoch))
            if model is None or model.transaction_first_offset is None:
                assert completed is None
                return
            assert completed == CompletedTransaction(
                producer_id, model.transaction_first_offset, self.end - 1, not commit
            )
            others.remove(completed.first_offset)
            expected_stable = min(others, default=self.end)
            assert self.last_stable_offset == expected_stable

    def store(self, stored: Stored) -> CompletedTransaction | None:
        self.log.append(stored)
        self.end = stored.last_offset + 1
        return self.apply(stored)

    def apply(self, stored: Stored) -> CompletedTransaction | None:
        marker = None
        if stored.commit is not None:
            marker = end_marker(commit=stored.commit, coordinator_epoch=stored.coordinator_epoch)
        completed = self.state.apply_append(
            stored.header,
            first_offset=stored.first_offset,
            last_offset=stored.last_offset,
            marker=marker,
        )
        if completed is not None:
            self.last_stable_offset = self.state.last_stable_offset_for(completed)
            self.state.complete_transaction(completed)
        return completed

    @rule()
    def take_snapshot(self) -> None:
        self.state.take_snapshot(sync=False)

    @rule(part=st.floats(0, 1))
    def raise_high_watermark(self, part: float) -> None:
        self.high_watermark += round(part * (self.end - self.high_watermark))
        self.state.on_high_watermark_updated(self.high_watermark)

    @rule()
    def restart(self) -> None:
        self.state = self.new_state()
        self.reload()

    @precondition(lambda self: self.log)
    @rule(dropped=st.integers(1, 4))
    def truncate(self, dropped: int) -> None:
        del self.log[-dropped:]
        self.end = self.log[-1].last_offset + 1 if self.log else 0
        self.high_watermark = min(self.high_watermark, self.end)
        self.reload()

    def reload(self) -> None:
        self.state.truncate_and_reload(0, self.end, T)
        # A snapshot keeps open transactions, not those that have ended below it.
        self.replayed_from = start = self.state.map_end_offset
        for stored in self.log:
            if stored.first_offset >= start:
                self.apply(stored)
        self.state.on_high_watermark_updated(self.high_watermark)

    @invariant()
    def first_unstable_offset_is_that_of_the_earliest_unstable_transaction(self) -> None:
        unstable = [
            first
            for first, marker in transactions_of(self.log)
            if marker is None or marker >= max(self.high_watermark, self.replayed_from)
        ]
        assert self.state.first_unstable_offset == min(unstable, default=None)

    @invariant()
    def entries_are_those_of_the_log(self) -> None:
        assert self.state.map_end_offset == self.end
        for producer_id in range(3):
            model = model_of(self.log, producer_id)
            entry = self.state.producers.get(producer_id)
            if model is None:
                assert entry is None
                continue
            assert entry is not None
            assert entry.producer_epoch == model.epoch
            assert entry.coordinator_epoch == model.coordinator_epoch
            assert entry.current_transaction_first_offset == model.transaction_first_offset
            # As many as are remembered, they are the newest; and the newest is never forgotten.
            offsets = [batch.last_offset for batch in entry.batches]
            assert (
                offsets == [stored.last_offset for stored in model.batches][-len(offsets) or 99 :]
            )
            assert bool(offsets) == bool(model.batches)


TestProducerState = ProducerStateMachine.TestCase
TestProducerState.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
