"""Producers with transactions: feeders, and pipelines that read, write results and commit offsets.

The steps are the same on every client, also in `Pipeline.java`. Adapters say what errors mean:

================ ===============================================================
`AbortableError` the transaction has to be aborted; its records are read again
`BrokenError`    the producer is of no use any more; another one takes its place
`RetriableError` the outcome is unknown; the same call is made again
================ ===============================================================

What is to be committed is written down before the commit is asked for, and what the client was told
after it; so a process that dies leaves a transaction that was never to be committed, or one of
unknown outcome.
"""

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

from tests.chaos.workload.recording import Recorder
from tests.support.java_programs import java_command

__all__ = ["AbortableError", "BrokenError", "Done", "RetriableError", "Session", "run"]

# Records that a pipeline takes into one transaction, and transactions that it aborts by itself.
BATCH = 20
ABORTED = 0.1
FEED = 6
# A client that finds no coordinator for so long gives up.
RETRY_LIMIT_S = 60
# A call that is back only after so long will never be: each has a timeout of its own.
STUCK_S = 40

# Told for each record: its offset if it is known, and the error if there is one.
Done = Callable[[int | None, str | None], None]


class AbortableError(Exception):
    """See the module's docstring."""


class BrokenError(Exception):
    """See the module's docstring."""


class RetriableError(Exception):
    """See the module's docstring."""


class Session(Protocol):
    """One producer with transactions of one client, and the consumer of a pipeline."""

    def init(self) -> None: ...

    def poll(self) -> Sequence[tuple[int, int, bytes]]:
        """Partition, offset and value of what came: nothing for a feeder."""
        ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: str, done: Done) -> None: ...

    def send_offsets(self, positions: Mapping[int, int]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def rewind(self, positions: Mapping[int, int]) -> None:
        """Reads from there again, as far as these partitions are still its own."""
        ...

    def close(self) -> None: ...


def run(role: str, client: str, recorder: Recorder) -> None:
    """Runs a role until SIGTERM, with one producer after the other if one breaks."""
    if client == "java":
        command = java_command(
            Path(__file__).with_name("Pipeline.java"),
            role,
            json.dumps(dataclasses.asdict(recorder.settings)),
        )
        os.execv(command[0], command)
    if client == "librdkafka":
        from tests.chaos.workload.sessions_librdkafka import open_session
    elif client == "kafka-python":
        from tests.chaos.workload.sessions_kafka_python import (  # type: ignore[assignment]  # as above
            open_session,
        )
    elif client == "aiokafka":
        from tests.chaos.workload.sessions_aiokafka import (  # type: ignore[assignment]  # as above
            open_session,
        )
    else:
        from tests.chaos.workload.sessions_ours import (  # type: ignore[assignment]  # as above
            open_session,
        )
    watch = _Watch(role, client, recorder)
    life = 0
    while not recorder.is_stopping.is_set():
        life += 1
        recorder.process = recorder.settings.process + (f".{life}" if life > 1 else "")
        session = open_session(recorder, is_pipeline=role == "pipeline")
        worker = _Worker(recorder, session, watch)
        try:
            worker.run_feeder() if role == "feeder" else worker.run_pipeline()
        except (AbortableError, BrokenError) as error:  # Nothing to abort: it was starting.
            print(f"{time.monotonic():.3f} broken: {error}", file=sys.stderr)
            recorder.is_stopping.wait(0.2)
        finally:
            recorder.say("ended")
            with watch:
                worker.session.close()


class _Watch:
    """Gives a process whose client does not return from a call to another instance.

    librdkafka's call for offsets in a transaction ignores its timeout, and waits for good when its
    coordinator went away at the wrong moment.
    """

    def __init__(self, role: str, client: str, recorder: Recorder) -> None:
        self._role = role
        self._client = client
        self._recorder = recorder
        self._since: float | None = None
        threading.Thread(target=self._look, daemon=True).start()

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._since = None

    def _look(self) -> None:
        seen = time.monotonic()
        while not self._recorder.is_stopping.wait(1):
            now = time.monotonic()
            if now - seen > STUCK_S / 4:  # The process slept, not its client.
                self._since = self._since and now
            seen = now
            since = self._since
            if since is not None and now - since > STUCK_S:
                self._replace()

    def _replace(self) -> None:
        recorder = self._recorder
        print(f"{time.monotonic():.3f} stuck: a call did not return", file=sys.stderr, flush=True)
        recorder.say("ended")
        again = dataclasses.replace(recorder.settings, process=f"{recorder.process}-again")
        facts = json.dumps(dataclasses.asdict(again))
        command = [sys.executable, "-m", "tests.chaos.workload", self._role, self._client, facts]
        os.execv(sys.executable, command)


class _Worker:
    def __init__(self, recorder: Recorder, session: Session, watch: _Watch) -> None:
        self.recorder = recorder
        self.session = session
        self._watch = watch
        self._random = Random(f"{recorder.settings.seed} {recorder.process}")
        self._sends = 0
        self._transactions = 0
        self._commits = 0

    def run_feeder(self) -> None:
        """Writes records by transactions, some of which it aborts."""
        settings = self.recorder.settings
        self._try(self.session.init)
        due = time.monotonic()
        while not self.recorder.is_stopping.is_set():
            count = self._random.randint(1, FEED)
            self._begin()
            self._end(partial(self._feed, count))
            due += count / settings.rate
            self.recorder.is_stopping.wait(max(0.0, due - time.monotonic()))

    def _feed(self, count: int) -> None:
        for _ in range(count):
            self._send(self.recorder.settings.topic, self.recorder.settings.label)

    def run_pipeline(self) -> None:
        """Writes a result of each record that it reads."""
        self._try(self.session.init)
        while not self.recorder.is_stopping.is_set():
            records = self.session.poll()
            for start in range(0, len(records), BATCH):
                batch = records[start : start + BATCH]
                if not self._process(batch):
                    # What follows was read, too, and comes again.
                    self.session.rewind(_firsts(records[start:]))
                    break

    def _process(self, batch: Sequence[tuple[int, int, bytes]]) -> bool:
        settings = self.recorder.settings
        positions = {partition: offset + 1 for partition, offset, _ in batch}
        self._begin()

        def work() -> None:
            for partition, offset, value in batch:
                source = [settings.label, partition, offset, value.decode()]
                self._send(settings.output, settings.output, source)
            self._commits += 1
            self.recorder.say(
                "commit",
                n=self._commits,
                txn=self._transactions,
                group=settings.group,
                generation=None,
                offsets=[[settings.label, *one] for one in sorted(positions.items())],
            )
            self._try(lambda: self.session.send_offsets(positions))

        return self._end(work)

    def _begin(self) -> None:
        self._transactions += 1
        self.recorder.say(
            "txn-begin", n=self._transactions, id=self.recorder.settings.transactional_id
        )
        self.session.begin()

    def _send(self, topic: str, label: str, source: Sequence[object] | None = None) -> None:
        self._sends += 1
        n = self._sends
        value = f"{self.recorder.process}/{n}"
        partition = n % self.recorder.settings.partitions
        facts: dict[str, Any] = {} if source is None else {"source": source}
        self.recorder.say(
            "send", n=n, topic=label, partition=partition, key="", value=value,
            txn=self._transactions, **facts,
        )  # fmt: skip
        self.session.send(topic, partition, value, partial(_note, self.recorder, n))

    def _end(self, work: Callable[[], object]) -> bool:
        """Does the work of a transaction and ends it; whether it is committed."""
        try:
            work()
            if self._random.random() >= ABORTED:
                self._say_ending("commit")
                self._try(self.session.commit)
                self._say_ended("committed")
                return True
        except AbortableError as error:
            print(f"{time.monotonic():.3f} abortable: {error}", file=sys.stderr)
        self._say_ending("abort")
        try:
            self._try(self.session.abort)
        except AbortableError as error:
            raise BrokenError(error) from error
        self._say_ended("aborted")
        return False

    def _say_ending(self, wish: str) -> None:
        self.recorder.say("txn-ending", n=self._transactions, wish=wish)

    def _say_ended(self, outcome: str) -> None:
        self.recorder.say("txn-ended", n=self._transactions, outcome=outcome, error=None)

    def _try(self, call: Callable[[], None]) -> None:
        deadline = time.monotonic() + RETRY_LIMIT_S
        while True:
            try:
                with self._watch:
                    call()
            except RetriableError as error:
                print(f"{time.monotonic():.3f} retriable: {error}", file=sys.stderr)
                if time.monotonic() > deadline:
                    raise BrokenError(error) from error
            else:
                return


def _note(recorder: Recorder, n: int, offset: int | None, error: str | None) -> None:
    outcome = "ok" if error is None else "unknown"
    recorder.say("sent", n=n, outcome=outcome, offset=offset, error=error)


def _firsts(records: Sequence[tuple[int, int, bytes]]) -> dict[int, int]:
    """The first offset of each partition."""
    firsts: dict[int, int] = {}
    for partition, offset, _ in records:
        firsts.setdefault(partition, offset)
    return firsts
