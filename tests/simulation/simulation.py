"""One broker with clients of ours, from a seed: trouble first, then all is well and must settle.

`run` gives the same trace for the same seed. What happens:

1. a broker starts, writers write, the members of a group read and commit, a prober compares
   answers; meanwhile the broker is killed between any two steps or within a write, its machine
   loses its power, its disk fails or is full, links are cut one way or both, slow, or reset;
2. everything heals: all records get their outcome, the group reads to the end, within
   `SETTLED_WITHIN_S` of simulated time;
3. a member leaves and comes back; then nothing happens for longer than a session timeout, and the
   group must not move;
4. the whole topic is read once more and compared with all that was promised.

Invariants are looked at after each step; `tests/simulation/history.py` has those of the clients,
`tests/simulation/operations.py` those of requests that wait.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from odradek.aio import Consumer
from odradek.errors import OdradekError
from odradek.model import TopicPartition
from odradek.network.connection import Connection
from odradek.network.request import Response
from odradek.testing.virtual_loop import Process
from tests.simulation.clients import (
    PARTITIONS,
    SESSION_MS,
    TOPIC,
    Prober,
    Reader,
    Writer,
    create_topic,
)
from tests.simulation.history import History, Violation
from tests.simulation.machine import BROKER, CLIENT, Ending, Machine
from tests.simulation.operations import OperationWatch

__all__ = ["Outcome", "run"]

TROUBLE_S = 12.0
WRITING_S = 3.0
SETTLED_WITHIN_S = 90.0
QUIET_S = SESSION_MS / 1000 * 1.5
# A simulation that gets nowhere ends.
_MOST_STEPS = 400_000

_FAILURES = logging.getLogger("odradek")


class Outcome(NamedTuple):
    """What became of a seed."""

    seed: int
    violation: str | None
    trace: list[str]
    digest: str
    steps: int
    acknowledged: int
    lives: int


class _Errors(logging.Handler):
    """Collects what the broker and the clients log as errors of ours."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[0] is not None:
            kind = record.exc_info[0]
            if not issubclass(kind, OSError | OdradekError):
                self._tell(f"{record.name}: {record.getMessage()}: {record.exc_info[1]!r}")


class Client(Protocol):
    """Something that works against the broker."""

    async def run(self) -> None: ...


class Simulation:
    """One run; see the module's docstring."""

    def __init__(self, seed: int, root: str) -> None:
        self.seed = seed
        self._root = root
        self.trace: list[str] = []
        self._digest = hashlib.sha256()
        self.violation: Violation | None = None
        self.machine = Machine(seed, root, self.note)
        self.machine.on_violation = self.fail
        self.machine.on_machine_crash = self._on_machine_crash
        self.loop = self.machine.loop
        self.history = History(self.machine.records)
        self.machine.on_doubt = self.history.doubt
        self.machine.on_restart = self.history.settle
        self.writers = [Writer(self.machine, self.history, f"w{n}-{seed}") for n in range(2)]
        self.readers = [Reader(self.machine, self.history, f"r{n}-{seed}") for n in range(3)]
        self.prober = Prober(self.machine, self.history)
        self._marks: dict[TopicPartition, int] = {}
        self._life = 0
        self._clients_process = Process("clients")
        self._has_lost_groups = False
        self.loop.on_step = self._on_step
        self._watch_answers()
        self.operations = OperationWatch(self.loop.time, self.fail)
        self.loop.on_failure = self._on_failure

    # Telling

    def note(self, line: str) -> None:
        """Adds a line to the trace."""
        line = f"{self.machine.loop.time() - 1000:9.4f} {line.replace(self._root, '')}"
        self.trace.append(line)
        self._digest.update(line.encode())

    def fail(self, violation: Violation) -> None:
        """Ends the simulation."""
        if self.violation is None:
            self.violation = violation
            self.note(f"VIOLATION {violation}")
            self.loop.stop()

    def _on_failure(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        message = context.get("message", "")
        # A task without an error was forgotten while it waited: it is one of a killed broker.
        if error is None or isinstance(error, OdradekError | OSError):
            return
        self.fail(Violation(f"{message}: {error!r}"))

    def _watch_answers(self) -> None:
        """Fails when a request is answered twice; here, since its connection drops the second."""
        complete = Connection.complete

        def complete_once(connection: Connection, response: Response) -> None:
            if not connection.is_closed and connection._request is not response.request:
                self.fail(Violation(f"{response.request} is answered twice"))
            complete(connection, response)

        Connection.complete = complete_once  # type: ignore[method-assign, assignment]

    # After each step

    def _on_step(self) -> None:
        machine = self.machine
        machine.look()
        self._digest.update(f"{self.loop.time():.6f}".encode())
        if self.loop.step_count > _MOST_STEPS:
            self.fail(Violation(f"still busy after {_MOST_STEPS} steps"))
        if machine.broker is not None:
            if self.loop.last_process is self._clients_process:
                machine.guard(self._check_owners)
            else:
                machine.guard(self._check_logs)

    def _check_logs(self) -> None:
        if self._life != self.machine.lives:
            self._life = self.machine.lives
            self._marks = {}
            self.operations.forget()
        for tp, partition in self.machine.partitions().items():
            log = partition.log
            assert log is not None
            mark, end = log.high_watermark, log.log_end_offset
            if mark > end:
                raise Violation(f"{tp}: high watermark {mark}, log end {end}")
            if mark < self._marks.get(tp, 0):
                raise Violation(f"{tp}: high watermark {mark}, it was {self._marks[tp]}")
            if log.recovery_point > end:
                raise Violation(f"{tp}: recovery point {log.recovery_point}, log end {end}")
            self._marks[tp] = mark
        self.operations.check_overdue()

    def _check_owners(self) -> None:
        owners: dict[tuple[int, TopicPartition], str] = {}
        # A group that was lost with the power counts generations anew: of its former members, who
        # do not know that yet, nothing is said; nor while the broker has not loaded any group.
        known = self.machine.members() if self._has_lost_groups else None
        for reader in self.readers:
            consumer = reader.consumer
            if consumer is None or consumer._group is None:
                continue
            membership = consumer._group.membership
            if membership.generation < 0:
                continue
            if known is not None and membership.member_id not in known:
                continue
            for tp in consumer.assignment():
                other = owners.setdefault((membership.generation, tp), membership.member_id)
                if other != membership.member_id:
                    raise Violation(
                        f"{tp} belongs to {other} and {membership.member_id}"
                        f" in generation {membership.generation}"
                    )

    def _on_machine_crash(self, are_commits_durable: bool) -> None:
        if not are_commits_durable:
            self._has_lost_groups = True
            self.history.forget_commits()

    # What happens

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = self.loop.create_task(work, name=name)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(Violation(f"{task.get_name()} failed: {type(error).__name__}: {error}"))

    async def main(self) -> None:
        machine = self.machine
        machine.start()
        self.loop.run_in(self._clients_process, self._start_clients)
        await self._trouble()
        await self._heal()
        # Time to write, also for those who could not before.
        await asyncio.sleep(WRITING_S)
        for writer in self.writers:
            writer.is_ending = True
        await self._settle()
        self.readers[0].leave()
        await self._settle()
        await self._stay_quiet()
        await self._compare()
        self.note("all is well")

    def _start_clients(self) -> None:
        self.spawn(self._clients(), "clients")

    async def _clients(self) -> None:
        await create_topic(self.machine)
        self.note("the topic is there")
        clients: list[Client] = [*self.writers, *self.readers, self.prober]
        for index, client in enumerate(clients):
            self.spawn(client.run(), f"client-{index}")

    async def _trouble(self) -> None:
        machine, random = self.machine, self.machine.random
        end_s = self.loop.time() + TROUBLE_S
        while self.loop.time() < end_s:
            await asyncio.sleep(random.random() * 1.5)
            if machine.is_down:
                machine.disk.heal()
                machine.start()
                continue
            self._cause(random.randrange(14))

    def _cause(self, kind: int) -> None:
        machine, random = self.machine, self.machine.random
        modes: tuple[Ending, ...] = ("kill", "kill", "drop", "torn")
        mode = random.choice(modes)
        match kind:
            case 0:
                count = random.randrange(300)
                self.note(f"{mode} after {count} steps")
                machine.kill_after_steps(mode, count)
            case 1 | 2:
                operation = None if kind == 1 else "fsync"
                count = random.randrange(40 if kind == 1 else 5)
                self.note(f"{mode} after {count} times {operation or 'any operation'} of the disk")
                machine.kill_within_a_write(mode, count, operation)
            case 3:
                if machine.broker is not None and not machine.is_stopping:
                    self.note("stop in order")
                    machine.stop()
            case 4:
                operation = random.choice(("fsync", "write", "writev", "fsync_dir", "rename"))
                self.note(f"the next {operation} fails")
                machine.disk.fail(operation, after=random.randrange(4))
            case 5:
                self.note("the disk is full")
                machine.disk.full_after(random.randrange(2_000))
            case 6:
                self.note("cut both ways")
                machine.network.cut(CLIENT, BROKER)
                machine.network.cut(BROKER, CLIENT)
            case 7:
                way = random.choice(((CLIENT, BROKER), (BROKER, CLIENT)))
                self.note(f"cut from {way[0]} to {way[1]}")
                machine.network.cut(*way)
            case 8:
                self.note("slow")
                machine.network.slow(random.choice((5.0, 100.0)))
            case 9 | 10:
                self.note("reset")
                machine.network.reset(CLIENT)
            case _:
                self.note("links heal")
                machine.network.heal()

    async def _heal(self) -> None:
        self.note("everything heals")
        machine = self.machine
        machine.network.heal()
        machine.disk.heal()
        for reader in self.readers:
            reader.may_leave = False
        # An operator looks: what was broken by the disk starts anew.
        machine.kill("kill")
        machine.start()

    async def _settle(self) -> None:
        end_s = self.loop.time() + SETTLED_WITHIN_S
        while (missing := self._missing()) is not None:
            if self.loop.time() > end_s:
                raise Violation(f"not settled after {SETTLED_WITHIN_S} s: {missing}")
            await asyncio.sleep(0.25)
        self.note("settled")

    def _missing(self) -> str | None:
        machine = self.machine
        if machine.broker is None:
            return "the broker does not serve"
        if unsettled := sum(writer.unsettled for writer in self.writers):
            return f"{unsettled} records have no outcome"
        owned = [
            tp
            for reader in self.readers
            if reader.consumer is not None
            for tp in reader.consumer.assignment()
        ]
        if len(owned) != PARTITIONS or len(set(owned)) != PARTITIONS:
            return f"the group reads {sorted(owned)}"
        generations = self._generations()
        if (
            len(generations) < len(self.readers)
            or len(set(generations)) > 1
            or min(generations) < 0
        ):
            return f"the members are in generations {generations}"
        for reader in self.readers:
            assert reader.consumer is not None
            for tp in reader.consumer.assignment():
                end = machine.log_end(tp)
                state = reader.consumer._partitions.get(tp)
                at = None if state is None else state.position
                if at != end:
                    return f"{tp} is read up to {at} of {end}"
        return None

    def _generations(self) -> list[int]:
        return [
            reader.consumer._group.membership.generation
            for reader in self.readers
            if reader.consumer is not None and reader.consumer._group is not None
        ]

    async def _stay_quiet(self) -> None:
        before = self._generations()
        await asyncio.sleep(QUIET_S)
        after = self._generations()
        if before != after:
            raise Violation(f"nothing happens, and generations {before} become {after}")
        self.note(f"quiet in generation {before}")

    async def _compare(self) -> None:
        for partition in range(PARTITIONS):
            tp = TopicPartition(TOPIC, partition)
            async with Consumer(
                bootstrap_servers=self.machine.bootstrap,
                auto_offset_reset="earliest",
                surroundings=self.machine.client("judge"),
            ) as consumer:
                await consumer.assign([tp])
                await consumer.seek_to_beginning([tp])
                found: list[tuple[int, bytes]] = []
                end = self.machine.log_end(tp)
                while not found or found[-1][0] < end - 1:
                    if not end:
                        break
                    records = await consumer.poll(5)
                    if not records:
                        raise Violation(f"{tp}: nothing comes after {found[-1:]}, end {end}")
                    found += [
                        (record.offset, bytes(record.value or b"").rstrip(b"."))
                        for record in records
                    ]
            self.history.check_log(tp, found)

    def run(self) -> Outcome:
        """Runs it all."""
        errors = _Errors(lambda line: self.fail(Violation(line)))
        _FAILURES.addHandler(errors)
        main = self.loop.create_task(self.main(), name="main")
        main.add_done_callback(lambda _task: self.loop.stop())
        try:
            self.loop.run_forever()
        finally:
            _FAILURES.removeHandler(errors)
        if self.violation is None:
            if not main.done():
                self.violation = Violation("nothing is left to do, and it is not over")
            elif (error := main.exception()) is not None:
                self.violation = Violation(f"{type(error).__name__}: {error}")
                self.note(f"VIOLATION {self.violation}")
        return Outcome(
            seed=self.seed,
            violation=None if self.violation is None else str(self.violation),
            trace=self.trace,
            digest=self._digest.hexdigest(),
            steps=self.loop.step_count,
            acknowledged=sum(writer.acknowledged for writer in self.writers),
            lives=self.machine.lives,
        )


def run(seed: int, root: str) -> Outcome:
    """Runs a seed in an empty directory, in this process; `forked` has what most want."""
    return Simulation(seed, root).run()
