"""The shared nouns."""

import uuid

import pytest

from odradek.model import (
    Endpoint,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
    parse_uuid,
    uuid_text,
)


def test_topic_partitions_are_keys_in_the_order_of_name_and_number() -> None:
    unordered = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]

    assert [str(tp) for tp in sorted(unordered)] == ["a-9", "a-10", "b-0"]
    assert {TopicPartition("a", 1): "x"}[TopicPartition("a", 1)] == "x"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        pytest.param("broker.example", "CLIENTS://broker.example:9092", id="name"),
        pytest.param("::1", "CLIENTS://[::1]:9092", id="IPv6 in brackets"),
    ],
)
def test_connection_string(host: str, expected: str) -> None:
    endpoint = Endpoint(host, 9092, "CLIENTS", SecurityProtocol.SSL)

    assert endpoint.connection_string == expected


def test_a_reassignment_holds_old_and_new_replicas_until_it_is_done() -> None:
    moving = ReplicaAssignment((1, 2, 3)).reassign_to((3, 4, 5))

    assert moving == ReplicaAssignment((3, 4, 5, 1, 2), adding=(4, 5), removing=(1, 2))
    assert moving.is_being_reassigned
    assert moving.origin == (3, 1, 2)
    assert moving.target == (3, 4, 5)


def test_a_reassignment_can_be_replaced_by_another() -> None:
    moving = ReplicaAssignment((1, 2)).reassign_to((2, 3)).reassign_to((4, 1))

    assert set(moving.origin) == {1, 2}
    assert moving.target == (4, 1)


def test_reordering_replicas_moves_nothing() -> None:
    reordered = ReplicaAssignment((1, 2, 3)).reassign_to((3, 1, 2))

    assert reordered == ReplicaAssignment((3, 1, 2))
    assert not reordered.is_being_reassigned


def test_a_removed_replica_leaves_all_lists() -> None:
    moving = ReplicaAssignment((3, 4, 1), adding=(3, 4), removing=(1,))

    assert moving.remove_replica(1) == ReplicaAssignment((3, 4), adding=(3, 4))
    assert moving.remove_replica(4) == ReplicaAssignment((3, 1), adding=(3,), removing=(1,))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (uuid.UUID(int=0), "AAAAAAAAAAAAAAAAAAAAAA"),
        (uuid.UUID(int=1), "AAAAAAAAAAAAAAAAAAAAAQ"),
        (uuid.UUID(bytes=b"\xfb\xff" * 8), "-__7__v_-__7__v_-__7_w"),
    ],
)
def test_ids_are_written_in_base64url(value: uuid.UUID, text: str) -> None:
    assert uuid_text(value) == text
    assert parse_uuid(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "A" * 21, "A" * 23, "A" * 21 + "=", "A" * 21 + "é", "A" * 10 + " " + "A" * 11],
)
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="id"):
        parse_uuid(text)
