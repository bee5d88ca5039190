"""A consumer's side of fetch sessions: what is told, what is left out, how they begin anew."""

import pytest

from odradek.client.consumer.fetch_session import FetchSession, Wanted
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
ID_A, ID_B = b"a" * 16, b"b" * 16
WANTED = {A: Wanted(ID_A, 5, 1), B: Wanted(ID_B, 7, 1)}


def opened() -> FetchSession:
    session = FetchSession()
    session.build(WANTED)
    session.accept(77)
    return session


def test_the_first_request_is_full_and_asks_for_a_session() -> None:
    """09:CL-26."""
    assert FetchSession().build(WANTED) == (0, 0, WANTED, {})


def test_later_requests_tell_only_what_changed() -> None:
    """09:CL-26."""
    session = opened()
    assert session.build(WANTED) == (77, 1, {}, {})
    session.accept(77)
    moved = {A: Wanted(ID_A, 6, 1)}
    assert session.build(moved) == (77, 2, moved, {B: ID_B})
    session.accept(77)
    assert session.build(WANTED) == (77, 3, WANTED, {})


def test_a_topic_made_anew_under_its_name_is_another_one() -> None:
    session = opened()
    anew = {**WANTED, A: Wanted(ID_B, 0, 0)}
    assert session.build(anew) == (77, 1, {A: Wanted(ID_B, 0, 0)}, {A: ID_A})


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 77),
        (None, 0),
    ],
)
def test_after_a_refusal_or_a_lost_answer_everything_is_told_again(
    code: ErrorCode | None, session_id: int
) -> None:
    """09:CL-26."""
    session = opened()
    session.build({A: WANTED[A]})
    session.fail(code)
    assert session.build(WANTED) == (session_id, 0, WANTED, {})
    session.accept(78)
    assert session.build(WANTED) == (78, 1, {}, {})


def test_a_broker_that_keeps_no_session_is_told_everything_each_time() -> None:
    session = FetchSession()
    session.build(WANTED)
    session.accept(0)
    assert session.build(WANTED) == (0, 0, WANTED, {})


def test_from_names_to_ids_a_session_begins_anew() -> None:
    session = FetchSession()
    session.build(WANTED, has_ids=False)
    session.accept(77)
    assert session.build(WANTED, has_ids=True) == (77, 0, WANTED, {})


def test_the_end_is_told_if_there_is_a_session() -> None:
    assert FetchSession().end() is None
    assert opened().end() == (77, -1, {}, {})
