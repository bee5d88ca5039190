"""Transactions are whole or nothing, whatever crashes; and each planted mistake is found."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from odradek.coordinator.transaction import decisions
from odradek.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.coordinator.transaction.decisions import ProducerIdentity
from odradek.coordinator.transaction.markers import MarkerDelivery, MarkerQueues
from odradek.coordinator.transaction.state import IDLE, VALID_PREVIOUS
from odradek.coordinator.transaction.state import TransactionState as S
from odradek.coordinator.transaction.transaction import Partitions, TransactionalId, Transition
from odradek.errors import ErrorCode
from tests.simulation.transactions import Crash, Plan, Result, run

SMALL = Plan(seed=3, producers=1, transactions=2, partitions=2)
SEEDS = range(25)


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("version", [0, 2])
def test_a_crash_at_any_step_leaves_no_transaction_torn(version: int, is_before: bool) -> None:
    """10:TX-6 and 10:TX-7 at every record and marker of a history."""
    plan = replace(SMALL, version=version)
    whole = run(plan)
    assert whole.failures == []
    assert whole.steps > 8
    assert whole.committed + whole.aborted == 2
    for step in range(whole.steps):
        result = run(replace(plan, crashes=(Crash(step=step, is_before=is_before),)))
        assert result.failures == [], f"crash at step {step}"
        assert result.steps > step, "the crash happened"


EVERY = Plan(seed=3, partitions=2, has_every_decision=True)


def test_the_history_of_every_decision_has_every_transition() -> None:
    """Those of the table of states, from version 2 on with aborts without a transaction."""
    table = {
        (before, None if state is S.DEAD else state)
        for state, entered_from in VALID_PREVIOUS.items()
        for before in entered_from
    }
    begun = {(None, S.EMPTY)}
    of_version_2 = {(state, S.PREPARE_ABORT) for state in IDLE}

    assert run(EVERY).transitions == table | begun
    assert run(replace(EVERY, version=0)).transitions == (table | begun) - of_version_2


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("is_replicated", [True, False])
def test_a_crash_at_any_step_of_any_decision_tears_nothing(
    version: int, is_before: bool, is_replicated: bool
) -> None:
    """10:TX-6 and 10:TX-7: time-outs, other producers, used-up epochs and expiry, too."""
    plan = replace(EVERY, version=version, is_replicated=is_replicated)
    whole = run(plan)
    assert whole.failures == []
    assert whole.committed >= 8
    assert whole.aborted >= 9
    for step in range(whole.steps):
        result = run(replace(plan, crashes=(Crash(step=step, is_before=is_before),)))
        assert result.failures == [], f"crash at step {step}"
        assert result.steps > step, "the crash happened"


def plan_of(seed: int, *, version: int = 2) -> Plan:
    """A history of a seed, with crashes; under version 2 also with requests out of order.

    Before version 2 a transaction has no epoch of its own: a late EndTxn of a producer cannot be
    told from its next one, which is why version 2 exists.
    """
    random = Random(seed)
    crashes = tuple(
        Crash(step=random.randrange(60), is_before=random.random() < 0.5)
        for _ in range(random.randint(0, 3))
    )
    disorder = random.choice((0.0, 0.1, 0.3)) if version >= 2 else 0.0
    return Plan(seed=seed, version=version, disorder=disorder, crashes=crashes)


@pytest.mark.parametrize("is_replicated", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_no_seed_tears_a_transaction(version: int, is_replicated: bool) -> None:
    ended = 0
    for seed in SEEDS:
        result = run(replace(plan_of(seed, version=version), is_replicated=is_replicated))
        assert result.failures == [], f"seed {seed}"
        ended += result.committed + result.aborted
    assert ended > 2 * len(SEEDS), "the histories have transactions"


def test_a_history_is_the_same_each_time() -> None:
    results = [run(plan_of(5)) for _ in range(2)]
    assert results[0] == results[1]


# Planted mistakes

Plant = Callable[[pytest.MonkeyPatch], Callable[[Plan], Plan] | None]


def _accept_late_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    end = decisions.end

    def accept(
        transaction: TransactionalId | None, producer: ProducerIdentity, **rest: Any
    ) -> object:
        if transaction is not None and transaction.record is not None:
            record = transaction.record
            if producer.producer_epoch < record.producer_epoch - 1:
                producer = ProducerIdentity(record.producer_id, record.producer_epoch)
        return end(transaction, producer, **rest)

    monkeypatch.setattr(decisions, "end", accept)


def _time_out_without_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    fence = decisions.fence

    def keep(transaction: TransactionalId, **rest: Any) -> Transition:
        assert transaction.record is not None
        transition = fence(transaction, **rest)
        epoch = transaction.record.producer_epoch
        return replace(transition, record=replace(transition.record, producer_epoch=epoch))

    monkeypatch.setattr(decisions, "fence", keep)


def _append_without_verification(_monkeypatch: pytest.MonkeyPatch) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, verifies=False)


def _drop_a_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = MarkerQueues.deliver

    def drop(self: MarkerQueues, delivery: MarkerDelivery, partitions: Partitions) -> None:
        kept = {topic: frozenset(sorted(numbers)[1:]) for topic, numbers in partitions.items()}
        deliver(self, delivery, kept)

    monkeypatch.setattr(MarkerQueues, "deliver", drop)


def _answer_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    write = TransactionCoordinator._write

    def hurry(
        self: TransactionCoordinator,
        transaction: TransactionalId,
        transition: Transition,
        answer: Callable[[ErrorCode], object],
    ) -> None:
        later = partial(write, self, transaction, transition, lambda _error: None)
        asyncio.get_running_loop().call_soon(later)
        answer(ErrorCode.NONE)

    monkeypatch.setattr(TransactionCoordinator, "_write", hurry)


def _forget_decided_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    from odradek.coordinator.transaction.partition_load import TransactionLoad

    monkeypatch.setattr(TransactionLoad, "settle", lambda _self: ())


def _abort_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that loads PREPARE_COMMIT aborts."""
    from odradek.coordinator.transaction import partition_load, records
    from odradek.coordinator.transaction.records import TransactionRecord
    from odradek.coordinator.transaction.state import TransactionState

    parse = records.parse_transaction_value

    def misread(value: bytes) -> TransactionRecord:
        record = parse(value)
        if record.state is TransactionState.PREPARE_COMMIT:
            return replace(record, state=TransactionState.PREPARE_ABORT)
        return record

    monkeypatch.setattr(partition_load, "parse_transaction_value", misread)


@pytest.mark.parametrize(
    "plant",
    [
        _accept_late_ends,
        _time_out_without_a_new_epoch,
        _append_without_verification,
        _drop_a_marker,
        _answer_before_it_is_durable,
        _forget_decided_transactions,
        _abort_what_was_decided,
    ],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    logging.disable()
    try:
        change = plant(monkeypatch) or (lambda plan: plan)
        found = first_failure(change)
    finally:
        logging.disable(logging.NOTSET)
    assert found is not None, "no seed has found it"


def first_failure(change: Callable[[Plan], Plan]) -> Result | None:
    for seed in range(200):
        for version in (2, 0):
            result = run(change(plan_of(seed, version=version)))
            if result.failures:
                return result
    return None
