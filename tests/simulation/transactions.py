"""Transactions under crashes, delays and repetitions, from a seed: whole everywhere or nowhere.

Producers run transactions against one coordinator at a time. Every request may come late, also
after the requests behind it, or twice; answers may be lost; the coordinator may crash before or
after any record of its log, and before any marker. At the end a last coordinator finishes what is
decided, and time-outs abort the rest. Then, for each transaction:

- all of its records have the same fate in all partitions, and none is left open;
- an end that its producer was told of is the one that happened;
- no two transactions share a marker unless they had the same fate asked for.

`run` plays one history: one of a seed, or the one that has every decision. `python -m
tests.simulation.transactions SEEDS [FIRST]` plays many, from seed FIRST (0), and prints those that
fail.
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeVar

from odradek.coordinator.transaction.decisions import Answer, ProducerIdentity
from odradek.coordinator.transaction.records import (
    TransactionRecord,
    encode_transaction_key,
    encode_transaction_value,
    parse_transaction_key,
    parse_transaction_value,
)
from odradek.coordinator.transaction.state import TransactionState
from odradek.coordinator.transaction.transaction import LAST_EPOCH
from odradek.errors import ErrorCode
from odradek.model import TopicPartition, TransactionMarker
from odradek.records.builder import build_batch
from odradek.records.record import read_records
from tests.support.transaction_world import LoopTasks, TransactionWorld, answered, settle

__all__ = ["Crash", "Plan", "play", "run"]

_T = TypeVar("_T")
_NONE = ErrorCode.NONE
_TOPIC = "t"
_TIMEOUT_MS = 20_000
_MOST_ROUNDS = 5_000
_NEARLY_USED_UP = ("tx-last-0", "tx-last-1")
_RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A crash of the coordinator at one of its steps."""

    step: int  # Records of the log and markers, counted from 0.
    is_before: bool  # Otherwise the step is durable, and its answer is lost.


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A history."""

    seed: int
    version: int = 2  # Of transactions.
    producers: int = 2
    transactions: int = 3  # Of each producer.
    partitions: int = 3
    crashes: tuple[Crash, ...] = ()
    disorder: float = 0.0  # The share of requests that are late or repeated, and of lost answers.
    verifies: bool = True
    has_every_decision: bool = False  # One producer after another does what each one can.
    is_replicated: bool = True  # Otherwise markers are written within the decision.


@dataclass(slots=True)
class _Transaction:
    """What a producer did, and what it was told."""

    name: str
    asked: bool | None = None  # Commit, abort; None: it gave up before.
    told: bool | None = None


@dataclass(slots=True)
class Result:
    """What a history came to."""

    steps: int = 0
    failures: list[str] = field(default_factory=list)
    committed: int = 0
    aborted: int = 0
    # The states of ids that followed one another in the log; None: no record, or its end.
    transitions: frozenset[tuple[TransactionState | None, TransactionState | None]] = frozenset()


class _GaveUpError(Exception):
    """A producer cannot go on: it is fenced, or lost its id."""


class _Play:
    def __init__(self, plan: Plan, world: TransactionWorld) -> None:
        self.plan = plan
        self.world = world
        self.random = Random(plan.seed)
        self.result = Result()
        self.transactions: list[_Transaction] = []
        self.late: list[Awaitable[object]] = []
        self._background: set[asyncio.Task[None]] = set()
        self.network = LoopTasks(world.clock)
        self._serials = itertools.count()
        self._store = world.topic.store
        world.topic.store = self._count_record  # type: ignore[method-assign]
        world.before_marker = self._count_marker

    # Steps, and crashes at them

    def _crash_at(self, step: int) -> Crash | None:
        return next((crash for crash in self.plan.crashes if crash.step == step), None)

    def _count_record(self, partition: int, batch: bytes | bytearray) -> int:
        crash = self._crash_at(self.result.steps)
        self.result.steps += 1
        if crash is None:
            return self._store(partition, batch)
        if crash.is_before:
            self.world.crash()
            raise _Crashed
        offset = self._store(partition, batch)
        self.world.crash()
        raise _Crashed(offset)

    def _count_marker(self, _marker: TransactionMarker, _tp: TopicPartition) -> None:
        crash = self._crash_at(self.result.steps)
        self.result.steps += 1
        if crash is not None:
            self.world.crash()
            raise _Crashed

    # Requests

    async def ask(self, request: Callable[[], Awaitable[_T]]) -> _T | None:
        """Sends a request through the network; None: its answer is lost."""
        disorder = self.plan.disorder
        if self.random.random() < disorder:
            # A copy of it arrives later, when its sender is elsewhere.
            self._later(request, self.random.randrange(1, 3_000))
        if self.random.random() < disorder:
            await self.pause(self.random.randrange(1, 300))
        try:
            async with asyncio.timeout(None):
                answer = await request()
        except _Crashed:
            return None
        return None if self.random.random() < disorder else answer

    def _later(self, request: Callable[[], Awaitable[object]], delay_ms: int) -> None:
        async def arrive() -> None:
            await self.pause(delay_ms)
            try:
                await request()
            except _Crashed:
                return

        task = asyncio.get_running_loop().create_task(arrive())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def pause(self, ms: int) -> None:
        """Waits for the clock of the network, which no crash resets."""
        await self.network.sleep(ms / 1000)

    async def abort_timed_out(self) -> None:
        """As a broker does it, again and again."""
        while True:
            await self.pause(10_000)
            self.world.coordinator.abort_timed_out()

    async def pass_time(self) -> None:
        """Lets the clock move to the next thing that waits for it."""
        await settle()
        world = self.world
        dues = [due for tasks in (self.network, world.tasks) if (due := tasks.next_due_ms)]
        ms = min(dues) - world.clock.monotonic_ms()
        await world.tasks.advance(max(ms, 0))
        await self.network.advance(0)

    async def retried(self, request: Callable[[], Awaitable[ErrorCode | Answer]]) -> Answer:
        """Repeats a request until it has an answer that is final."""
        while True:
            answer = await self.ask(request)
            if isinstance(answer, ErrorCode):
                answer = Answer(answer)
            if answer is not None and answer.error not in _RETRIED:
                return answer
            await self.pause(self.random.randrange(10, 60))

    # Producers

    async def produce(self, number: int) -> None:
        name = f"tx-{number}"
        try:
            identity = await self._init(name)
            for serial in range(self.plan.transactions):
                if self.random.random() < 0.1:  # A second instance of the producer.
                    identity = await self._init(name)
                identity = await self._transact(name, serial, identity)
        except _GaveUpError:
            return

    async def _init(self, name: str) -> ProducerIdentity:
        outcome = await self.retried(
            lambda: answered(
                partial(self.world.coordinator.init_producer_id, name, _TIMEOUT_MS, None)
            )
        )
        if outcome.error is not _NONE:
            raise _GaveUpError
        return outcome.identity

    async def _transact(
        self, name: str, serial: int, identity: ProducerIdentity
    ) -> ProducerIdentity:
        transaction = await self._write(name, serial, identity)
        if self.random.random() < 0.1:
            await self.pause(2 * _TIMEOUT_MS)
        is_commit = self.random.random() < 0.6
        return await self._end(name, identity, transaction, is_commit=is_commit)

    async def _write(self, name: str, serial: int, identity: ProducerIdentity) -> _Transaction:
        """Begins a transaction and writes its records."""
        transaction = _Transaction(f"{name}/{serial}/{identity.producer_epoch}")
        self.transactions.append(transaction)
        count = self.random.randint(1, self.plan.partitions)
        numbers = self.random.sample(range(self.plan.partitions), count)
        for number in numbers:
            tp = TopicPartition(_TOPIC, number)
            for _ in range(self.random.randint(1, 2)):
                await self._send(name, identity, tp, transaction.name)
        return transaction

    async def _end(
        self,
        name: str,
        identity: ProducerIdentity,
        transaction: _Transaction,
        *,
        is_commit: bool,
    ) -> ProducerIdentity:
        transaction.asked = is_commit
        outcome = await self.retried(
            lambda: answered(
                lambda answer: self.world.coordinator.end(
                    name,
                    identity,
                    is_commit=is_commit,
                    gets_epoch=self.plan.version >= 2,
                    answer=answer,
                )
            )
        )
        if outcome.error is not _NONE:
            raise _GaveUpError
        transaction.told = is_commit
        return outcome.identity if self.plan.version >= 2 else identity

    async def _send(
        self, name: str, identity: ProducerIdentity, tp: TopicPartition, data: str
    ) -> None:
        """Has the transaction include a partition, then appends a batch there."""
        if self.plan.version < 2:
            added = await self.retried(lambda: self._add(name, identity, tp, verify_only=False))
            if added.error is not _NONE:
                raise _GaveUpError
        outcome = await self.retried(lambda: self._append(name, identity, tp, data))
        if outcome.error is not _NONE:
            raise _GaveUpError

    async def _add(
        self, name: str, identity: ProducerIdentity, tp: TopicPartition, *, verify_only: bool
    ) -> ErrorCode:
        answers = await self.world.coordinator.add_partitions(
            name, *identity, [tp], verify_only=verify_only
        )
        return answers[tp]

    async def _append(
        self, name: str, identity: ProducerIdentity, tp: TopicPartition, data: str
    ) -> ErrorCode:
        """As a leader appends: verified, or added for the client, before the first batch."""
        partition = self.world.partition(tp)
        if not partition.is_open(*identity) and (self.plan.verifies or self.plan.version >= 2):
            guard = object()
            partition.confirmed[identity.producer_id] = id(guard)
            verify_only = self.plan.version < 2
            if self.plan.verifies or not verify_only:
                error = await self._add(name, identity, tp, verify_only=verify_only)
                if not self.plan.verifies:
                    error = _NONE
                if error is not _NONE:
                    return error
            if self.plan.verifies and partition.confirmed.get(identity.producer_id) != id(guard):
                return ErrorCode.CONCURRENT_TRANSACTIONS  # A marker came in between.
        return partition.append(*identity, data)

    # Every decision

    async def produce_each_decision(self) -> None:
        """Does what any producer can, one thing after another, until all ids have expired."""
        attempts = [
            self._end_each_after_each("tx-0"),
            self._replace_a_producer("tx-0"),
            self._sleep_too_long("tx-0"),
            *([self._abort_nothing("tx-0")] if self.plan.version >= 2 else []),
            *map(self._use_up_the_epochs, _NEARLY_USED_UP),
            self._init_and_transact("tx-committed", True),
            self._init_and_transact("tx-aborted", False),
            self._init_and_transact("tx-empty"),
        ]
        for attempt in attempts:
            # What a crash makes impossible is left, as by a producer that begins anew.
            with contextlib.suppress(_GaveUpError):
                await attempt
        await self._expire()

    async def _init_and_transact(self, name: str, *commits: bool) -> ProducerIdentity:
        identity = await self._init(name)
        for is_commit in commits:
            transaction = await self._write(name, next(self._serials), identity)
            identity = await self._end(name, identity, transaction, is_commit=is_commit)
        return identity

    async def _end_each_after_each(self, name: str) -> None:
        await self._init_and_transact(name, True, True, False, False, True)
        for _ in range(2):  # After COMPLETE_COMMIT, then after EMPTY.
            await self._init(name)

    async def _replace_a_producer(self, name: str) -> None:
        await self._write(name, next(self._serials), await self._init(name))
        await self._init(name)  # After COMPLETE_ABORT, once that is there.

    async def _sleep_too_long(self, name: str) -> None:
        await self._write(name, next(self._serials), await self._init(name))
        await self.pause(2 * _TIMEOUT_MS)

    async def _abort_nothing(self, name: str) -> None:
        """Aborts without a transaction: after EMPTY, COMPLETE_ABORT and COMPLETE_COMMIT."""
        identity = await self._init(name)
        for _ in range(2):
            identity = await self._end(name, identity, _Transaction(""), is_commit=False)
        transaction = await self._write(name, next(self._serials), identity)
        identity = await self._end(name, identity, transaction, is_commit=True)
        await self.pause(1_000)  # Until the markers are written.
        await self._end(name, identity, _Transaction(""), is_commit=False)

    async def _use_up_the_epochs(self, name: str) -> None:
        """Gets other producer ids: by starting, and under version 2 by ending a transaction."""
        for _ in range(2):
            await self._init_and_transact(name, True, False)

    async def _expire(self) -> None:
        world = self.world
        await self.pause(2 * _TIMEOUT_MS + world.config.id_expiration_ms)
        for _ in range(5):
            world.coordinator.expire()
            await self.pause(1_000)
            left = [name for name, _ in world.coordinator.list_transactions()]
            if not left:
                return
        self.result.failures.append(f"not expired: {left}")

    def near_the_last_epoch(self) -> None:
        """Has the log begin with ids whose epochs are nearly used up; ids expire soon."""
        self.world.config = replace(self.world.config, id_expiration_ms=2 * _TIMEOUT_MS)
        for producer_id, name in enumerate(_NEARLY_USED_UP, 100):
            record = TransactionRecord(
                producer_id=producer_id,
                producer_epoch=LAST_EPOCH - 2,
                timeout_ms=_TIMEOUT_MS,
                state=TransactionState.EMPTY,
                by_topic={},
                last_update_ms=self.world.clock.now_ms(),
            )
            pair = (encode_transaction_key(name), encode_transaction_value(record, 0))
            self._store(0, build_batch([(0, *pair, ())]))
        self.world.crash()

    def _transitions(self) -> frozenset[tuple[TransactionState | None, TransactionState | None]]:
        """Of all ids, in the order of the log."""
        states: dict[str, TransactionState | None] = {}
        found = set()
        for batches in self.world.topic.batches.values():
            for record in itertools.chain.from_iterable(map(read_records, batches)):
                assert record.key is not None
                name, value = parse_transaction_key(record.key), record.value
                state = None if value is None else parse_transaction_value(value).state
                found.add((states.get(name), state))
                states[name] = state
        return frozenset(found)

    # The end

    async def finish(self) -> None:
        world = self.world
        for task in tuple(self._background):
            task.cancel()
        world.topic.store = self._store  # type: ignore[method-assign]
        world.before_marker = lambda _marker, _tp: None
        world.crash()
        for _ in range(6):
            await world.tasks.advance(_TIMEOUT_MS)
            world.coordinator.abort_timed_out()
        await world.tasks.advance(_TIMEOUT_MS)

    def check(self) -> Result:
        fates: dict[str, set[str]] = {}
        fail = self.result.failures.append
        for tp, partition in sorted(self.world.partitions.items()):
            for fate, names in (
                ("open", [name for data in partition.open.values() for name in data]),
                ("committed", partition.committed),
                ("aborted", partition.aborted),
            ):
                for name in names:
                    fates.setdefault(str(name), set()).add(fate)
                    if fate == "open":
                        fail(f"{name}: open in {tp}")
        for transaction in self.transactions:
            found = fates.get(transaction.name, set())
            if len(found) > 1:
                fail(f"{transaction.name}: {sorted(found)}")
            told = {True: "committed", False: "aborted", None: None}[transaction.told]
            if told is not None and found and found != {told}:
                fail(f"{transaction.name}: told {told}, found {sorted(found)}")
            if transaction.asked is not True and "committed" in found:
                fail(f"{transaction.name}: committed, which its producer did not ask for")
            self.result.committed += found == {"committed"}
            self.result.aborted += found == {"aborted"}
        self.result.transitions = self._transitions()
        return self.result


class _Crashed(BaseException):
    """The coordinator is no more: nothing that it was doing goes on."""

    def __init__(self, offset: int = -1) -> None:
        super().__init__("the coordinator crashed")
        self.offset = offset


async def play(plan: Plan) -> Result:
    """Plays a history in the running loop."""
    world = TransactionWorld(version=plan.version, is_replicated=plan.is_replicated)
    await settle()
    history = _Play(plan, world)
    if plan.has_every_decision:
        history.near_the_last_epoch()
        work = [history.produce_each_decision()]
    else:
        work = [history.produce(number) for number in range(plan.producers)]
    producers = [asyncio.get_running_loop().create_task(one) for one in work]
    upkeep = asyncio.get_running_loop().create_task(history.abort_timed_out())
    for _ in range(_MOST_ROUNDS):
        await history.pass_time()
        if all(producer.done() for producer in producers):
            break
    else:
        history.result.failures.append("the producers do not come to an end")
    for task in (upkeep, *producers):
        task.cancel()
    await asyncio.gather(upkeep, *producers, return_exceptions=True)
    for producer in producers:
        if not producer.cancelled() and (failure := producer.exception()) is not None:
            raise failure
    await history.finish()
    return history.check()


def run(plan: Plan) -> Result:
    """Plays a history."""
    return asyncio.run(play(plan))


def main(seeds: int, first: int = 0) -> int:
    """Plays histories of both versions, with replicas and without; returns how many failed."""
    failed = committed = aborted = crashed = 0
    for seed in range(first, first + seeds):
        random = Random(seed)
        crashes = tuple(
            Crash(step=random.randrange(60), is_before=random.random() < 0.5)
            for _ in range(random.randint(0, 3))
        )
        plan = Plan(seed=seed, version=2, disorder=random.choice((0.0, 0.1, 0.3)), crashes=crashes)
        older = Plan(seed=seed, version=0, crashes=crashes)
        for one, is_replicated in itertools.product((plan, older), (True, False)):
            result = run(replace(one, is_replicated=is_replicated))
            committed += result.committed
            aborted += result.aborted
            crashed += sum(crash.step < result.steps for crash in crashes)
            if result.failures:
                failed += 1
                print(one, f"{is_replicated=}", *result.failures, sep="\n    ")
    print(
        f"seeds {first} to {first + seeds - 1}, each with version 2 and 0, with replicas and"
        f" without: {committed} transactions committed, {aborted} aborted, {crashed} crashes;"
        f" {failed} histories failed"
    )
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:3]))))
