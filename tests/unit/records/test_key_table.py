"""The table of keys and what it leaves of a region; compiled and pure give the same answers."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from odradek.errors import InvalidRecordError
from odradek.records import key_table
from odradek.records.builder import encode_record
from odradek.records.key_table_pure import KeyTablePure, shift_timestamps_pure
from odradek.records.record import Headers

SECRET = bytes(range(16))

TABLES = [pytest.param(KeyTablePure, id="pure")]
SHIFTS = [pytest.param(shift_timestamps_pure, id="pure")]
if key_table.IS_COMPILED:
    TABLES.append(pytest.param(key_table.KeyTable, id="compiled"))
    SHIFTS.append(pytest.param(key_table.shift_timestamps, id="compiled"))

Table = Callable[[int, float, bytes], Any]
Shift = Callable[[bytes, int, int], bytes]
HEADERS: Headers = (("h", b"1"), ("n", None))


def region(*records: tuple[bytes | None, bytes | None], headers: Headers = ()) -> bytes:
    """Records with offset deltas 0, 1, 2, … and as many milliseconds."""
    return b"".join(
        encode_record(index, index, key, value, headers)
        for index, (key, value) in enumerate(records)
    )


@pytest.mark.parametrize("table_type", TABLES)
def test_a_later_offset_replaces_an_earlier_one(table_type: Table) -> None:
    table = table_type(100, 0.9, SECRET)
    assert table.put(region((b"a", b"1"), (b"b", b"2"), (b"a", b"3")), 3, 100, 0)
    assert (table.get(b"a"), table.get(b"b"), table.get(b"c")) == (102, 101, -1)
    assert table.put(region((b"b", b"9")), 1, 7, 0), "an earlier one changes nothing"
    assert table.get(b"b") == 101
    assert len(table) == 2


@pytest.mark.parametrize("table_type", TABLES)
def test_offset_zero_and_the_empty_key_are_known(table_type: Table) -> None:
    table = table_type(10, 0.9, SECRET)
    assert table.put(region((b"", b"1")), 1, 0, 0)
    assert table.get(b"") == 0
    assert table.get(b"\0") == -1


@pytest.mark.parametrize("table_type", TABLES)
def test_records_without_a_key_or_below_the_first_offset_are_passed_over(table_type: Table) -> None:
    table = table_type(10, 0.9, SECRET)
    assert table.put(region((b"a", b"1"), (None, b"2"), (b"c", b"3")), 3, 50, 51)
    assert (len(table), table.get(b"a"), table.get(b"c")) == (1, -1, 52)


@pytest.mark.parametrize("table_type", TABLES)
@pytest.mark.parametrize(
    ("slots", "load_factor", "capacity"),
    [(2, 0.9, 1), (2, 1, 1), (10, 0.9, 9), (10, 1, 9), (10, 0.01, 1), (1000, 0.5, 500)],
)
def test_it_takes_as_many_keys_as_it_says_and_no_more(
    table_type: Table, slots: int, load_factor: float, capacity: int
) -> None:
    table = table_type(slots, load_factor, SECRET)
    assert table.capacity == capacity
    for number in range(capacity):
        assert table.put(region((b"%d" % number, b"v")), 1, number, 0)
    assert not table.put(region((b"1" * 9, b"v")), 1, capacity, 0)
    assert len(table) == capacity
    assert table.put(region((b"0", b"v")), 1, capacity + 1, 0), "a known key needs no room"
    assert [table.get(b"%d" % n) for n in range(1, capacity)] == list(range(1, capacity))
    assert table.get(b"0") == capacity + 1
    assert table.get(b"1" * 9) == -1


@pytest.mark.parametrize("table_type", TABLES)
def test_keys_before_the_one_that_does_not_fit_are_in(table_type: Table) -> None:
    table = table_type(4, 0.5, SECRET)
    assert not table.put(region((b"a", b""), (b"b", b""), (b"c", b""), (b"a", b"")), 4, 0, 0)
    assert (table.get(b"a"), table.get(b"b"), table.get(b"c")) == (0, 1, -1)


@pytest.mark.parametrize("table_type", TABLES)
@pytest.mark.parametrize(
    ("slots", "load_factor", "secret"),
    [
        (1, 0.9, SECRET),
        (-1, 0.9, SECRET),
        (2**31, 0.9, SECRET),
        (5, 0.0, SECRET),
        (5, 1.1, SECRET),
        (5, 0.9, b"short"),
    ],
)
def test_it_refuses_what_it_cannot_be(
    table_type: Table, slots: int, load_factor: float, secret: bytes
) -> None:
    with pytest.raises(ValueError, match="expected"):
        table_type(slots, load_factor, secret)


@pytest.mark.parametrize("table_type", TABLES)
def test_the_filter_keeps_the_last_of_each_key(table_type: Table) -> None:
    data = region((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (None, b"4"), (b"c", None))
    table = table_type(10, 0.9, SECRET)
    assert table.put(data, 5, 10, 0)
    kept = table.filter(data, 5, 10, 1000, 14, False)
    parts = [encode_record(i, i, k, v) for i, k, v in ((1, b"b", b"2"), (2, b"a", b"3"))]
    tombstone = encode_record(4, 4, b"c", None)
    assert kept == (3, b"".join(parts) + tombstone, 1004, True, 1)
    assert table.filter(data, 5, 10, 1000, 14, True) == (2, b"".join(parts), 1002, False, 1)


@pytest.mark.parametrize("table_type", TABLES)
def test_the_filter_keeps_what_the_table_has_not_read(table_type: Table) -> None:
    data = region((b"a", b"1"), (None, b"2"), (b"a", None))
    table = table_type(10, 0.9, SECRET)
    assert table.put(region((b"a", b"9")), 1, 500, 0)
    assert table.filter(data, 3, 10, 0, 9, True) == (3, None, 2, True, 0)
    assert table.filter(data, 3, 10, 0, 10, True)[0] == 2
    assert table.filter(region((b"z", b"1")), 1, 10, 0, 600, False) == (1, None, 0, False, 0)


@pytest.mark.parametrize("table_type", TABLES)
def test_the_filter_of_nothing(table_type: Table) -> None:
    table = table_type(10, 0.9, SECRET)
    assert table.put(b"", 0, 0, 0)
    assert table.filter(b"", 0, 0, 0, 0, False) == (0, None, -1, False, 0)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("delta", [0, 1, -1, 63, -64, 64, 86_400_000, -86_400_000, 2**63 - 1])
def test_a_shift_moves_times_and_nothing_else(shift: Shift, delta: int) -> None:
    records = [(b"k", b"v" * 200), (None, b""), (b"", None)]
    before = region(*records, headers=HEADERS)
    after = b"".join(
        encode_record(i, ((i + delta + 2**63) % 2**64) - 2**63, k, v, HEADERS)
        for i, (k, v) in enumerate(records)
    )
    assert shift(before, 3, delta) == after
    assert shift(after, 3, -delta) == before


BAD = {
    "no record": (b"", 1),
    "a record too many": (region((b"a", b"1")), 0),
    "a record too few": (region((b"a", b"1")), 2),
    "a negative count": (b"", -1),
    "a torn record": (region((b"a", b"1"))[:-1], 1),
    "a key beyond the end": (bytes.fromhex("0e 00 00 00 7e 61 02 31"), 1),
    "a billion records": (b"", 10**9),
}


@pytest.mark.parametrize(("data", "count"), BAD.values(), ids=BAD)
def test_malformed_regions_are_refused_alike(data: bytes, count: int) -> None:
    messages = set()
    for (table_type,) in (param.values for param in TABLES):
        for read in ("put", "filter"):
            table: Any = table_type(10, 0.9, SECRET)  # type: ignore[operator]
            with pytest.raises(InvalidRecordError) as caught:
                table.put(data, count, 0, 0) if read == "put" else table.filter(
                    data, count, 0, 0, 99, False
                )
            messages.add(str(caught.value))
    for (shift,) in (param.values for param in SHIFTS):
        with pytest.raises(InvalidRecordError) as caught:
            shift(data, count, 5)  # type: ignore[operator]
        messages.add(str(caught.value))
    assert len(messages) == 1


def outcome(act: Callable[..., object], *arguments: object) -> object:
    try:
        return act(*arguments)
    except InvalidRecordError as error:
        return str(error)


@pytest.mark.skipif(not key_table.IS_COMPILED, reason="the compiled module is not built")
@pytest.mark.parametrize("seed", range(8))
def test_the_twins_agree_on_any_bytes(seed: int) -> None:
    """Also past the size from which the GIL is let go, and on bytes that were changed."""
    random = Random(seed)
    slots = random.choice([2, 7, 64, 5000])
    tables: list[Any] = [t(slots, 0.9, SECRET) for t in (KeyTablePure, key_table.KeyTable)]
    for _ in range(40):
        count = random.choice([0, 1, 3, 30, 400])
        data = bytearray(
            b"".join(
                encode_record(
                    index,
                    random.randrange(-(2**40), 2**40),
                    random.choice([None, b"", b"%d" % random.randrange(50), random.randbytes(90)]),
                    random.choice([None, b"", random.randbytes(random.randrange(200))]),
                    random.choice([(), HEADERS]),
                )
                for index in range(count)
            )
        )
        if data and random.random() < 0.4:
            data[random.randrange(len(data))] = random.randrange(256)
        base, latest = random.randrange(1000), random.randrange(1500)
        first, drops = random.randrange(1000), random.random() < 0.5
        puts = [outcome(t.put, data, count, base, first) for t in tables]
        assert puts[0] == puts[1]
        assert len(tables[0]) == len(tables[1])
        kept = [outcome(t.filter, data, count, base, 5, latest, drops) for t in tables]
        assert kept[0] == kept[1]
        shift = random.randrange(-(2**62), 2**62)
        shifted = outcome(shift_timestamps_pure, data, count, shift)
        assert outcome(key_table.shift_timestamps, data, count, shift) == shifted


@pytest.mark.skipif(not key_table.IS_COMPILED, reason="the compiled module is not built")
@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
    ],
)
def test_the_hash_is_sip_hash_with_128_bits(size: int, digest: str) -> None:
    """Against the first two vectors of its authors, key 00 … 0f, input 00, 01, …."""
    from odradek.records._key_table import hash_key

    assert hash_key(bytes(range(size)), SECRET).hex() == digest


@pytest.mark.skipif(not key_table.IS_COMPILED, reason="the compiled module is not built")
def test_another_secret_gives_another_hash() -> None:
    from odradek.records._key_table import hash_key

    keys = [b"x" * size for size in range(40)]
    digests = {hash_key(key, secret) for key in keys for secret in (SECRET, bytes(16))}
    assert len(digests) == 80
