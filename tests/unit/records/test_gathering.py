"""Records on their way into a batch: both forms take the same, and make the same bytes of it."""

import threading
from itertools import pairwise
from typing import Any

import pytest

from odradek.records.batch import HEADER_SIZE
from odradek.records.builder import seal_batch
from odradek.records.codec import encode_records
from odradek.records.gathering import IS_ATOMIC, Gathering
from odradek.records.gathering_pure import GatheringPure
from odradek.records.record import read_records

FORMS = [
    pytest.param(GatheringPure, id="pure"),
    pytest.param(
        Gathering,
        id="compiled",
        marks=pytest.mark.skipif(not IS_ATOMIC, reason="not built"),
    ),
]
MAX_INT64 = 2**63 - 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "records",
    [
        [(5, b"k", b"v", ())],
        [(0, None, None, ()), (0, b"", b"", ())],
        [(1_700_000_000_000 + n, b"k%d" % n, b"x" * (n * 7), ()) for n in range(300)],
        [(MAX_INT64, b"k", None, ()), (0, None, b"v", ()), (MAX_INT64 - 1, b"", b"w", ())],
        [(7, b"k", b"v", (("a", b"1"), ("a", None), ("ü", b""), ("\udcff", b"x" * 200)))] * 70,
        [(9, None, b"x" * 100_000, ()), (8, b"y" * 20_000, b"z", (("h", b"1"),))],
    ],
)
def test_records_are_encoded_as_a_whole_batch_would_be(form: Any, records: list[Any]) -> None:
    gathered = form(HEADER_SIZE, 2**30)
    for index, record in enumerate(records):
        assert gathered.add(*record) == index
    assert gathered.close() == gathered.record_count == len(records)
    expected, max_timestamp = encode_records(records, None, None, HEADER_SIZE)

    assert gathered.size == len(expected)
    assert gathered.base_timestamp == records[0][0]
    assert gathered.max_timestamp == max_timestamp
    encoded = gathered.take()
    assert encoded == expected
    sealed = seal_batch(
        encoded,
        record_count=len(records),
        base_timestamp=gathered.base_timestamp,
        max_timestamp=gathered.max_timestamp,
    )
    assert [record[1:] for record in read_records(sealed)] == records
    assert gathered.take() == b""


@pytest.mark.parametrize("form", FORMS)
def test_records_are_added_until_they_do_not_fit(form: Any) -> None:
    one_bytes = len(encode_records([(5, b"k", b"vv", ())])[0])
    records = form(HEADER_SIZE, HEADER_SIZE + 2 * one_bytes)
    assert records.add(5, b"k", b"vv", ()) == 0
    assert records.add(5, None, b"vvvv", ()) == -1  # One byte too many.
    assert records.add(5, b"kkk", b"", ()) == 1
    assert records.size == records.limit
    assert records.add(5, None, None, ()) == -1
    records.extend(records.limit + one_bytes)
    assert records.add(5, b"vv", b"k", ()) == 2
    assert records.add(5, None, None, ()) == -1
    assert records.close() == 3
    assert len(records.take()) == HEADER_SIZE + 3 * one_bytes


@pytest.mark.parametrize("form", FORMS)
def test_the_first_record_is_taken_whatever_its_size(form: Any) -> None:
    records = form(HEADER_SIZE, 100)
    assert records.add(5, None, b"x" * 1_000) == 0
    assert records.add(5, None, None) == -1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "record",
    [
        (-1, None, b"v", ()),
        (2**63, None, b"v", ()),
        ("5", None, b"v", ()),
        (True, None, b"v", ()),
        (5, bytearray(b"k"), b"v", ()),
        (5, None, "v", ()),
        (5, None, b"v", [("h", b"1")]),
        (5, None, b"v", (("h",),)),
        (5, None, b"v", (["h", b"1"],)),
        (5, None, b"v", ((b"h", b"1"),)),
        (5, None, b"v", (("h", "1"),)),
        (5, None, b"v", None),
    ],
    ids=repr,
)
def test_what_is_not_plain_is_not_taken(form: Any, record: Any) -> None:
    records = form(0, 1_000)
    assert records.add(*record) == -1
    assert (records.size, records.record_count) == (0, 0)
    assert records.add(5, None, b"v") == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_header_key_that_is_no_text_is_an_error(form: Any) -> None:
    records = form(0, 1_000)
    with pytest.raises(UnicodeEncodeError):
        records.add(5, None, b"v", (("\ud800", b"1"),))
    assert records.record_count == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_closed_one_takes_nothing(form: Any) -> None:
    records = form(0, 1_000)
    with pytest.raises(AssertionError):
        records.take()
    assert records.add(1, None, b"a", ()) == 0
    assert not records.is_closed
    assert records.close() == 1
    assert records.is_closed
    assert records.add(2, None, b"b", ()) == -1
    assert records.record_count == 1


@pytest.mark.skipif(not IS_ATOMIC, reason="only the compiled form goes without a lock")
def test_threads_may_add_while_another_closes() -> None:
    """Every place that was told holds the record it was told for, and no record comes late."""
    for _ in range(20):
        records = Gathering(HEADER_SIZE, 10**9)
        told: list[list[tuple[int, bytes]]] = [[] for _ in range(3)]
        start = threading.Barrier(4)

        def add(worker: int, records: Any = records, told: Any = told, start: Any = start) -> None:
            start.wait(60)
            for number in range(3_000):
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

        assert count == records.record_count == sum(map(len, told))
        if not count:
            continue
        sealed = seal_batch(
            records.take(),
            record_count=count,
            base_timestamp=records.base_timestamp,
            max_timestamp=records.max_timestamp,
        )
        values = [record.value for record in read_records(sealed)]
        for some in told:
            assert all(values[index] == value for index, value in some)
            assert all(one[0] < other[0] for one, other in pairwise(some))
