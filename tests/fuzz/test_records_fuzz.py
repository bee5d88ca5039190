"""Any bytes give a value, CorruptRecordError or InvalidRecordError; the walk's twins agree."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.errors import CorruptRecordError, InvalidRecordError
from odradek.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    is_crc_valid,
    iter_headers,
    parse_header,
    peek_header,
)
from odradek.records.builder import build_batch, rebuild_batch
from odradek.records.compression import Codec, compress, decompress
from odradek.records.control import parse_control_type, parse_end_transaction_marker
from odradek.records.record import read_records
from odradek.records.walk import IS_COMPILED, walk_records
from odradek.records.walk_pure import walk_records_pure
from tests.support.mutation import mutated
from tests.unit.records.vectors import VEC_7B, VECTORS, T

FUZZ = settings(deadline=None, max_examples=300)
MAX_SIZE = 1 << 20
INT64 = st.integers(-(2**63), 2**63 - 1)

VALID = [*VECTORS.values(), build_batch([(T, b"k", b"v" * 9, (("h", b""),))] * 9, is_control=True)]
REGION = VECTORS["VEC-4"][HEADER_SIZE:]
STREAMS = [
    *((codec, compress(codec, REGION * 3)) for codec in Codec),
    *((Codec(data[22] & 7), data[HEADER_SIZE:]) for name, data in list(VECTORS.items())[4:12]),
    (Codec.SNAPPY, VEC_7B),
]


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except (CorruptRecordError, InvalidRecordError) as error:
        return type(error), str(error)


ANY_BYTES = st.one_of(st.binary(max_size=200), mutated([bytes(data) for data in VALID]))


@FUZZ
@given(ANY_BYTES)
def test_batches(data: bytes) -> None:
    outcome(lambda: peek_header(data))
    outcome(lambda: parse_header(data))
    outcome(lambda: [is_crc_valid(data, at, header.size) for at, header in iter_headers(data)])
    is_crc_valid(data, 0, len(data))
    outcome(lambda: list(read_records(data, max_size=MAX_SIZE)))
    outcome(lambda: parse_end_transaction_marker(data))
    outcome(lambda: parse_control_type(data))


@FUZZ
@given(ANY_BYTES)
def test_peeking_agrees_with_parsing(data: bytes) -> None:
    parsed = outcome(lambda: parse_header(data))
    if isinstance(parsed, BatchHeader):
        assert peek_header(data[:HEADER_SIZE]) == parsed
        assert HEADER_SIZE <= parsed.size <= len(data) or parsed.magic < 2


@FUZZ
@given(ANY_BYTES, st.sampled_from(Codec))
def test_rebuilt_batches_are_read_the_same(data: bytes, codec: Codec) -> None:
    header = outcome(lambda: parse_header(data))
    if not isinstance(header, BatchHeader) or header.magic < 2:
        return
    records = outcome(lambda: list(read_records(data, header=header, max_size=MAX_SIZE)))
    rebuilt = outcome(lambda: rebuild_batch(data, header, codec=codec, max_size=MAX_SIZE))
    # What the materialising reader accepts, the walk accepts, and the other way round.
    assert isinstance(records, list) == isinstance(rebuilt, bytearray)
    if isinstance(records, list) and isinstance(rebuilt, bytearray):
        again = list(read_records(rebuilt, max_size=MAX_SIZE))
        assert [record[1:] for record in again] == [record[1:] for record in records]
        assert [record.offset for record in again] == [
            header.base_offset + index for index in range(len(records))
        ]


@FUZZ
@given(
    st.sampled_from(Codec),
    st.one_of(st.binary(max_size=100), mutated([data for _, data in STREAMS])),
    st.booleans(),
    st.sampled_from([0, 1, 2]),
)
def test_streams(codec: Codec, data: bytes, strict: bool, magic: int) -> None:
    result = outcome(
        lambda: bytes(decompress(codec, data, max_size=1000, magic=magic, strict=strict))
    )
    if isinstance(result, bytes) and codec is not Codec.NONE:
        assert len(result) <= 1000


@FUZZ
@given(st.sampled_from(STREAMS), st.data())
def test_damaged_streams(stream: tuple[Codec, bytes], data: st.DataObject) -> None:
    codec, original = stream
    damaged = data.draw(mutated([original]))
    strict = data.draw(st.booleans())
    loose = outcome(lambda: bytes(decompress(codec, damaged, max_size=MAX_SIZE)))
    if strict and isinstance(loose, tuple):
        refused = outcome(lambda: decompress(codec, damaged, max_size=MAX_SIZE, strict=True))
        assert isinstance(refused, tuple)


SEVEN = build_batch(
    [(T + 99 * i, bytes(i) or None, bytes(70 * i), (("h", None),)) for i in range(7)]
)
VALID_REGIONS = [
    VECTORS["VEC-1"][HEADER_SIZE:],
    REGION,
    VECTORS["VEC-14"][HEADER_SIZE:],
    bytes(
        build_batch(
            [(T + 99 * i, bytes(i) or None, bytes(70 * i), (("h", None),)) for i in range(7)]
        )
    )[HEADER_SIZE:],
]


@pytest.mark.skipif(not IS_COMPILED, reason="_walk is not built: setup.py build_ext --inplace")
@settings(deadline=None, max_examples=800)
@given(
    region=st.one_of(
        st.sampled_from(VALID_REGIONS),
        mutated(VALID_REGIONS),
        st.binary(max_size=60),
        # Small bytes are small numbers, so more of these come far.
        st.lists(st.integers(0, 14), max_size=40).map(bytes),
    ),
    count=st.one_of(st.integers(0, 8), st.integers(-(2**31), 2**31 - 1)),
    base=st.one_of(st.just(T), INT64),
    earliest=st.one_of(st.just(T), INT64),
    latest=st.one_of(st.just(T + 300), INT64),
    require_key=st.booleans(),
    margin=st.integers(0, 12),
)
@example(region=b"", count=0, base=0, earliest=0, latest=0, require_key=False, margin=0)
def test_the_twins_of_the_walk_agree(
    region: bytes,
    count: int,
    base: int,
    earliest: int,
    latest: int,
    require_key: bool,
    margin: int,
) -> None:
    start = min(margin % 3, len(region))
    end = max(start, len(region) - margin // 3)
    arguments = (region, start, end, count, base, earliest, latest, require_key)
    assert outcome(lambda: walk_records(*arguments)) == outcome(
        lambda: walk_records_pure(*arguments)
    )


@pytest.mark.skipif(not IS_COMPILED, reason="_walk is not built: setup.py build_ext --inplace")
def test_the_twins_agree_on_every_one_byte_change() -> None:
    for region, count in zip(VALID_REGIONS, (2, 3, 1, 7), strict=True):
        for position in range(min(len(region), 60)):
            for value in (0, 1, 2, 3, 5, 0x7E, 0x7F, 0x80, 0xFF, region[position] ^ 1):
                changed = region[:position] + bytes((value,)) + region[position + 1 :]
                arguments = (changed, 0, len(changed), count, T, T, T + 300, True)
                assert outcome(lambda a=arguments: walk_records(*a)) == outcome(  # type: ignore[misc]
                    lambda a=arguments: walk_records_pure(*a)  # type: ignore[misc]
                )


# Long enough for runs of records, which the pure twin walks at once.
LONG = 100
LONG_REGIONS = [
    bytes(build_batch([(T + i * step, key, bytes(size(i)), headers) for i in range(LONG)]))[
        HEADER_SIZE:
    ]
    for step, key, size, headers in (
        (0, b"key", lambda _: 20, ()),
        (1, None, lambda _: 90, ()),
        (3, b"key", lambda i: 17 * i % 90, ()),
        (90, b"key", lambda _: 20, (("h", b"1"),)),
    )
]


@pytest.mark.skipif(not IS_COMPILED, reason="_walk is not built: setup.py build_ext --inplace")
@FUZZ
@given(region=mutated(LONG_REGIONS), count=st.integers(LONG - 2, LONG + 2), base=st.just(T) | INT64)
def test_the_twins_agree_on_runs_of_records(region: bytes, count: int, base: int) -> None:
    arguments = (region, 0, len(region), count, base, T, T + 300, True)
    assert outcome(lambda: walk_records(*arguments)) == outcome(
        lambda: walk_records_pure(*arguments)
    )
