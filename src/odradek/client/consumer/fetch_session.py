"""A consumer's side of a fetch session (KIP-227): requests carry only changes. Pure.

The broker remembers the partitions of a session; a request names those that are new or at another
offset, and those that are no longer wanted. When both sides disagree (the broker was restarted, or
evicted the session) the next request is a full one, and begins a new session.

Duties of the caller: `build`, send, then exactly one of `accept` and `fail`; one request at a time.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.errors import ErrorCode
from odradek.model import TopicPartition

__all__ = ["FetchSession", "SessionRequest", "Wanted"]

_NO_SESSION: Final = 0
_INITIAL: Final = 0
_FINAL: Final = -1
_MAX_EPOCH: Final = 2**31 - 1


class Wanted(NamedTuple):
    """The part of a request for one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    last_epoch: int = -1


class SessionRequest(NamedTuple):
    """The content of a Fetch request."""

    session_id: int
    session_epoch: int
    changed: dict[TopicPartition, Wanted]
    # With the topic ids under which they were asked for.
    forgotten: dict[TopicPartition, bytes]


class FetchSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _INITIAL
        # The partitions that the broker has.
        self._known: dict[TopicPartition, Wanted] = {}
        # Those that it will have once it answers.
        self._asked: dict[TopicPartition, Wanted] = {}
        self._has_ids = False

    @property
    def session_id(self) -> int:
        return self._id

    def build(
        self, wanted: Mapping[TopicPartition, Wanted], *, has_ids: bool = True
    ) -> SessionRequest:
        """The next request, asking for exactly `wanted`.

        Args:
            has_ids: Whether topics go by id; a session has one kind only.
        """
        self._asked = dict(wanted)
        if self._id != _NO_SESSION and has_ids != self._has_ids:
            self._epoch = _INITIAL  # A full request under the old id ends the old session.
        self._has_ids = has_ids
        if self._id == _NO_SESSION or self._epoch == _INITIAL:
            return SessionRequest(self._id, _INITIAL, dict(wanted), {})
        forgotten = {}
        for tp, before in self._known.items():
            now = wanted.get(tp)
            # Another topic of the same name: remove the old one, add the new one.
            if now is None or now.topic_id != before.topic_id:
                forgotten[tp] = before.topic_id
        changed = {tp: now for tp, now in wanted.items() if self._known.get(tp) != now}
        return SessionRequest(self._id, self._epoch, changed, forgotten)

    def accept(self, session_id: int) -> None:
        """Takes the answer's session id, 0 if the broker keeps none."""
        if session_id == _NO_SESSION:
            self._reset()
            return
        if session_id != self._id or self._epoch == _INITIAL:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        self._known = self._asked

    def fail(self, code: ErrorCode | None = None) -> None:
        """Begins anew: the broker refused the request, or did not answer (None)."""
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND or code is None:
            self._reset()
        else:
            self._epoch = _INITIAL
            self._known = {}

    def end(self) -> SessionRequest | None:
        """A request that asks for nothing and ends the session; None if there is none."""
        if self._id == _NO_SESSION:
            return None
        return SessionRequest(self._id, _FINAL, {}, {})

    def _reset(self) -> None:
        self._id, self._epoch = _NO_SESSION, _INITIAL
        self._known = {}
