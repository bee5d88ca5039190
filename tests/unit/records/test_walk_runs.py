"""Runs of records walked at once: they must find what a walk record by record finds, or nothing."""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import pytest

from odradek.errors import InvalidRecordError
from odradek.records.batch import HEADER_SIZE
from odradek.records.builder import build_batch, encode_record
from odradek.records.record import Headers
from odradek.records.walk_pure import _walk_singly, walk_records_pure
from odradek.records.walk_runs import LEAST_MIXED, LEAST_RUN, SHORT_OFFSETS, Tally, walk_run
from tests.unit.records.vectors import T

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
COUNT = 200

Record = tuple[int, bytes | None, bytes | None, Headers]
Shape = Callable[[Random, int], Record]


class Found(NamedTuple):
    max_delta: int
    max_index: int
    min_delta: int
    is_consecutive: bool
    has_null_key: bool


def found(tally: Tally) -> Found:
    return Found(
        tally.max_delta,
        tally.max_index,
        tally.min_delta,
        tally.is_consecutive,
        tally.has_null_key,
    )


def walk_runs_only(region: bytes, count: int) -> tuple[int, Found]:
    """How many records lie in runs, from the first on, and what is found in them."""
    tally, index, position = Tally(), 0, 0
    while True:
        walked, position = walk_run(
            tally, region, position, len(region),
            index=index, count=count - index, mixed_count=count,
        )  # fmt: skip
        if not walked:
            return index, found(tally)
        index += walked


def walk_singly(region: bytes, count: int) -> tuple[int, Found]:
    tally = Tally()
    position = _walk_singly(tally, region, 0, len(region), 0, count, T)
    return position, found(tally)


def region_of(records: Sequence[Record]) -> bytes:
    return b"".join(
        encode_record(index, time, key, value, headers)
        for index, (time, key, value, headers) in enumerate(records)
    )


# Shapes of records by which the walk has to find its way.
UNIFORM: dict[str, Shape] = {
    "alike": lambda _, index: (0, b"key", b"x" * 100, ()),
    "small": lambda _, index: (0, b"k", b"v", ()),
    "empty": lambda _, index: (0, b"", b"", ()),
    "null key": lambda _, index: (0, None, b"x" * 40, ()),
    "tombstones": lambda _, index: (0, b"key", None, ()),
    "long": lambda _, index: (0, b"k" * 100, b"x" * 3000, ()),
    "headers": lambda _, index: (0, b"key", b"x" * 80, (("a", b"1"), ("bc", None))),
    "times in order": lambda _, index: (index, b"key", b"x" * 100, ()),
    "times in reverse": lambda _, index: (-index, b"key", b"x" * 100, ()),
    "far times": lambda _, index: (9000 + 70 * index, b"key", b"x" * 100, ()),
}
MIXED: dict[str, Shape] = {
    "values": lambda random, index: (index, b"key", b"x" * random.randrange(300), ()),
    "small values": lambda random, index: (0, b"key", b"x" * random.randrange(90), ()),
    "keys and values": lambda random, index: (
        index // 3,
        b"k" * random.randrange(60),
        b"x" * random.randrange(200),
        (),
    ),
    "some null": lambda random, index: (
        0,
        random.choice([b"key", None]),
        random.choice([b"x" * 70, b"", None]),
        (),
    ),
    "times": lambda random, index: (64 + random.randrange(8000), b"key", b"x" * (index % 99), ()),
    "times on both sides": lambda random, index: (
        random.randrange(-60, 60),
        b"key",
        b"x" * random.randrange(200),
        (),
    ),
}
SHAPES = {**UNIFORM, **MIXED}


def make(shape: str, count: int = COUNT) -> bytes:
    random = Random(count)
    return region_of([SHAPES[shape](random, index) for index in range(count)])


@pytest.mark.parametrize("shape", SHAPES)
class TestAgreement:
    def test_finds_what_a_walk_of_single_records_finds(self, shape: str) -> None:
        region = make(shape)
        expected_position, expected = walk_singly(region, COUNT)
        assert expected_position == len(region)
        walked = walk_records_pure(region, 0, len(region), COUNT, T, MIN_INT64, MAX_INT64, False)
        assert walked == (T + expected.max_delta, expected.max_index, True, None)

    def test_walks_in_runs(self, shape: str) -> None:
        """Without it nobody would notice that all the records go the long way."""
        walked, _ = walk_runs_only(make(shape), COUNT)
        assert walked >= SHORT_OFFSETS

    def test_offsets_out_of_order_are_noticed(self, shape: str) -> None:
        random = Random(3)
        records = [SHAPES[shape](random, index) for index in range(COUNT)]
        for changed in (40, 150):
            offsets = list(range(COUNT))
            offsets[changed] -= 1
            region = b"".join(
                encode_record(offset, *record)
                for offset, record in zip(offsets, records, strict=True)
            )
            assert not walk_singly(region, COUNT)[1].is_consecutive
            assert not walk_records_pure(
                region, 0, len(region), COUNT, T, MIN_INT64, MAX_INT64, False
            )[2]

    def test_any_changed_byte_is_judged_as_record_by_record(self, shape: str) -> None:
        """A run never accepts what a single record would be refused for."""
        region = make(shape, 70)
        random = Random(7)
        places = random.sample(range(len(region)), min(len(region), 800))
        for place in places:
            changed = bytearray(region)
            changed[place] ^= 1 << random.randrange(8)
            assert judge(bytes(changed), 70) == judge_singly(bytes(changed), 70)


def judge(region: bytes, count: int) -> object:
    try:
        return walk_records_pure(region, 0, len(region), count, T, MIN_INT64, MAX_INT64, False)
    except InvalidRecordError as error:
        return str(error)


def judge_singly(region: bytes, count: int) -> object:
    try:
        position, tally = walk_singly(region, count)
    except InvalidRecordError as error:
        return str(error)
    if position != len(region):
        return (
            f"{len(region) - position} bytes at position {position} follow the last of 70 records"
        )
    return T + tally.max_delta, tally.max_index, tally.is_consecutive, None


def test_records_behind_the_region_are_not_taken() -> None:
    for shape in ("alike", "values"):
        region = make(shape)
        cut = len(make(shape, COUNT)) - 40
        with pytest.raises(InvalidRecordError, match=f"record {COUNT - 1} at position"):
            walk_records_pure(region, 0, cut, COUNT, T, MIN_INT64, MAX_INT64, False)


def test_few_records_are_no_run() -> None:
    for shape, least in (("alike", LEAST_RUN), ("values", LEAST_MIXED)):
        assert walk_runs_only(make(shape, least - 1), least - 1)[0] == 0
        assert walk_runs_only(make(shape, least), least)[0] == least


def test_a_null_key_in_a_run_is_bad_where_keys_are_required() -> None:
    """The refusal names the very record, which is looked for once a run has one."""
    records: list[Record] = [(0, b"key", b"x" * 100, ())] * COUNT
    records[90] = (0, None, b"x" * 103, ())
    region = region_of(records)
    walked = walk_records_pure(region, 0, len(region), COUNT, T, MIN_INT64, MAX_INT64, True)
    assert walked == (T, 0, True, [(90, 1)])


def test_a_time_outside_the_window_in_a_run_is_bad() -> None:
    batch = build_batch([(T + index, b"key", b"x" * 100, ()) for index in range(COUNT)])
    walked = walk_records_pure(
        batch, HEADER_SIZE, len(batch), COUNT, T, MIN_INT64, T + COUNT - 3, False
    )
    assert walked == (T + COUNT - 1, COUNT - 1, True, [(COUNT - 2, 2), (COUNT - 1, 2)])
