"""What a reader sees of transactions, whoever made the broker."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from odradek import Admin, Consumer, SimpleConsumer
from odradek.client import LATEST
from odradek.model import TopicPartition
from tests.conformance.interop.consumer_checks import WAIT_S, read
from tests.conformance.interop.raw_checks import arrow_rows
from tests.conformance.interop.suite import Check
from tests.support.group_readers import DEADLINE_S, create_topic, new_name, produce

__all__ = ["TRANSACTION_CHECKS"]


class Writer:
    """A transactional producer of another make."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.transactional_id = new_name("tx")
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": self.transactional_id,
                # The broker must not abort what a test on a slow machine keeps open.
                "transaction.timeout.ms": 600_000,
                "log_level": 2,  # Errors are raised.
            }
        )
        self._try(self._producer.init_transactions)
        self._producer.begin_transaction()

    def write(self, *values: bytes) -> None:
        """Batches of its own: they are in the log when this returns."""
        for value in values:
            self._producer.produce(self._topic, value, partition=0)
        assert self._producer.flush(WAIT_S) == 0

    def commit(self, *, end: int) -> None:
        """Commit, and wait until the log ends behind the marker: the answer may come before it."""
        self._try(self._producer.commit_transaction)
        self._until_end(end)

    def abort(self, *, end: int) -> None:
        """Abort; likewise."""
        self._try(self._producer.abort_transaction)
        self._until_end(end)

    def _until_end(self, end: int) -> None:
        tp = TopicPartition(self._topic, 0)
        deadline = time.monotonic() + DEADLINE_S
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            while True:
                found = admin.list_offsets({tp: LATEST}, timeout=WAIT_S)[tp]
                if getattr(found, "offset", None) == end:
                    return
                assert time.monotonic() < deadline, f"expected the log to end at {end}: {found}"
                time.sleep(0.05)

    def _try(self, step: Callable[[float], object]) -> None:
        """As its documentation says: retriable errors are tried again."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                step(WAIT_S)
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return


@contextmanager
def reader(bootstrap: str, tp: TopicPartition, level: str) -> Iterator[Consumer]:
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": level}
    with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.assign([tp])
        yield consumer


def mixed_topic(bootstrap: str) -> tuple[TopicPartition, Writer]:
    """Plain records and three transactions, interleaved: aborted, committed, and still open.

    ====== ==== ======== ========= ======== ========= ======= ======= ====== ====== ===== ======
    offset 0    1        2         3        4         5       6       7      8      9     10
    value  p0   abort-1  commit-1  abort-2  commit-2  marker  marker  p1     open-1 p2    open-2
    ====== ==== ======== ========= ======== ========= ======= ======= ====== ====== ===== ======
    """
    topic = create_topic(bootstrap, 1)
    produce(bootstrap, topic, [b"p0"], partitions=1)
    aborted, committed = Writer(bootstrap, topic), Writer(bootstrap, topic)
    aborted.write(b"abort-1")
    committed.write(b"commit-1")
    aborted.write(b"abort-2")
    committed.write(b"commit-2")
    committed.commit(end=6)
    aborted.abort(end=7)
    produce(bootstrap, topic, [b"p1"], partitions=1)
    still_open = Writer(bootstrap, topic)
    still_open.write(b"open-1")
    produce(bootstrap, topic, [b"p2"], partitions=1)
    still_open.write(b"open-2")
    return TopicPartition(topic, 0), still_open


# What may be read while the last transaction is open, and afterwards.
STABLE = [(0, b"p0"), (2, b"commit-1"), (4, b"commit-2"), (7, b"p1")]
AT_LAST = [*STABLE, (8, b"open-1"), (9, b"p2"), (10, b"open-2")]
STABLE_END = 8
ALL = [
    (0, b"p0"), (1, b"abort-1"), (2, b"commit-1"), (3, b"abort-2"), (4, b"commit-2"), (7, b"p1"),
    (8, b"open-1"), (9, b"p2"), (10, b"open-2"),
]  # fmt: skip


def until_position(consumer: Consumer, tp: TopicPartition, offset: int) -> None:
    """Until it stands at the end of what it may read; records on the way there are too many."""
    deadline = time.monotonic() + DEADLINE_S
    while consumer.position(tp, WAIT_S) < offset:
        assert time.monotonic() < deadline, consumer.position(tp, WAIT_S)
        assert consumer.poll(0.2) == []


def check_committed_readers_see_no_aborted_and_no_open_records(bootstrap: str) -> None:
    """09:CL-25, 09:CL-27: `poll`, `poll_arrow` and the ends."""
    pytest.importorskip("pyarrow")
    tp, still_open = mixed_topic(bootstrap)
    with (
        reader(bootstrap, tp, "read_committed") as polled,
        reader(bootstrap, tp, "read_committed") as columns,
        reader(bootstrap, tp, "read_uncommitted") as dirty,
    ):
        assert [(one.offset, one.value) for one in read(dirty, len(ALL))] == ALL
        assert dirty.end_offsets([tp], WAIT_S) == {tp: 11}
        assert polled.end_offsets([tp], WAIT_S) == {tp: STABLE_END}
        records = [(one.offset, one.value) for one in read(polled, len(STABLE))]
        rows = arrow_rows(columns, len(STABLE), "offset", "value")
        assert records == rows == STABLE
        for consumer in (polled, columns):
            until_position(consumer, tp, STABLE_END)
            assert consumer.poll(0.3) == []
            assert consumer.lag(tp) == 0
        still_open.commit(end=12)
        count = len(AT_LAST) - len(STABLE)
        records += [(one.offset, one.value) for one in read(polled, count)]
        rows += arrow_rows(columns, count, "offset", "value")
        assert records == rows == AT_LAST
        # Past the marker of the last commit, which nobody is given.
        until_position(polled, tp, 12)
        assert polled.end_offsets([tp], WAIT_S) == {tp: 12}


def check_raw_batches_tell_what_was_aborted(bootstrap: str) -> None:
    """09:CL-25, 09:CL-29."""
    tp, still_open = mixed_topic(bootstrap)
    settings: dict[str, Any] = {"isolation_level": "read_committed"}
    with SimpleConsumer(bootstrap_servers=bootstrap, **settings) as simple:

        def values() -> bytes:
            return b"".join(
                bytes(raw.columns(is_read_committed=True).value.data)
                for raw in simple.fetch_batches(tp.topic, 0, 0, timeout=WAIT_S)
            )

        found = simple.fetch({tp: 0}, timeout=WAIT_S)[tp]
        assert found.last_stable_offset == STABLE_END
        ((_producer_id, first_offset),) = found.aborted
        assert first_offset == 1
        assert simple.earliest_or_latest_offset(tp, -1, WAIT_S) == STABLE_END
        assert values() == b"".join(value for _, value in STABLE)
        still_open.abort(end=12)
        assert values() == b"".join(value for _, value in [*STABLE, (9, b"p2")])


def check_a_group_commits_positions_behind_markers(bootstrap: str) -> None:
    """09:CL-25: a committed position is past the marker, so nothing is left to lag behind."""
    tp, still_open = mixed_topic(bootstrap)
    still_open.abort(end=12)
    group = new_name("g")
    settings: dict[str, Any] = {
        "group_id": group,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
    }
    with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.subscribe([tp.topic])
        wanted = [*STABLE, (9, b"p2")]
        assert [(one.offset, one.value) for one in read(consumer, len(wanted))] == wanted
        until_position(consumer, tp, 12)
        consumer.commit_sync(timeout=WAIT_S)
        committed = consumer.committed([tp], WAIT_S)[tp]
        assert committed is not None
        assert committed.offset == 12


TRANSACTION_CHECKS: tuple[Check, ...] = (
    check_committed_readers_see_no_aborted_and_no_open_records,
    check_raw_batches_tell_what_was_aborted,
    check_a_group_commits_positions_behind_markers,
)
