"""Rows of columns to batches (09:CL-17); every test runs on both twins."""

from array import array
from random import Random
from typing import Any

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.records import rows as rows_module
from odradek.records import rows_pure
from odradek.records.batch import HEADER_SIZE
from odradek.records.codec import encode_records
from odradek.records.rows import IS_COMPILED, BinaryInput, HeadersInput, NumberInput, murmur2

TWINS = [
    pytest.param(rows_pure, id="pure"),
    pytest.param(
        rows_module,
        id="compiled",
        marks=pytest.mark.skipif(not IS_COMPILED, reason="_rows is not built: setup.py"),
    ),
]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def bits(valid: list[bool]) -> bytes:
    number = sum(1 << index for index, one in enumerate(valid) if one)
    return number.to_bytes((len(valid) + 7) // 8, "little")


def binary(values: list[bytes | None], start: int = 0) -> BinaryInput:
    """A column in Arrow's layout, with `start` entries that are not meant in front."""
    entries = [b"not meant"] * start + values
    offsets = array("i", [0])
    for entry in entries:
        offsets.append(offsets[-1] + len(entry or b""))
    has_nulls = None in values
    return BinaryInput(
        start,
        bits([entry is not None for entry in entries]) if has_nulls else None,
        offsets.tobytes(),
        b"".join(entry or b"" for entry in entries),
    )


def numbers(code: str, values: list[int | None], start: int = 0) -> NumberInput:
    entries = [77] * start + values
    valid = [entry is not None for entry in entries]
    data = array(code, [entry or 0 for entry in entries])
    return NumberInput(start, bits(valid) if not all(valid) else None, data.tobytes())


def headers(values: list[Any], start: int = 0) -> HeadersInput:
    entries = [[]] * start + values
    offsets = array("i", [0])
    pairs: list[Any] = []
    for entry in entries:
        pairs += entry or []
        offsets.append(len(pairs))
    keys = [None if key is None else key.encode() for key, _ in pairs]
    return HeadersInput(
        start,
        bits([entry is not None for entry in entries]) if None in values else None,
        offsets.tobytes(),
        len(pairs),
        binary(keys, start),
        binary([value for _, value in pairs], start),
    )


def indexes(*some: int) -> bytes:
    return array("i", some).tobytes()


def listed(buffer: Any) -> list[int]:
    return list(memoryview(buffer).cast("B").cast("i"))


@pytest.mark.parametrize("start", [0, 1, 13])
def test_rows_become_the_records_of_a_batch(twin: Any, start: int) -> None:
    """09:CL-17: the bytes are those of the records one by one."""
    rng = Random(start)
    records = [
        (
            rng.randrange(2**40),
            rng.choice([None, b"", rng.randbytes(rng.randrange(40))]),
            rng.choice([None, b"", rng.randbytes(rng.randrange(300))]),
            rng.choice([(), (), (("a", b"1"), ("ü", None), ("", b""))]),
        )
        for _ in range(200)
    ]
    given = [None if rng.random() < 0.1 else record[0] for record in records]
    expected = [
        (5 if time is None else time, *record[1:])
        for time, record in zip(given, records, strict=True)
    ]
    rows = twin.Rows(
        200,
        key=binary([record[1] for record in records], start),
        value=binary([record[2] for record in records], start),
        headers=headers([list(record[3]) or None for record in records], start),
        timestamps=numbers("q", given, start),
        timestamp=5,
    )

    encoded, count, base, most = rows.encode(None, 0, 200, 2**30, HEADER_SIZE)
    assert (encoded, most) == encode_records(expected, None, None, HEADER_SIZE)
    assert (count, base) == (200, expected[0][0])
    some = [150, 3, 3, 199, 0]
    encoded, count, base, most = rows.encode(indexes(*some), 1, 4, 2**30, 0)
    assert (encoded, most) == encode_records([expected[index] for index in some[1:4]])
    assert (count, base) == (3, expected[3][0])


def test_a_batch_ends_with_the_last_row_that_fits(twin: Any) -> None:
    rows = twin.Rows(10, value=binary([b"x" * 50] * 10), timestamp=9)
    one_bytes = len(encode_records([(9, None, b"x" * 50, ())])[0])
    limit = HEADER_SIZE + 3 * one_bytes
    assert rows.encode(None, 0, 10, limit, HEADER_SIZE)[1] == 3
    assert len(rows.encode(None, 0, 10, limit, HEADER_SIZE)[0]) == limit
    assert rows.encode(None, 0, 10, limit - 1, HEADER_SIZE)[1] == 2
    assert rows.encode(None, 8, 10, limit, HEADER_SIZE)[1] == 2
    assert rows.encode(None, 0, 10, 0, HEADER_SIZE)[1] == 1  # One in any case.


def test_the_largest_row_is_told_with_its_size(twin: Any) -> None:
    rows = twin.Rows(3, value=binary([b"", b"x" * 70, b"x"]), key=binary([b"k" * 90, None, None]))
    alone = encode_records([(0, None, b"x" * 70, ())])[0]
    assert rows.largest() == (0, len(encode_records([(0, b"k" * 90, b"", ())])[0]))
    assert twin.Rows(2, value=binary([b"", b"x" * 70])).largest() == (1, len(alone))
    assert twin.Rows(0, value=binary([])).largest() == (-1, 0)


def test_a_row_goes_where_it_says_or_its_key_or_nowhere(twin: Any) -> None:
    """09:CL-11, 09:CL-17."""
    keys = [b"k%d" % number for number in range(50)]
    rows = twin.Rows(52, key=binary([*keys, None, b""], 3))
    by_key = [(murmur2(key) & 0x7FFF_FFFF) % 7 for key in keys]
    empty = (murmur2(b"") & 0x7FFF_FFFF) % 7
    assert listed(rows.choose_partitions(7)) == [*by_key, -1, empty]
    asked = numbers("i", [6, None, *[None] * 49, 0], 9)
    assert listed(rows.choose_partitions(7, partitions=asked)) == [6, *by_key[1:], -1, 0]
    some = rows.choose_partitions(7, numbers=indexes(51, 50, 2), partitions=asked)
    assert listed(some) == [0, -1, by_key[2]]
    ignoring = rows.choose_partitions(7, partitions=asked, ignores_keys=True)
    assert listed(ignoring) == [6, *[-1] * 50, 0]
    assert listed(twin.Rows(2).choose_partitions(7)) == [-1, -1]


def test_rows_that_nothing_decides_are_spread_in_shares(twin: Any) -> None:
    """09:CL-12, 09:CL-17."""
    rows = twin.Rows(8, value=binary([b"x" * 50] * 8))
    one_bytes = len(encode_records([(0, None, b"x" * 50, ())])[0])
    partitions = bytearray(indexes(-1, 5, -1, -1, -1, 5, -1, -1))
    assert rows.undecided_bytes(partitions) == 6 * one_bytes
    shares = [(3, 2 * one_bytes), (1, one_bytes + 1), (3, 1), (0, 1)]
    rows.spread(partitions, shares)
    # A share takes what fits, at least one row, and the last one takes the rest.
    assert listed(partitions) == [3, 5, 3, 1, 3, 5, 0, 0]
    assert rows.undecided_bytes(partitions) == 0
    some = bytearray(indexes(-1, 2, -1))
    assert rows.undecided_bytes(some, indexes(7, 6, 0)) == 2 * one_bytes
    rows.spread(some, [(1, 1)], indexes(7, 6, 0))
    assert listed(some) == [1, 2, 1]
    for wrong in (bytearray(indexes(-1)), bytearray(indexes(*[-1] * 9))):
        with pytest.raises(ValueError, match="column partition"):
            rows.spread(wrong, [(1, 1)])
        with pytest.raises(ValueError, match="column partition"):
            rows.undecided_bytes(wrong)
    with pytest.raises(ValueError, match="no shares"):
        rows.spread(bytearray(indexes(*[-1] * 8)), [])


@pytest.mark.parametrize("partition", [-1, 7, 2**31 - 1, -(2**31)])
def test_a_partition_that_is_not_there_is_refused(twin: Any, partition: int) -> None:
    rows = twin.Rows(2, value=binary([b"", b""]))
    with pytest.raises(ApiError, match=f"row 1 is for partition {partition}, but") as error:
        rows.choose_partitions(7, partitions=numbers("i", [0, partition]))
    assert error.value.code is ErrorCode.INVALID_PARTITIONS


def test_rows_are_grouped_and_keep_their_order(twin: Any) -> None:
    """09:CL-17: order is kept within a partition."""
    ordered, ends = twin.group_rows(indexes(2, 0, 3, 2, 0, 1), 4)
    assert (listed(ordered), list(ends)) == ([1, 4, 5, 0, 3, 2], [2, 3, 5, 6])
    ordered, ends = twin.group_rows(indexes(1, 0, 1), 2, indexes(30, 20, 10))
    assert (listed(ordered), list(ends)) == ([20, 30, 10], [1, 3])
    assert twin.group_rows(b"", 3) == (b"", [0, 0, 0])
    for group in (3, -1):
        with pytest.raises(ValueError, match="group"):
            twin.group_rows(indexes(0, group), 3)


@pytest.mark.parametrize(
    "offsets", [(5, 0, 1), (0, -1, 1), (0, 1, 99), (3, 2, 2)], ids=["back", "below", "behind", "x"]
)
def test_offsets_that_lead_astray_are_refused(twin: Any, offsets: tuple[int, ...]) -> None:
    rows = twin.Rows(2, key=BinaryInput(0, None, indexes(*offsets), b"abcd"))
    with pytest.raises(ValueError, match=r"row [01]: its offsets"):
        rows.largest()
    with pytest.raises(ValueError, match=r"row [01]: its offsets"):
        rows.encode(None, 0, 2, 1_000, 0)
    with pytest.raises(ValueError, match=r"row [01]: its offsets"):
        rows.choose_partitions(3)


def test_headers_that_cannot_be_are_refused(twin: Any) -> None:
    rows = twin.Rows(2, headers=headers([[("a", b"1")], [("b", b"2"), (None, b"3")]]))
    with pytest.raises(ValueError, match="row 1: a header has no key"):
        rows.largest()
    good = headers([[("a", b"1")]])
    for offsets in ((0, 2), (-1, 1), (1, 0)):
        bad = twin.Rows(1, headers=good._replace(offsets=indexes(*offsets)))
        with pytest.raises(ValueError, match="row 0: its offsets"):
            bad.largest()


@pytest.mark.parametrize(
    "columns",
    [
        {"key": BinaryInput(0, None, indexes(0, 0, 0), b"")},
        {"value": BinaryInput(1, None, indexes(0, 0, 0, 0), b"")},
        {"key": BinaryInput(6, bits([True] * 8), indexes(*[0] * 10), b"")},
        {"timestamps": NumberInput(0, None, b"x" * 23)},
        {"timestamps": NumberInput(1, None, b"x" * 24)},
        {"headers": headers([[("a", b"")]] * 3)._replace(entry_count=4)},
        {"headers": headers([[("a", b"")]] * 2)},
        {"value": binary([b""] * 3)._replace(start=-1)},
        {"headers": headers([[]] * 3)._replace(start=-1)},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_buffers_that_are_too_short_are_refused(twin: Any, columns: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"column (key|value|timestamp|headers): "):
        twin.Rows(3, **columns)


def test_rows_that_are_not_there_are_refused(twin: Any) -> None:
    rows = twin.Rows(3, value=binary([b""] * 3))
    for some in (indexes(0, 3), indexes(-1, 0)):
        with pytest.raises(ValueError, match="row"):
            rows.encode(some, 0, 2, 1_000, 0)
        with pytest.raises(ValueError, match="row"):
            rows.choose_partitions(2, numbers=some)
    for first, end in ((0, 4), (-1, 2), (2, 2), (3, 1)):
        with pytest.raises(ValueError, match="rows"):
            rows.encode(None, first, end, 1_000, 0)


@pytest.mark.skipif(not IS_COMPILED, reason="_rows is not built: setup.py")
def test_both_murmur2_agree() -> None:
    """09:CL-11."""
    rng = Random(2)
    for length in range(200):
        key = rng.randbytes(length)
        assert murmur2(key) == rows_pure.murmur2_pure(key)
