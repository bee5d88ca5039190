"""Which batches are written, skipped and refused, by the last marker."""

import pytest

from odradek.spark.transactional.errors import ExactlyOnceError
from odradek.spark.transactional.marker import Marker, QueryIdentity, digest_of, is_to_be_written


def marker_of(batch: int, digest: str = "d") -> Marker:
    return Marker(batch=batch, digest=digest, rows=3, transactional_id="odradek-spark:n:q:t")


def judge(
    batch: int, marker: Marker | None, *, first_batch: int | None = 0, has_marker: bool = True
) -> bool:
    return is_to_be_written(batch, "d", marker, first_batch=first_batch, has_marker=has_marker)


@pytest.mark.parametrize(
    ("batch", "marker", "first_batch", "has_marker"),
    [
        pytest.param(0, None, None, False, id="the first batch of a query"),
        pytest.param(7, None, None, False, id="a query that was at least once before"),
        pytest.param(7, None, 7, False, id="the first one again"),
        pytest.param(7, marker_of(6), 0, True, id="the next one"),
        pytest.param(7, marker_of(3), None, False, id="it was at least once in between"),
    ],
)
def test_batches_that_are_written(
    batch: int, marker: Marker | None, first_batch: int | None, has_marker: bool
) -> None:
    """12:SP-24."""
    assert judge(batch, marker, first_batch=first_batch, has_marker=has_marker)


def test_a_committed_batch_is_skipped() -> None:
    """12:SP-24: same batch and hash."""
    assert not judge(7, marker_of(7))
    assert not judge(7, marker_of(7), first_batch=None, has_marker=False)


@pytest.mark.parametrize(
    ("batch", "marker", "first_batch", "has_marker", "why"),
    [
        (7, marker_of(7, "other"), 0, True, "batch 7 was committed with other offsets"),
        (7, marker_of(9), 0, True, "batch 9 was committed already, and this checkpoint is at"),
        (7, marker_of(9), None, False, "batch 9 was committed already, and this checkpoint is at"),
        (7, None, 0, True, "expected the marker of batch 6 or 7"),
        (7, None, 6, False, "expected the marker of batch 6 or 7"),
        (7, None, 7, True, "expected the marker of batch 6 or 7"),
        (7, marker_of(5), 0, True, "found that of batch 5: the topic has lost records"),
        (2, None, 5, False, "batch 2 comes before batch 5"),
    ],
)
def test_batches_that_are_refused(
    batch: int, marker: Marker | None, first_batch: int | None, has_marker: bool, why: str
) -> None:
    """12:SP-24: other hash, a later batch, a marker gone that this query had."""
    with pytest.raises(ExactlyOnceError, match=why) as raised:
        judge(batch, marker, first_batch=first_batch, has_marker=has_marker)
    assert "Nothing was written" in str(raised.value)


def test_a_marker_there_and_back() -> None:
    marker = marker_of(4, digest_of(b"v1\n{}\n{}"))
    assert Marker.parse(marker.encode()) == marker


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"{}",
        marker_of(1).encode().replace(b'"v": 1', b'"v": 2'),
        marker_of(1).encode().replace(b'"batch": 1', b'"batch": "1"'),
        marker_of(1).encode().replace(b'"batch": 1', b'"batch": true'),
        marker_of(1).encode().replace(b'"offsets_sha256": "d"', b'"offsets_sha256": 1'),
    ],
)
def test_any_other_value_is_refused(value: bytes) -> None:
    with pytest.raises(ExactlyOnceError, match="expected a marker of version 1"):
        Marker.parse(value)


def test_an_identity_names_query_and_target() -> None:
    """12:SP-23."""
    one = QueryIdentity(name="orders.totals", query_id="42-43", target="country-totals")
    assert one.transactional_id == "odradek-spark:orders.totals:42-43:country-totals"
    other_name = QueryIdentity(name="shop.totals", query_id="42-43", target="country-totals")
    other_target = QueryIdentity(name="orders.totals", query_id="42-43", target="totals")
    assert one.key == other_name.key != other_target.key
