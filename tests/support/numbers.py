"""Numbers that go through a pipeline while faults happen, and what each sink has to hold of them.

Every row carries the partition and the offset of its record, so that a row too many is seen even if
a record were in the topic twice.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from odradek import Admin, Producer
from odradek.client.admin import NewTopic
from tests.support.topic_records import records_of

__all__ = [
    "Numbers",
    "Row",
    "copied_rows",
    "delta_rows",
    "differences",
    "make_topics",
    "row_of",
    "sums",
    "written_rows",
]

Row = tuple[int, int, int]  # Partition, offset, id.

_TIMEOUT_S = 600
_PARTITIONS = 4
_PER_SECOND = 200
_BUCKETS = 7


def make_topics(bootstrap: str, *names: str) -> None:
    """Makes the topics that numbers are written to and copied to."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        made = admin.create_topics(
            [NewTopic(name=one, partition_count=_PARTITIONS) for one in names]
        )
    assert not any(isinstance(one, Exception) for one in made.values()), made


class Numbers(threading.Thread):
    """Writes 0, 1, 2 and so on to a topic until it is closed; all of them arrive."""

    def __init__(self, address: str, topic: str = "numbers") -> None:
        super().__init__(name="numbers", daemon=True)
        self._address = address
        self._topic = topic
        self._closed = threading.Event()
        self._error: BaseException | None = None
        self._count = 0

    def run(self) -> None:
        try:
            # A broker that is down is waited for, however long it takes to be up again.
            with Producer(
                bootstrap_servers=self._address,
                delivery_timeout_ms=1_000 * _TIMEOUT_S,
                max_block_ms=1_000 * _TIMEOUT_S,
                linger_ms=20,
            ) as producer:
                deliveries = []
                while not self._closed.wait(10 / _PER_SECOND):
                    for number in range(self._count, self._count + 10):
                        value = json.dumps({"id": number}).encode()
                        sent = producer.send(self._topic, value, partition=number % _PARTITIONS)
                        deliveries.append(sent)
                    self._count += 10
                producer.flush()
                for sent in deliveries:
                    sent.result()
        except BaseException as error:  # The test is told.
            self._error = error

    def close(self) -> int:
        """Ends it; returns how many numbers there are."""
        self._closed.set()
        self.join(_TIMEOUT_S)
        assert not self.is_alive(), "the numbers do not arrive"
        if self._error is not None:
            raise self._error
        return self._count

    def give_up(self) -> None:
        """Ends it, whatever has arrived."""
        self._closed.set()
        self.join(10)


def written_rows(bootstrap: str, count: int, topic: str = "numbers") -> list[Row]:
    """The rows that there have to be: every number is in the topic, once."""
    records = records_of(bootstrap, topic, range(_PARTITIONS))
    rows = [(one.partition, one.offset, json.loads(one.value or b"")["id"]) for one in records]
    assert sorted(number for _, _, number in rows) == list(range(count))
    return rows


def copied_rows(bootstrap: str, topic: str = "copy") -> list[Row]:
    """The rows in a topic that they were copied to."""
    records = records_of(bootstrap, topic, range(_PARTITIONS))
    return [row_of(json.loads(record.value or b"")) for record in records]


def delta_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table."""
    # Arrow's threads outlive the reading, and abort a process that ends just then.
    table = DeltaTable(str(path)).to_pyarrow_dataset().to_table(use_threads=False)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def row_of(fields: dict[str, Any]) -> Row:
    return fields["part"], fields["place"], fields["id"]


def sums(rows: Iterable[Row]) -> dict[int, tuple[int, int]]:
    """How many numbers each bucket has, and their sum."""
    buckets: dict[int, list[int]] = {}
    for _, _, number in rows:
        buckets.setdefault(number % _BUCKETS, []).append(number)
    return {bucket: (len(numbers), sum(numbers)) for bucket, numbers in buckets.items()}


def differences(found: Iterable[Row], expected: Iterable[Row]) -> dict[str, list[Row]]:
    """What is missing and what is there too often, a few of each."""
    there, wanted = Counter(found), Counter(expected)
    lists = {"missing": sorted(wanted - there), "too many": sorted(there - wanted)}
    return {what: rows[:5] for what, rows in lists.items() if rows}
