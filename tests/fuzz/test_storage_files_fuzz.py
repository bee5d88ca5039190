"""Small storage files: any bytes give a value or a `LogDataError`, nothing else."""

from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.errors import CorruptCheckpointError, CorruptSnapshotError
from odradek.model import TopicPartition
from odradek.storage.directories.checkpoints import (
    encode_epoch_checkpoint,
    encode_offset_checkpoint,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
)
from odradek.storage.producers.entry import ProducerEntry
from odradek.storage.producers.snapshot import encode_snapshot, parse_snapshot

fuzzed = settings(max_examples=200, deadline=None)

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
# Bytes that a checkpoint is made of, in any order, so that some of them get far.
texts = st.lists(
    st.sampled_from([b"0", b"1", b"2", b"9", b" ", b"\n", b"0\n", b"t", b"-", b"\xff", b"t 0 5\n"]),
    max_size=12,
).map(b"".join)
checkpoint_bytes = st.one_of(
    st.binary(max_size=64),
    texts,
    texts.map(lambda text: b"0\n1\n" + text),
    texts.map(lambda text: b"0\n2\n" + text),
)


def packed(*fields: tuple[int, int]) -> bytes:
    return b"".join(value.to_bytes(size, "big", signed=True) for value, size in fields)


entry_bytes = st.one_of(
    st.binary(min_size=46, max_size=46),
    st.builds(
        lambda *values: packed(*zip(values, (8, 2, 4, 8, 4, 8, 4, 8), strict=True)),
        st.integers(0, 3),
        int16s,
        int32s,
        st.integers(-1, 100),
        st.integers(0, 100),
        int64s,
        int32s,
        st.integers(-1, 100),
    ),
)


@st.composite
def snapshot_bytes(draw: st.DrawFn) -> bytes:
    """A snapshot with a good checksum, and whatever it covers."""
    entries = draw(st.lists(entry_bytes, max_size=4))
    count = draw(st.one_of(st.just(len(entries)), int32s))
    body = packed((count, 4)) + b"".join(entries) + draw(st.sampled_from([b"", b"", b"\0"]))
    return b"\0\1" + crc32c(body).to_bytes(4, "big") + body


@fuzzed
@given(checkpoint_bytes)
@example(b"0\n1\nt 0 " + b"9" * 5000 + b"\n")
def test_offset_checkpoint_of_any_bytes(data: bytes) -> None:
    try:
        offsets = parse_offset_checkpoint(data, "f")
    except CorruptCheckpointError:
        return
    assert sorted(encode_offset_checkpoint(offsets).split(b"\n")) == sorted(
        (data or b"0\n0\n").split(b"\n")
    )


@fuzzed
@given(checkpoint_bytes)
def test_epoch_checkpoint_of_any_bytes(data: bytes) -> None:
    try:
        entries = parse_epoch_checkpoint(data, "f")
    except CorruptCheckpointError:
        return
    assert encode_epoch_checkpoint(entries) == (data or b"0\n0\n")


@fuzzed
@given(
    st.dictionaries(
        st.builds(
            TopicPartition,
            st.text("abcXYZ019._-", min_size=1, max_size=20),
            st.integers(0, 2**31 - 1),
        ),
        st.integers(0, 2**63 - 1),
        max_size=6,
    )
)
def test_offset_checkpoint_round_trip(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offset_checkpoint(encode_offset_checkpoint(offsets), "f") == offsets


@fuzzed
@given(st.one_of(st.binary(max_size=120), snapshot_bytes()))
def test_snapshot_of_any_bytes(data: bytes) -> None:
    try:
        entries = parse_snapshot(data, "f")
    except CorruptSnapshotError:
        return
    again = parse_snapshot(encode_snapshot(entries), "f")
    assert [repr(entry) for entry in again] == [repr(entry) for entry in entries]
    assert all(isinstance(entry, ProducerEntry) for entry in entries)
    assert len({entry.producer_id for entry in entries}) == len(entries)
