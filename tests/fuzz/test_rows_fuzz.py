"""Any buffers give rows of a batch or an error, and nothing outside of them is read."""

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.errors import ApiError
from odradek.records import rows, rows_pure
from odradek.records.gathering import IS_ATOMIC, Gathering
from odradek.records.gathering_pure import GatheringPure
from odradek.records.rows import BinaryInput, HeadersInput, NumberInput

FUZZ = settings(deadline=None, max_examples=200)
needs_rows = pytest.mark.skipif(not rows.IS_COMPILED, reason="_rows is not built: setup.py")

SMALL = st.integers(-2, 12)
START = st.integers(-1, 3)
VALIDITY = st.none() | st.binary(max_size=2)
# Offsets in order most of the time, so that rows come far.
OFFSETS = st.lists(st.integers(0, 12), max_size=9).map(sorted) | st.lists(SMALL, max_size=9)
INT32S = OFFSETS.map(lambda some: array("i", some).tobytes())
INT64S = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9).map(
    lambda some: array("q", some).tobytes()
)
BINARY = st.builds(BinaryInput, START, VALIDITY, INT32S, st.binary(max_size=12))
HEADERS = st.builds(HeadersInput, START, VALIDITY, INT32S, st.integers(-1, 5), BINARY, BINARY)
COLUMNS = st.fixed_dictionaries(
    {},
    optional={
        "key": BINARY,
        "value": BINARY,
        "headers": HEADERS,
        "timestamps": st.builds(NumberInput, START, VALIDITY, INT64S),
        "timestamp": st.integers(0, 2**63 - 1),
    },
)
NUMBERS = st.none() | st.lists(st.integers(-1, 6), max_size=6).map(
    lambda some: array("i", some).tobytes()
)


def outcome(call: Any, *arguments: Any, **named: Any) -> Any:
    """What it gives, or the kind of its error: which of several is found first may differ."""
    try:
        return call(*arguments, **named)
    except (ValueError, ApiError) as error:
        return (type(error),)


@needs_rows
@given(
    count=st.integers(0, 6),
    columns=COLUMNS,
    numbers=NUMBERS,
    asked=st.none() | st.builds(NumberInput, START, VALIDITY, INT32S),
    ignores_keys=st.booleans(),
    first=st.integers(-1, 5),
    end=st.integers(0, 7),
    max_bytes=st.integers(0, 200),
)
@FUZZ
def test_both_twins_make_the_same_of_any_buffers(
    count: int,
    columns: dict[str, Any],
    numbers: bytes | None,
    asked: Any,
    ignores_keys: bool,
    first: int,
    end: int,
    max_bytes: int,
) -> None:
    pure = outcome(rows_pure.Rows, count, **columns)
    compiled = outcome(rows.Rows, count, **columns)
    if isinstance(pure, tuple):
        assert compiled == pure
        return
    assert outcome(compiled.largest) == outcome(pure.largest)
    choose = {"numbers": numbers, "partitions": asked, "ignores_keys": ignores_keys}
    chosen = outcome(pure.choose_partitions, 3, **choose)
    assert outcome(compiled.choose_partitions, 3, **choose) == chosen
    if isinstance(chosen, bytearray):
        undecided = outcome(pure.undecided_bytes, chosen, numbers)
        assert outcome(compiled.undecided_bytes, chosen, numbers) == undecided
        other = bytearray(chosen)
        shares = [(2, 20), (0, 10), (1, 1)]
        assert outcome(compiled.spread, other, shares, numbers) == outcome(
            pure.spread, chosen, shares, numbers
        )
        if isinstance(undecided, int):
            assert other == chosen
    assert outcome(compiled.encode, numbers, first, end, max_bytes, 5) == outcome(
        pure.encode, numbers, first, end, max_bytes, 5
    )


@needs_rows
@given(
    groups=st.lists(st.integers(-2, 5), max_size=12),
    numbers=NUMBERS,
    group_count=st.integers(1, 5),
)
@FUZZ
def test_both_twins_group_alike(groups: list[int], numbers: bytes | None, group_count: int) -> None:
    given_groups = array("i", groups).tobytes()
    assert outcome(rows.group_rows, given_groups, group_count, numbers) == outcome(
        rows_pure.group_rows, given_groups, group_count, numbers
    )


FIELD = st.none() | st.binary(max_size=200) | st.sampled_from(["text", bytearray(b"x"), 7])
HEADER_LISTS = st.lists(
    st.tuples(st.text(max_size=3) | st.just(b"k"), FIELD)
    | st.sampled_from([(), ("k",), ["k", b"v"]]),
    max_size=3,
)


@pytest.mark.skipif(not IS_ATOMIC, reason="_gathering is not built: setup.py")
@given(
    records=st.lists(
        st.tuples(
            st.integers(-1, 2**63) | st.none(),
            FIELD,
            FIELD,
            st.just(()) | HEADER_LISTS.map(tuple) | st.just([]),
        ),
        max_size=8,
    ),
    limit=st.integers(0, 600),
)
@FUZZ
def test_both_twins_gather_the_same_of_any_records(records: list[Any], limit: int) -> None:
    pure, compiled = GatheringPure(61, limit), Gathering(61, limit)
    for number, record in enumerate(records):
        assert outcome(compiled.add, *record) == outcome(pure.add, *record)
        if number == 4:
            pure.extend(limit + 100)
            compiled.extend(limit + 100)
    assert compiled.close() == pure.close()
    for name in ("size", "limit", "record_count", "base_timestamp", "max_timestamp", "is_closed"):
        assert getattr(compiled, name) == getattr(pure, name)
    assert compiled.take() == pure.take()
