"""The checker's own reading of segment files, beside batches that the product's builder makes."""

import pytest

from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from tests.chaos.checker import parse_batches
from tests.support.logs import marker


def built(base: int, *values: bytes, **fields: int) -> bytes:
    records = [(1000, b"k" * (base % 3), value, ()) for value in values]
    return bytes(build_batch(records, base_offset=base, **fields))  # type: ignore[arg-type]  # by name


def test_batches_are_read_with_offsets_epochs_and_values() -> None:
    segment = built(7, b"a", b"bb" * 100, leader_epoch=3) + built(9, b"c", leader_epoch=4)

    first, second = parse_batches(segment)

    assert (first.base_offset, first.last_offset, first.leader_epoch) == (7, 8, 3)
    assert first.records == ((7, "a"), (8, "bb" * 100))
    assert (second.base_offset, second.leader_epoch, second.records) == (9, 4, ((9, "c"),))


def test_the_digest_is_of_all_bytes() -> None:
    one, other = built(0, b"a", leader_epoch=1), built(0, b"a", leader_epoch=2)

    [first], [same], [different] = (list(parse_batches(batch)) for batch in (one, one, other))

    assert first.digest == same.digest != different.digest


@pytest.mark.parametrize("missing", [1, 30])
def test_a_torn_batch_at_the_end_is_left_out(missing: int) -> None:
    segment = built(0, b"a") + built(1, b"b")

    assert len(list(parse_batches(segment[:-missing]))) == 1


def test_a_control_batch_has_no_values() -> None:
    [batch] = parse_batches(bytes(marker(commit=True, base_offset=5)))

    assert (batch.base_offset, batch.records) == (5, ())


def test_a_compressed_batch_is_refused() -> None:
    batch = bytes(build_batch([(1000, b"k", b"v" * 100, ())], codec=Codec.GZIP))

    with pytest.raises(ValueError, match="expected an uncompressed batch of magic 2"):
        list(parse_batches(batch))
