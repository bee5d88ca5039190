"""Records that wait for their batch: both forms say yes and no alike."""

import threading
from typing import Any

import pytest

from odradek.records.gathering import IS_ATOMIC, RECORD_OVERHEAD, Gathering, GatheringPure

FORMS = [
    pytest.param(GatheringPure, id="pure"),
    pytest.param(
        Gathering,
        id="compiled",
        marks=pytest.mark.skipif(not IS_ATOMIC, reason="not built"),
    ),
]


@pytest.mark.parametrize("form", FORMS)
def test_records_are_added_until_they_do_not_fit(form: Any) -> None:
    records = form(61, 61 + 2 * (RECORD_OVERHEAD + 3))
    assert records.add(5, b"k", b"vv", ()) == 0
    assert records.add(6, None, b"vvvv", ()) == -1  # One byte too many.
    assert records.add(6, b"kkk", None, ()) == 1
    assert records.add(7, None, None, ()) == -1
    assert records.records == [(5, b"k", b"vv", ()), (6, b"kkk", None, ())]
    assert records.size == records.limit
    assert records.close() == 2
    records.clear()
    assert records.records == []


@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_usual_needs_its_size_told(form: Any) -> None:
    records = form(0, 1_000)
    headers = (("h", b"1"),)
    assert records.add(5, None, b"v", headers) == -1
    assert records.add(5, bytearray(b"k"), b"v", ()) == -1
    assert records.add(5, None, "v", ()) == -1
    assert records.add(5, None, b"v", headers, 40) == 0
    assert (records.size, records.records) == (40, [(5, None, b"v", headers)])


@pytest.mark.parametrize("form", FORMS)
def test_a_closed_one_takes_nothing(form: Any) -> None:
    records = form(0, 1_000)
    assert records.add(1, None, b"a", ()) == 0
    assert not records.is_closed
    assert records.close() == 1
    assert records.is_closed
    assert records.add(2, None, b"b", ()) == -1
    assert len(records.records) == 1


@pytest.mark.skipif(not IS_ATOMIC, reason="only the compiled form goes without a lock")
def test_threads_may_add_while_another_closes() -> None:
    """Every place that was told holds the record it was told for, and no record comes late."""
    for _ in range(20):
        records = Gathering(0, 10**9)
        told: list[list[tuple[int, bytes]]] = [[] for _ in range(3)]
        start = threading.Barrier(4)

        def add(worker: int, records: Any = records, told: Any = told, start: Any = start) -> None:
            start.wait(60)
            for number in range(10_000):
                value = b"%d:%d" % (worker, number)
                index = records.add(number, None, value, ())
                if index < 0:
                    return
                told[worker].append((index, value))

        threads = [threading.Thread(target=add, args=(worker,)) for worker in range(3)]
        for thread in threads:
            thread.start()
        start.wait(60)
        count = records.close()
        for thread in threads:
            thread.join(60)

        assert count == len(records.records) == sum(map(len, told))
        for some in told:
            assert all(records.records[index][2] == value for index, value in some)
