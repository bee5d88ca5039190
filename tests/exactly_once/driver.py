"""One life of a driver: ``python -m tests.exactly_once.driver SPEC``; SPEC is JSON.

It copies a topic into another one, exactly once, with keys that differ each time they are computed,
and ends when it has read all of it. On the way it dies or stops where the spec says.
"""

import json
import os
import signal
import sys
import threading
from typing import Any

from pyspark import cloudpickle

from odradek import Producer
from odradek.client.producer.ticket import TransactionTicket
from odradek.spark import exactly_once
from odradek.spark.session import build_session
from odradek.spark.transactional import jobs
from odradek.spark.transactional.commits import prepare_commits_topic, read_markers
from odradek.spark.transactional.jobs import PackedBatch
from odradek.spark.transactional.marker import COMMITS_TOPIC, Marker
from odradek.spark.transactional.writer import TransactionalWriter
from tests.exactly_once import recorded
from tests.exactly_once.recorded import RecordedSending, note

__all__ = ["MISTAKES", "STEPS"]

# After each of them a driver can die; `freed` is the last one before Spark's note.
STEPS = ("started", "judged", "packed", "begun", "sent", "marked", "committed", "freed")
MISTAKES = (
    "marker-outside-the-transaction",
    "marker-before-init-producer-id",
    "attempt-1-may-send",
    "epoch-used-twice",
    "commit-before-all-tasks",
)
_LONGEST_S = 400


class _Life:
    """Instruments the sink of this process."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.batch = -1
        self.count = 0  # Batches of this life.
        self.is_done = False
        # Of the send job that is under way.
        self.ticket: TransactionTicket
        self.tasks = 0
        self.found: Marker | None = None

    def reach(self, step: str) -> None:
        at = self.spec.get("at")
        note(self.spec["events"], life=self.spec["life"], event=step, batch=self.batch)
        if at is None or self.is_done or at["step"] != step or at["after"] >= self.count:
            return
        self.is_done = True
        note(self.spec["events"], life=self.spec["life"], event=at["signal"], batch=self.batch)
        os.kill(os.getpid(), signal.SIGKILL if at["signal"] == "kill" else signal.SIGSTOP)

    def wrap(self, name: str, after: str) -> None:
        inner = getattr(TransactionalWriter, name)

        def wrapped(sink: TransactionalWriter, *given: Any) -> Any:
            result = inner(sink, *given)
            self.reach(after)
            return result

        _replace(TransactionalWriter, name, wrapped)

    def instrument(self) -> None:
        spec, life = self.spec, self

        def sending(**given: Any) -> RecordedSending:
            return RecordedSending(
                **given,
                events=spec["events"],
                life=spec["life"],
                trap=spec["trap"],
                may_repeat=spec["mistake"] == "attempt-1-may-send",
            )

        _replace(jobs, "Sending", sending)
        send = PackedBatch.send

        def noted_send(packed: PackedBatch, ticket: TransactionTicket) -> int:
            life.ticket, life.tasks = ticket, packed.writers.count
            note(
                spec["events"], life=spec["life"], event="job",
                producer_id=ticket.producer_id, epoch=ticket.producer_epoch,
            )  # fmt: skip
            return send(packed, ticket)

        _replace(PackedBatch, "send", noted_send)
        self._plant()
        write, commit, mark = (
            TransactionalWriter.write, TransactionalWriter._commit, TransactionalWriter._mark,
        )  # fmt: skip

        def noted_write(sink: TransactionalWriter, frame: Any, batch: int, digest: str) -> Any:
            life.batch = batch
            life.count += 1
            result = write(sink, frame, batch, digest)
            life.reach("freed")
            return result

        def noted_commit(sink: TransactionalWriter) -> None:
            note(
                spec["events"], life=spec["life"], event="commits", tasks=life.tasks,
                producer_id=life.ticket.producer_id, epoch=life.ticket.producer_epoch,
            )  # fmt: skip
            commit(sink)
            life.reach("committed")

        def noted_mark(sink: TransactionalWriter, marker: Marker) -> None:
            mark(sink, marker)
            assert sink._producer is not None
            sink._producer.flush()
            life.reach("marked")

        _replace(TransactionalWriter, "write", noted_write)
        _replace(TransactionalWriter, "_commit", noted_commit)
        _replace(TransactionalWriter, "_mark", noted_mark)
        self.wrap("_start", "started")
        self.wrap("_judge", "judged")
        self.wrap("_pack", "packed")
        inner_send = TransactionalWriter._send

        def stepped_send(sink: TransactionalWriter, packed: PackedBatch) -> int:
            life.reach("begun")
            rows = inner_send(sink, packed)
            life.reach("sent")
            return rows

        _replace(TransactionalWriter, "_send", stepped_send)

    # Mistakes that the checker has to find

    def _plant(self) -> None:
        life = self
        match self.spec["mistake"]:
            case "marker-outside-the-transaction":

                def mark(sink: TransactionalWriter, marker: Marker) -> None:
                    with Producer(bootstrap_servers=life.spec["bootstrap"]) as other:
                        key = sink.identity.key
                        other.send(COMMITS_TOPIC, key=key, value=marker.encode(), partition=0)

                _replace(TransactionalWriter, "_mark", mark)
            case "marker-before-init-producer-id":
                start = TransactionalWriter._start

                def read_first(sink: TransactionalWriter) -> None:
                    prepare_commits_topic(sink._settings)
                    found = read_markers(sink._settings, sink.identity.key)
                    life.reach("read")
                    start(sink)
                    life.found = found.committed

                def known(_: TransactionalWriter) -> Marker | None:
                    return life.found

                _replace(TransactionalWriter, "_start", read_first)
                _replace(TransactionalWriter, "_read_marker", known)
            case "epoch-used-twice":
                tickets: list[TransactionTicket] = []
                begin = Producer.begin_transaction

                def keep(sink: TransactionalWriter, reason: Exception) -> None:
                    del sink, reason  # It aborts nothing.

                def begin_once(producer: Producer) -> None:
                    if not tickets:
                        begin(producer)

                def same(sink: TransactionalWriter, packed: PackedBatch) -> int:
                    assert sink._producer is not None
                    if not tickets:
                        tickets.append(sink._producer.ticket())
                    rows = packed.send(tickets[0])
                    tickets.clear()
                    return rows

                _replace(TransactionalWriter, "_abort", keep)
                _replace(TransactionalWriter, "_send", same)
                _replace(Producer, "begin_transaction", begin_once)
            case "commit-before-all-tasks":

                def early(sink: TransactionalWriter, packed: PackedBatch) -> int:
                    assert sink._producer is not None
                    ticket = sink._producer.ticket()
                    later = threading.Thread(target=packed.send, args=(ticket,), daemon=True)
                    later.start()
                    later.join(0.05)
                    return 0

                _replace(TransactionalWriter, "_send", early)


def _replace(owner: Any, name: str, value: object) -> None:
    """Replaces a part of the sink in this process."""
    setattr(owner, name, value)


def main() -> None:
    """Lives."""
    spec = json.loads(sys.argv[1])
    # Workers of a cluster do not have the tests.
    cloudpickle.register_pickle_by_value(recorded)  # type: ignore[no-untyped-call]  # of Spark
    _Life(spec).instrument()
    session = build_session(
        master=spec["master"],
        checkpoint=spec["checkpoint"],
        quick_start=True,
        keep_class_data=False,
        conf=spec["conf"],
    )
    kafka = {"kafka.bootstrap.servers": spec["bootstrap"]}
    frame = (
        session.readStream.format("odradek")
        .options(**kafka, subscribe=spec["source"], startingOffsets="earliest")
        .options(maxOffsetsPerTrigger=str(spec["batch_rows"]))
        .load()
        .selectExpr(
            "string(int(rand() * 1000)) as key",
            "to_json(struct(int(string(value)) as n, partition as p, offset as o, uuid() as t))"
            " as value",
        )
    )
    options = {
        **kafka,
        "kafka.transaction.timeout.ms": str(spec["transaction_timeout_ms"]),
        "kafka.batch.size": "4096",
    }
    query = (
        exactly_once(
            frame, topic=spec["target"], checkpoint=spec["checkpoint"], name="copy", options=options
        )
        .trigger(availableNow=True)
        .start()
    )
    try:
        ended = query.awaitTermination(_LONGEST_S)
    except Exception as error:
        note(spec["events"], life=spec["life"], event="failed", why=str(error)[:2000])
        raise SystemExit(1) from None
    note(spec["events"], life=spec["life"], event="ended", is_done=ended)
    session.stop()


if __name__ == "__main__":
    main()
