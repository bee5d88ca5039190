"""When a link is silent for too long, and when a session must be taken for lost. Pure.

A server ends a session that it has not heard of for the session's timeout T, so

1. a ping is sent T/3 after the last request;
2. a link on which nothing came for 2/3 T is broken: the rest is for another server;
3. a session whose last *acknowledged* request was sent T ago or earlier is lost: the server may
   have ended it, and another broker may have taken its place. Rule 2 breaks the link before, so
   this is the event loop's own doing: it was held, or the process was stopped, for that long.

With T = 18 s and requests only at 0: ping at 6, answered at 6.01: T counts from 6 on; if no answer
comes, the link is broken at 12.
"""

from enum import Enum

__all__ = ["Liveness", "Verdict"]


class Verdict(Enum):
    """What has to be done about a link."""

    NOTHING = "nothing"
    PING = "ping"
    BROKEN = "broken"
    LOST = "lost"


class Liveness:
    """The times of one link, in milliseconds of a monotonic clock."""

    __slots__ = ("_acknowledged_ms", "_heard_ms", "_sent_ms", "timeout_ms")

    def __init__(self, timeout_ms: int, now_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._sent_ms = now_ms
        self._heard_ms = now_ms
        # When the last request was sent that the server has answered.
        self._acknowledged_ms = now_ms

    def sent(self, now_ms: int) -> None:
        """A request was sent."""
        self._sent_ms = now_ms

    def heard(self, now_ms: int) -> None:
        """Bytes came from the server."""
        self._heard_ms = now_ms

    def acknowledged(self, sent_ms: int) -> None:
        """The server answered a request that was sent at `sent_ms`."""
        self._acknowledged_ms = max(self._acknowledged_ms, sent_ms)

    def judge(self, now_ms: int) -> Verdict:
        """What has to be done now."""
        if now_ms - self._acknowledged_ms >= self.timeout_ms:
            return Verdict.LOST
        if now_ms - self._heard_ms >= self._silence_ms:
            return Verdict.BROKEN
        if now_ms - self._sent_ms >= self._ping_ms:
            return Verdict.PING
        return Verdict.NOTHING

    def next_judgement_ms(self, now_ms: int) -> int:
        """How long the verdict stays `NOTHING` if nothing happens; at least 1."""
        due = min(
            self._acknowledged_ms + self.timeout_ms,
            self._heard_ms + self._silence_ms,
            self._sent_ms + self._ping_ms,
        )
        return max(1, due - now_ms)

    @property
    def _ping_ms(self) -> int:
        return self.timeout_ms // 3

    @property
    def _silence_ms(self) -> int:
        return self.timeout_ms * 2 // 3
