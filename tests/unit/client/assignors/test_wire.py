"""Subscriptions and assignments: their bytes, and what a reader makes of strange ones."""

import pytest

from odradek.client.assignors import (
    CooperativeStickyAssignor,
    StickyAssignor,
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)
from odradek.client.assignors.wire import parse_sticky_data
from odradek.errors import DecodeError
from odradek.model import TopicPartition

FULL = Subscription(
    topics=("a", "b"),
    user_data=b"u",
    owned=(TopicPartition("a", 0), TopicPartition("a", 2)),
    generation=7,
    rack="r1",
)
TOPICS = b"\0\0\0\2\0\1a\0\1b"
OWNED = b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\2"
USER_DATA = b"\0\0\0\1u"


def test_the_bytes_of_a_subscription() -> None:
    assert encode_subscription(FULL) == (
        b"\0\3" + TOPICS + USER_DATA + OWNED + b"\0\0\0\7" + b"\0\2r1"
    )
    assert encode_subscription(FULL, 0) == b"\0\0" + TOPICS + USER_DATA


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Subscription(topics=FULL.topics, user_data=b"u")),
        (1, Subscription(topics=FULL.topics, user_data=b"u", owned=FULL.owned)),
        (2, Subscription(topics=FULL.topics, user_data=b"u", owned=FULL.owned, generation=7)),
        (3, FULL),
    ],
)
def test_each_version_reads_back(version: int, expected: Subscription) -> None:
    assert parse_subscription(encode_subscription(FULL, version)) == expected


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    newer = b"\0\x09" + encode_subscription(FULL)[2:] + b"whatever follows"
    assert parse_subscription(newer) == FULL
    assert parse_assignment(b"\0\x09" + OWNED + b"\xff\xff\xff\xff" + b"more") == FULL.owned


def test_the_bytes_of_an_assignment() -> None:
    assert encode_assignment(FULL.owned) == b"\0\3" + OWNED + b"\xff\xff\xff\xff"
    assert parse_assignment(encode_assignment(())) == ()
    assert parse_assignment(b"") == ()


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\5", b"\0\0\0\0\0\1\0\1"])
def test_anything_else_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_subscription(data)


def test_user_data_of_the_sticky_strategies() -> None:
    data = StickyAssignor().user_data(FULL.owned, 5)
    assert data == OWNED + b"\0\0\0\5"
    assert parse_sticky_data(data) == (FULL.owned, 5)
    assert parse_sticky_data(OWNED) == (FULL.owned, -1)
    assert CooperativeStickyAssignor().user_data(FULL.owned, 5) == b"\0\0\0\5"
