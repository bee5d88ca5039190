"""Addresses, deadlines and pauses."""

from itertools import islice
from random import Random

import pytest

from odradek.client.config import parse_addresses
from odradek.client.retry import Deadline, backoff_ms
from odradek.errors import ConfigError
from odradek.testing import ManualClock


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", (("localhost", 9092),)),
        ("a:1, b:65535,", (("a", 1), ("b", 65535))),
        ("[::1]:9092", (("::1", 9092),)),
    ],
)
def test_addresses(text: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    "text", ["", ",", "localhost", ":9092", "a:", "a:0", "a:65536", "a:b", "::1:9092", "a:٣"]
)
def test_bad_addresses_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers") as error:
        parse_addresses(text)
    assert "HOST:PORT" in error.value.why


def test_a_deadline_counts_down_to_zero() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 1_000)

    clock.advance(400)
    assert deadline.left_ms() == 600
    assert deadline.within(50).left_ms() == 50
    assert deadline.within(5_000).left_ms() == 600
    clock.advance(700)
    assert deadline.left_ms() == 0


def test_pauses_double_up_to_the_last_and_differ_by_a_fifth() -> None:
    """09:CL-2: retry.backoff.ms to retry.backoff.max.ms, plus or minus 20 %."""
    pauses = list(islice(backoff_ms(100, 1_000, Random(1)), 8))

    for pause, middle in zip(pauses, [100, 200, 400, 800, 1000, 1000, 1000, 1000], strict=True):
        assert middle * 0.8 <= pause <= middle * 1.2
    assert len(set(pauses)) > 4
