"""Encoding records for a batch; every test runs on both twins."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from odradek.errors import RecordTooLargeError
from odradek.records.batch import HEADER_SIZE, parse_header
from odradek.records.builder import build_batch
from odradek.records.codec import (
    IS_COMPILED,
    count_fitting,
    encode_records,
    estimate_record_size,
)
from odradek.records.codec_pure import (
    count_fitting_pure,
    encode_record,
    encode_records_pure,
    estimate_record_size_pure,
)
from tests.unit.records.vectors import EXPECTED, VECTORS, T

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


class Encoder(NamedTuple):
    """One of the twins. Arguments are Any, since wrong ones are tested, too."""

    encode: Any
    estimate: Any
    count_fitting: Any


@pytest.fixture(
    params=[
        pytest.param(
            Encoder(encode_records_pure, estimate_record_size_pure, count_fitting_pure), id="pure"
        ),
        pytest.param(
            Encoder(encode_records, estimate_record_size, count_fitting),
            id="compiled",
            marks=pytest.mark.skipif(not IS_COMPILED, reason="_codec is not built: setup.py"),
        ),
    ]
)
def encoder(request: pytest.FixtureRequest) -> Encoder:
    chosen: Encoder = request.param
    return chosen


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, id=f"10:{name}") for name in ("VEC-1", "VEC-4", "VEC-11b")],
)
def test_bytes_of_the_java_client(encoder: Encoder, name: str) -> None:
    records = [record[1:] for record in EXPECTED[name]]
    header = parse_header(VECTORS[name])
    assert header is not None
    assert encoder.encode(records) == (
        bytearray(VECTORS[name][HEADER_SIZE:]),
        header.max_timestamp,
    )


def test_leaves_room_for_a_header(encoder: Encoder) -> None:
    records = [(T, b"k", b"v", ())]
    encoded, _ = encoder.encode(records, None, None, HEADER_SIZE)
    assert type(encoded) is bytearray
    assert encoded[HEADER_SIZE:] == encoder.encode(records)[0]
    assert encoder.encode([], None, None, 5) == (bytearray(5), -1)


def test_nothing_to_encode(encoder: Encoder) -> None:
    assert encoder.encode([]) == (bytearray(), -1)


def test_fields_of_every_length(encoder: Encoder) -> None:
    sizes = [0, 1, 63, 64, 8191, 8192, 2**20]
    records = [
        (T + (-1) ** size * 2**size_bits, bytes(size), b"v" * size, (("n" * (size % 9000), None),))
        for size_bits, size in zip([0, 6, 13, 20, 31, 40, 41], sizes, strict=True)
    ]
    expected = b"".join(
        encode_record(index, timestamp - T, key, value, headers)
        for index, (timestamp, key, value, headers) in enumerate(records)
    )
    encoded, max_timestamp = encoder.encode(records, T)
    assert encoded == expected
    assert max_timestamp == max(record[0] for record in records)


def test_offsets_of_every_length(encoder: Encoder) -> None:
    records = [(T, None, None, ())] * 9000
    expected = b"".join(encode_record(index, 0, None, None) for index in range(9000))
    assert encoder.encode(records)[0] == expected


def test_many_headers(encoder: Encoder) -> None:
    headers = tuple((f"name-{index}", bytes(index) or None) for index in range(200))
    assert encoder.encode([(T, b"", b"", headers)])[0] == encode_record(0, 0, b"", b"", headers)


def test_given_offset_deltas(encoder: Encoder) -> None:
    records = [(T, b"k", b"v", ())] * 3
    expected = b"".join(encode_record(delta, 0, b"k", b"v") for delta in (0, 70, 2**31 - 1))
    assert encoder.encode(records, None, [0, 70, 2**31 - 1])[0] == expected


@pytest.mark.parametrize("deltas", [[], [0], [0, 1, 2], [0, 2**31], [-1, 0]])
def test_wrong_offset_deltas(encoder: Encoder, deltas: list[int]) -> None:
    with pytest.raises(ValueError, match="offset deltas"):
        encoder.encode([(T, b"k", b"v", ())] * 2, None, deltas)


@pytest.mark.parametrize(
    ("timestamps", "base", "largest"),
    [
        ((-1, -1), None, -1),
        ((-9, -8), None, -1),
        ((T, T - 5), None, T),
        ((MIN_INT64, MAX_INT64), None, MAX_INT64),
        ((MAX_INT64, MIN_INT64), -1, MAX_INT64),
    ],
)
def test_timestamps(
    encoder: Encoder, timestamps: tuple[int, int], base: int | None, largest: int
) -> None:
    """A delta that leaves int64 wraps around, and comes back when it is read."""
    encoded, max_timestamp = encoder.encode([(t, None, None, ()) for t in timestamps], base)
    start = timestamps[0] if base is None else base
    wrapped = [(t - start + 2**63) % 2**64 - 2**63 for t in timestamps]
    assert encoded == b"".join(
        encode_record(index, delta, None, None) for index, delta in enumerate(wrapped)
    )
    assert max_timestamp == largest


class Sent(NamedTuple):
    timestamp: int
    key: object
    value: object
    headers: object


class Shouting(bytes):
    def __bytes__(self) -> bytes:
        return self.upper()


@pytest.mark.parametrize(
    "record",
    [
        [T, bytearray(b"key"), memoryview(b"value"), [["h", memoryview(b"x")], ("i", None)]],
        Sent(T, memoryview(b"_k_e_y")[1::2], b"value", [("h", b"x"), ["i", None]]),
    ],
    ids=["lists", "subclasses"],
)
def test_everything_like_bytes_and_tuples(encoder: Encoder, record: object) -> None:
    expected = encode_record(0, 0, b"key", b"value", (("h", b"x"), ("i", None)))
    assert encoder.encode((record,))[0] == expected
    assert encoder.estimate(*record[1:]) == 18 + len(expected) - 1  # type: ignore[index]


def test_a_subclass_of_bytes_says_what_its_bytes_are(encoder: Encoder) -> None:
    assert encoder.encode([(T, Shouting(b"k"), None, ())])[0] == encode_record(0, 0, b"K", None)


def test_header_keys_that_are_not_utf_8(encoder: Encoder) -> None:
    """Bytes that came in as lone surrogates go out as they were."""
    name = b"\xff\xc3\xa9".decode("utf-8", "surrogateescape")
    assert b"\xff\xc3\xa9" in encoder.encode([(T, None, None, ((name, b""),))])[0]


UNUSABLE: list[tuple[object, type[Exception], str]] = [
    (None, TypeError, "expected (timestamp, key, value, headers), not None"),
    ((T, b"k", b"v"), TypeError, "expected (timestamp, key, value, headers), not (17"),
    ("abcd", TypeError, "expected (timestamp, key, value, headers), not 'abcd'"),
    ((None, b"k", b"v", ()), TypeError, "its timestamp is a NoneType, expected an int"),
    ((1.5, b"k", b"v", ()), TypeError, "its timestamp is a float, expected an int"),
    ((2**63, b"k", b"v", ()), ValueError, "its timestamp 9223372036854775808 is no int64"),
    ((-(2**63) - 1, b"k", b"v", ()), ValueError, "is no int64"),
    ((T, "k", b"v", ()), TypeError, "its key is a str, expected bytes or None; encode it first"),
    ((T, b"k", 7, ()), TypeError, "its value is an int, expected bytes or None"),
    ((T, b"k", b"v", None), TypeError, "its headers are a NoneType, expected a tuple of pairs"),
    ((T, b"k", b"v", {"h": b"x"}), TypeError, "its headers are a dict, expected a tuple of"),
    ((T, b"k", b"v", ("h",)), TypeError, "a header is 'h', expected (key, value)"),
    ((T, b"k", b"v", (("h",),)), TypeError, "a header is ('h',), expected (key, value)"),
    ((T, b"k", b"v", ((b"h", b"x"),)), TypeError, "a header key is a bytes, expected a str"),
    ((T, b"k", b"v", (("h", "x"),)), TypeError, "the value of header 'h' is a str, expected"),
    ((T, b"k", b"v", (("\ud800", b"x"),)), ValueError, r"the header key '\ud800' is no text"),
]


@pytest.mark.parametrize(("record", "error", "message"), UNUSABLE)
def test_unusable_records(
    encoder: Encoder, record: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        encoder.encode([(T, b"k", b"v", ()), record])
    assert str(raised.value).startswith("record 1: ")
    assert message in str(raised.value)
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(("record", "error", "message"), UNUSABLE)
def test_unusable_records_do_not_fit(
    encoder: Encoder, record: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        encoder.count_fitting([record], 0, 1000)
    assert message in str(raised.value)
    if isinstance(record, tuple) and len(record) == 4 and record[0] == T:
        with pytest.raises(error, match=r"^record: "):
            encoder.estimate(*record[1:])


def test_more_bytes_than_a_length_can_say(encoder: Encoder) -> None:
    part = bytes(1 << 27)  # Refused before it is copied.
    many = (("h", part),) * 16
    assert encoder.estimate(None, None, many) > 1 << 31
    with pytest.raises(RecordTooLargeError, match="with record 0 the batch has more than 21474836"):
        encoder.encode([(T, None, None, many)])
    with pytest.raises(RecordTooLargeError, match="with record 1 the batch has more than 21474836"):
        encoder.encode([(T, b"k", b"v", ()), (T, part, part, many[2:])])


class TestEstimate:
    @pytest.mark.parametrize("size", [None, 0, 1, 63, 64, 8191, 8192, 2**20])
    @pytest.mark.parametrize("headers", [(), (("h", b"x"), ("é" * 40, None))], ids=["none", "two"])
    def test_is_what_the_longest_encoding_takes(
        self, encoder: Encoder, size: int | None, headers: tuple[tuple[str, bytes | None], ...]
    ) -> None:
        field = None if size is None else bytes(size)
        record = encode_record(2**31 - 1, MIN_INT64, field, field, headers)
        estimate = encoder.estimate(field, field, headers)
        # The length of the record is taken for five bytes as well.
        assert len(record) <= estimate <= len(record) + 4

    def test_headers_may_be_left_out(self, encoder: Encoder) -> None:
        assert encoder.estimate(b"k", None) == encoder.estimate(b"k", None, ()) == 21 + 4

    def test_of_a_batch_holds(self, encoder: Encoder) -> None:
        records = [(T + index, b"key", bytes(index), ()) for index in range(300)]
        estimates = [encoder.estimate(*record[1:]) for record in records]
        assert len(build_batch(records)) <= HEADER_SIZE + sum(estimates)


class TestCountFitting:
    RECORDS: Sequence[tuple[int, bytes, bytes, tuple[()]]] = [
        (T, b"", bytes(size), ()) for size in (75, 16, 6, 75, 75)
    ]  # Estimates: 100, 40, 30, 100, 100.

    @pytest.mark.parametrize(
        ("start", "room", "count"),
        [
            (0, 0, 1),
            (0, 100, 1),
            (0, 139, 1),
            (0, 140, 2),
            (0, 170, 3),
            (0, 269, 3),
            (0, 270, 4),
            (0, 10**9, 5),
            (1, 69, 1),
            (1, 70, 2),
            (4, -100, 1),
            (5, 100, 0),
            (9, 100, 0),
        ],
    )
    def test_up_to_the_limit(self, encoder: Encoder, start: int, room: int, count: int) -> None:
        assert encoder.count_fitting(self.RECORDS, start, HEADER_SIZE + room) == count
        assert encoder.count_fitting(tuple(self.RECORDS), start, HEADER_SIZE + room) == count

    def test_start_before_the_records(self, encoder: Encoder) -> None:
        with pytest.raises(ValueError, match="start -1, expected 0 or more"):
            encoder.count_fitting(self.RECORDS, -1, 100)


class Meddler(bytes):
    """A field that does something else while it is read."""

    action: Any = None

    def __bytes__(self) -> bytes:
        self.action()
        return self[:]


def test_a_list_that_shrinks_while_it_is_encoded_is_encoded_as_it_was(encoder: Encoder) -> None:
    """Room is taken for the records that are there, and one of them is large."""
    large = Meddler(bytes(1 << 20))
    records: list[Any] = [(T, None, b"", ()), (T, None, large, ()), (T, None, b"", ())]
    expected, _ = encoder.encode([(T, None, bytes(1 << 20) if r[2] else b"", ()) for r in records])
    large.action = records.clear
    assert encoder.encode(records)[0] == expected


def test_a_list_that_grows_while_it_is_encoded_is_encoded_as_it_was(encoder: Encoder) -> None:
    meddler = Meddler(b"a")
    records: list[Any] = [(T, None, meddler, ())]
    meddler.action = lambda: records.extend([(T, None, b"b", ())] * 100)
    expected, _ = encoder.encode([(T, None, b"a", ())], None, [5])
    assert encoder.encode(records, None, [5])[0] == expected


def test_a_list_that_shrinks_while_it_is_measured(encoder: Encoder) -> None:
    meddler = Meddler(b"a")
    records: list[Any] = [(T, None, meddler, ()), *[(T, None, b"b", ())] * 100]
    meddler.action = records.clear
    with pytest.raises(IndexError):
        encoder.count_fitting(records, 0, 1 << 20)
