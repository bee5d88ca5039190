"""One log of transactions, and the offsets that they stage for a group, from a seed.

`run_log`: producers append the batches of their transactions to a real log, and repeat any of their
last five; readers of committed records follow, at any high watermark; the log is stopped or killed,
and opened again. Then

- a reader gets the records of committed transactions, once and in order, and no others;
- a repeated batch gets the offsets that it has, and is not written again.

`run_offsets`: transactions stage offsets for a group, beside plain commits, and other brokers take
over from the log. Then the group has the offsets of the transactions that were committed, as of
their places in the log, and a reader of stable offsets is told of those that are still open.

`python -m tests.simulation.transactional_log SEEDS` plays many, and prints the seeds that fail.
"""

import sys
import tempfile
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from odradek.errors import ApiError, ErrorCode
from odradek.records.batch import iter_headers
from odradek.records.control import parse_end_transaction_marker
from odradek.records.record import read_records
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from tests.support.log_scenarios import UnsyncedDisk, abort, append_leader, commit, transactional
from tests.support.logs import LogFixture
from tests.unit.coordinator.test_transactional_offsets import UNSTABLE, Fixture

__all__ = ["LogResult", "run_log", "run_offsets"]

_REPEATED = 5  # Batches that a producer may have in flight, and repeat.


@dataclass(slots=True)
class LogResult:
    """What a history came to."""

    failures: list[str] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    repeated_count: int = 0


@dataclass(slots=True)
class _Producer:
    producer_id: int
    sequence: int = 0
    open: list[str] = field(default_factory=list)  # The records of its transaction.
    # The newest batches, with their offsets.
    recent: deque[tuple[bytes, int]] = field(default_factory=lambda: deque(maxlen=_REPEATED))


class _History:
    def __init__(self, seed: int, fixture: LogFixture) -> None:
        self.random = Random(seed)
        self.fixture = fixture
        self.log: Log = fixture.open()
        self.producers = [_Producer(number) for number in (1, 2, 3)]
        self.result = LogResult()
        self.fates: dict[str, bool] = {}  # Whether a record is committed; none: it is open.
        self.committed: list[tuple[int, str]] = []
        self.offsets: dict[str, int] = {}
        self.high_watermark = 0
        self.position = 0  # Of the reader.

    def step(self) -> None:
        producer = self.random.choice(self.producers)
        choice = self.random.random()
        if choice < 0.4:
            self.append(producer)
        elif choice < 0.55:
            self.end(producer)
        elif choice < 0.7:
            self.replicate(self.random.randint(self.high_watermark, self.log.log_end_offset))
        elif choice < 0.85:
            self.read()
        elif choice < 0.95:
            self.repeat(producer)
        else:
            self.reopen()

    def append(self, producer: _Producer) -> None:
        name = f"{producer.producer_id}-{producer.sequence}"
        batch = transactional(
            producer.sequence, producer_id=producer.producer_id, value=name.encode()
        )
        sent = bytes(batch)
        offset = append_leader(self.log, batch).first_offset
        assert offset is not None, "a leader gives it one"
        producer.sequence += 1
        producer.open.append(name)
        producer.recent.append((sent, offset))
        self.offsets[name] = offset

    def end(self, producer: _Producer) -> None:
        if not producer.open:
            return
        is_commit = self.random.random() < 0.6
        (commit if is_commit else abort)(self.log, producer.producer_id)
        for name in producer.open:
            self.fates[name] = is_commit
            if is_commit:
                self.committed.append((self.offsets[name], name))
        producer.open = []

    def replicate(self, offset: int) -> None:
        self.high_watermark = offset
        self.log.update_high_watermark(offset)

    def read(self) -> None:
        """As a client with `read_committed` reads what follows its position."""
        fetched = self.log.read(self.position, 1 << 20, FetchIsolation.TXN_COMMITTED)
        aborted = sorted(fetched.aborted_transactions or (), key=lambda one: one.first_offset)
        aborting: set[int] = set()
        data = fetched.read()
        for place, header in iter_headers(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting.add(aborted.pop(0).producer_id)
            if header.last_offset < self.position:
                continue
            self.position = header.next_offset
            if header.is_control:
                marker = parse_end_transaction_marker(data, position=place)
                if marker is not None and not marker.is_commit:
                    aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                for record in read_records(data, position=place, header=header):
                    assert record.value is not None
                    self.deliver(record.value.decode())

    def deliver(self, name: str) -> None:
        if not self.fates.get(name, False):
            fate = "aborted" if name in self.fates else "open"
            self.result.failures.append(f"{name}: delivered, and its transaction is {fate}")
        self.result.delivered.append(name)

    def repeat(self, producer: _Producer) -> None:
        if not producer.recent:
            return
        sent, offset = self.random.choice(producer.recent)
        end = self.log.log_end_offset
        self.result.repeated_count += 1
        try:
            found = append_leader(self.log, bytearray(sent)).first_offset
        except ApiError as error:
            self.result.failures.append(f"the batch at {offset} was repeated: {error.code.name}")
            return
        if found != offset or self.log.log_end_offset != end:
            self.result.failures.append(f"the batch at {offset} is written again, at {found}")

    def reopen(self) -> None:
        self.log = self.fixture.reopen(clean=self.random.random() < 0.5)
        self.replicate(self.high_watermark)

    def finish(self) -> LogResult:
        self.reopen()
        for producer in self.producers:
            self.repeat(producer)
            self.end(producer)
        self.replicate(self.log.log_end_offset)
        self.read()
        expected = [name for _, name in sorted(self.committed)]
        if self.result.delivered != expected:
            self.result.failures.append(f"delivered {self.result.delivered}, committed {expected}")
        return self.result


def run_log(seed: int, path: Path, steps: int = 80) -> LogResult:
    """Plays the history of a seed on the log of an empty directory."""
    with LogFixture(path, disk=UnsyncedDisk()) as fixture:
        history = _History(seed, fixture)
        for _ in range(steps):
            history.step()
            if history.result.failures:
                return history.result
        return history.finish()


def run_offsets(seed: int, steps: int = 60) -> list[str]:
    """Plays the history of a seed; returns what is wrong."""
    random, fixture = Random(seed), Fixture()
    committed, committed_at = -1, 0
    staged: dict[int, tuple[int, int]] = {}  # By producer id: the place of a commit, the offset.
    failures: list[str] = []

    def settle(at: int, offset: int) -> None:
        nonlocal committed, committed_at
        if at >= committed_at:
            committed, committed_at = offset, at

    for place in range(1, steps + 1):
        choice, producer_id = random.random(), random.choice((4000, 4001))
        if choice < 0.35:
            if fixture.commit(place, producer_id=producer_id) != [ErrorCode.NONE]:
                failures.append(f"step {place}: the commit was not answered")
            staged[producer_id] = place, place
        elif choice < 0.45:
            fixture.commit_plainly(place)
            settle(place, place)
        elif choice < 0.7:
            is_commit = random.random() < 0.6
            fixture.end(producer_id=producer_id, is_commit=is_commit)
            ended = staged.pop(producer_id, None)
            if is_commit and ended is not None:
                settle(*ended)
        elif choice < 0.85:
            fixture.fail_over()
        else:
            found = fixture.fetch(), fixture.fetch(is_stable=True)
            expected = committed, UNSTABLE if staged else committed
            if found != expected:
                failures.append(f"step {place}: found {found}, expected {expected}")
    return failures


def main(seeds: int) -> int:
    """Plays many histories; returns the number of those that failed."""
    failed = 0
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as directory:
            failures = run_log(seed, Path(directory)).failures + run_offsets(seed)
        if failures:
            failed += 1
            print(f"seed {seed}", *failures, sep="\n    ")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]))))
