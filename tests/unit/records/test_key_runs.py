"""Runs of plain batches: what they leave is what going batch by batch leaves, in both twins."""

from array import array
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from crc32c import crc32c

from odradek.records import key_table
from odradek.records.batch import is_crc_valid, parse_header
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.key_table_pure import KeyTablePure
from odradek.records.record import read_records

SECRET = bytes(range(16))
NOTHING_SPARED = array("q")
NOW_MS = 1_000_000

TABLES = [pytest.param(KeyTablePure, id="pure")]
if key_table.IS_COMPILED:
    TABLES.append(pytest.param(key_table.KeyTable, id="compiled"))

Table = Callable[[int, float, bytes], Any]
Row = tuple[bytes | None, bytes | None]


def batch(offset: int, *rows: Row, **options: Any) -> bytes:
    """A batch whose records are a millisecond apart."""
    records = [(5_000 + offset + number, *row, ()) for number, row in enumerate(rows)]
    return bytes(build_batch(records, base_offset=offset, **options))


def filled(table_type: Table, data: bytes, first_offset: int = 0, slots: int = 1000) -> Any:
    table = table_type(slots, 1, SECRET)
    position, last_offset = table.put_run(data, 0, first_offset)
    assert position == len(data), "every batch of it was meant to be plain"
    assert last_offset >= 0
    return table


def batches_of(data: bytes) -> list[tuple[int, int, int, list[tuple[int, bytes | None]]]]:
    """Last offset, largest timestamp, size, records of each batch; all of them sound."""
    found = []
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        assert header is not None
        assert is_crc_valid(data, position, header.size)
        records = list(read_records(data, position=position, header=header))
        assert len(records) == header.record_count
        found.append(
            (
                header.last_offset,
                header.max_timestamp,
                header.size,
                [(record.offset, record.key) for record in records],
            )
        )
        position += header.size
    assert position == len(data)
    return found


@pytest.mark.parametrize("table_type", TABLES)
def test_batches_stay_shrink_or_go(table_type: Table) -> None:
    data = b"".join(
        (
            batch(0, (b"a", b"1")),
            batch(1, (b"a", b"2"), (b"b", b"3"), (b"c", b"4")),
            batch(4, (b"a", b"5"), (b"d", b"6")),
            batch(6, (b"c", b"7")),
        )
    )
    table = filled(table_type, data)
    end, kept, batches, read, left, unkeyed = table.filter_run(data, 0, 6, NOW_MS, NOTHING_SPARED)
    assert (end, read, left, unkeyed) == (len(data), 7, 4, 0)
    found = batches_of(kept)
    assert [row[:3] for row in found] == batches
    assert [row[3] for row in found] == [[(2, b"b")], [(4, b"a"), (5, b"d")], [(6, b"c")]]
    # The shrunken batch keeps its end, and has the time of what is left.
    assert batches[0][:2] == (3, 5_002)
    assert kept.endswith(data[len(data) - sum(row[2] for row in batches[1:]) :])


@pytest.mark.parametrize("table_type", TABLES)
def test_what_the_table_does_not_know_stays(table_type: Table) -> None:
    data = batch(0, (b"a", b"1")) + batch(1, (b"a", b"2"))
    end, kept, _, read, left, _ = filled(table_type, data).filter_run(
        data, 0, -1, NOW_MS, NOTHING_SPARED
    )
    assert (end, kept, read, left) == (len(data), data, 2, 2)


@pytest.mark.parametrize("table_type", TABLES)
def test_records_without_a_key_go_and_are_counted(table_type: Table) -> None:
    data = batch(0, (None, b"1"), (b"a", b"2"))
    _, kept, _, read, left, unkeyed = filled(table_type, data).filter_run(
        data, 0, 1, NOW_MS, NOTHING_SPARED
    )
    assert (read, left, unkeyed) == (2, 1, 1)
    assert [row[3] for row in batches_of(kept)] == [[(1, b"a")]]


@pytest.mark.parametrize("table_type", TABLES)
def test_the_time_of_a_log_that_sets_it_stays(table_type: Table) -> None:
    data = batch(0, (b"a", b"1"), (b"b", b"2"), log_append_time_ms=9_999) + batch(2, (b"b", b"3"))
    _, _, batches, *_ = filled(table_type, data).filter_run(data, 0, 2, NOW_MS, NOTHING_SPARED)
    assert batches[0][:2] == (1, 9_999)


@pytest.mark.parametrize("table_type", TABLES)
def test_a_batch_that_may_have_to_stay_empty_ends_a_run(table_type: Table) -> None:
    first, second, third = (batch(n, (b"a", b"1"), producer_id=7) for n in range(3))
    data = first + second + third
    table = filled(table_type, data)
    spared = array("q", [1, 50])
    end, kept, *_ = table.filter_run(data, 0, 2, NOW_MS, spared)
    assert (end, kept) == (len(first), b"")
    # One with records stays for their sake.
    end, kept, *_ = table.filter_run(data, len(first + second), 2, NOW_MS, array("q", [2]))
    assert (end, kept) == (len(data), third)


@pytest.mark.parametrize("table_type", TABLES)
def test_tombstones_end_a_run_until_they_have_a_horizon(table_type: Table) -> None:
    data = batch(0, (b"a", None))
    table = filled(table_type, data)
    assert table.filter_run(data, 0, 0, NOW_MS, NOTHING_SPARED)[:2] == (0, b"")
    for horizon_ms, left in ((NOW_MS + 1, 1), (NOW_MS, 0)):
        data = batch(0, (b"a", None), delete_horizon_ms=horizon_ms)
        found = table.filter_run(data, 0, 0, NOW_MS, NOTHING_SPARED)
        assert (found[0], found[4]) == (len(data), left)
        assert found[1] == (data if left else b"")


def others() -> Iterator[Any]:
    plain = batch(1, (b"a", b"1"), (b"b", b"2"))
    yield pytest.param(b"", id="nothing")
    yield pytest.param(plain[:-1], id="cut")
    yield pytest.param(plain[:60], id="less than a header")
    yield pytest.param(plain[:-1] + b"\xff", id="wrong checksum")
    yield pytest.param(plain[:16] + b"\1" + plain[17:], id="magic 1")
    yield pytest.param(plain[:8] + b"\0\0\0\x05" + plain[12:], id="length too small")
    yield pytest.param(plain[:8] + b"\xff\xff\xff\xff" + plain[12:], id="length negative")
    yield pytest.param(b"\x40" + plain[1:], id="offset too large")
    yield pytest.param(b"\xff" + plain[1:], id="offset negative")
    yield pytest.param(batch(1, (b"a", b"1"), codec=Codec.GZIP), id="compressed")
    yield pytest.param(
        batch(1, (b"a", b"1"), is_transactional=True, producer_id=1), id="transactional"
    )
    yield pytest.param(batch(1, (b"\0\0\0\0", b"1"), is_control=True), id="control")


@pytest.mark.parametrize("table_type", TABLES)
@pytest.mark.parametrize("other", list(others()))
def test_whatever_is_not_plain_ends_a_run(table_type: Table, other: bytes) -> None:
    first = batch(0, (b"a", b"0"))
    data = first + other
    table = table_type(10, 1, SECRET)
    assert table.put_run(data, 0, 0) == (len(first), 0)
    assert table.put_run(data, len(first), 0) == (len(first), -1)
    assert table.filter_run(data, 0, 0, NOW_MS, NOTHING_SPARED)[:2] == (len(first), first)
    alone = table.filter_run(data, len(first), 0, NOW_MS, NOTHING_SPARED)
    assert alone == (len(first), b"", [], 0, 0, 0)


@pytest.mark.parametrize("table_type", TABLES)
def test_malformed_records_end_a_run_before_their_batch(table_type: Table) -> None:
    """A checksum that matches does not make records of them."""
    first = batch(0, (b"a", b"0"))
    header = parse_header(first)
    assert header is not None
    for count in (0, 2):
        lying = bytearray(batch(1, (b"b", b"0")))
        lying[57:61] = count.to_bytes(4, "big")
        lying[17:21] = crc32c(bytes(lying[21:])).to_bytes(4, "big")
        data = first + lying
        table = table_type(10, 1, SECRET)
        assert table.put_run(data, 0, 0) == (len(first), 0)
        assert table.filter_run(data, 0, 9, NOW_MS, NOTHING_SPARED)[0] == len(first)


@pytest.mark.parametrize("table_type", TABLES)
def test_keys_that_do_not_fit_end_a_run_before_their_batch(table_type: Table) -> None:
    table = table_type(3, 1, SECRET)
    first, second = batch(0, (b"a", b"1"), (b"b", b"1")), batch(2, (b"c", b"1"))
    assert table.put_run(first + second, 0, 0) == (len(first), 1)
    assert not table.put(second[61:], 1, 2, 0), "whoever asks by batch learns why"


@pytest.mark.parametrize("table_type", TABLES)
def test_batches_below_the_first_offset_are_stepped_over(table_type: Table) -> None:
    table = table_type(10, 1, SECRET)
    first, second = batch(0, (b"a", b"1")), batch(1, (b"b", b"1"), (b"c", b"1"))
    assert table.put_run(first, 0, 1) == (len(first), -1)
    assert table.put_run(first + second, 0, 2) == (len(first + second), 2)
    assert [table.get(key) for key in (b"a", b"b", b"c")] == [-1, -1, 2]


@pytest.mark.parametrize("table_type", TABLES)
def test_positions_outside_are_refused(table_type: Table) -> None:
    table = table_type(10, 1, SECRET)
    for position in (-1, 4):
        with pytest.raises(ValueError, match=rf"position {position} is not within 3 bytes"):
            table.put_run(b"abc", position, 0)
        with pytest.raises(ValueError, match=rf"position {position} is not within 3 bytes"):
            table.filter_run(b"abc", position, 0, 0, NOTHING_SPARED)


def random_stream(random: Random) -> bytes:
    """Batches of all kinds, some of them damaged."""
    data = b""
    offset = random.choice([0, 0, 1 << 40])
    for _ in range(random.randrange(1, 12)):
        rows: list[Row] = [
            (
                None if random.random() < 0.05 else b"k%d" % random.randrange(6),
                None if random.random() < 0.1 else random.randbytes(random.randrange(40)),
            )
            for _ in range(random.choice([1, 1, 1, 2, 5]))
        ]
        options: dict[str, Any] = random.choice(
            [
                {}, {}, {}, {"producer_id": 3}, {"log_append_time_ms": 77},
                {"delete_horizon_ms": random.choice([NOW_MS - 1, NOW_MS + 1])},
                {"codec": Codec.GZIP}, {"is_transactional": True, "producer_id": 4},
                {"last_offset_delta": len(rows) + 3},
            ]
        )  # fmt: skip
        made = bytearray(batch(offset, *rows, **options))
        if random.random() < 0.05:
            made[random.randrange(len(made))] ^= 1 << random.randrange(8)
        data += made
        offset += len(rows) + random.choice([0, 0, 5])
    return data if random.random() < 0.9 else data[: random.randrange(len(data) + 1)]


@pytest.mark.skipif(not key_table.IS_COMPILED, reason="there is one twin only")
@pytest.mark.parametrize("seed", range(200))
def test_both_twins_give_the_same_answers(seed: int) -> None:
    random = Random(seed)
    data = random_stream(random)
    slots = random.choice([2, 4, 100])
    first_offset = random.choice([0, 3, 1 << 40])
    pure, compiled = KeyTablePure(slots, 1, SECRET), key_table.KeyTable(slots, 1, SECRET)
    assert compiled.put_run(data, 0, first_offset) == pure.put_run(data, 0, first_offset)
    keys = [b"k%d" % number for number in range(6)]
    assert [compiled.get(key) for key in keys] == [pure.get(key) for key in keys]
    latest = random.choice([0, 4, 1 << 50])
    spared = array("q", sorted(random.sample(range(20), 3)))
    position = 0
    while position <= len(data):
        left = pure.filter_run(data, position, latest, NOW_MS, spared)
        assert compiled.filter_run(data, position, latest, NOW_MS, spared) == left
        header = parse_header(data, left[0]) if is_whole(data, left[0]) else None
        if header is None:
            break
        position = left[0] + header.size


def is_whole(data: bytes, position: int) -> bool:
    """Whether a batch stands there, whatever it holds."""
    if position + 61 > len(data) or data[position + 16] != 2:
        return False
    size = int.from_bytes(data[position + 8 : position + 12], "big", signed=True) + 12
    return 61 <= size <= len(data) - position
