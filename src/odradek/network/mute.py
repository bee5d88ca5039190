"""Why a connection is not read from: the states of its muting, as a table. Pure.

A connection takes one request at a time. From the moment a request was received until its answer
is in the send queue (or it turned out to need none) the connection is muted; a client over
its quota stays muted until its throttle time has passed as well. Both may end in either order, and
only when both have ended is the connection read again.

=================  ======================  ============================  =========================
event, from        MUTED                   …_RESPONSE_PENDING            …_THROTTLED
=================  ======================  ============================  =========================
REQUEST_RECEIVED   …_RESPONSE_PENDING
RESPONSE_SENT                              MUTED
THROTTLE_STARTED                           …_THROTTLED_AND_RESPONSE_…
THROTTLE_ENDED                                                           MUTED
=================  ======================  ============================  =========================

and from MUTED_AND_THROTTLED_AND_RESPONSE_PENDING: RESPONSE_SENT leads to MUTED_AND_THROTTLED,
THROTTLE_ENDED to MUTED_AND_RESPONSE_PENDING. `mute` leads from NOT_MUTED to MUTED, `unmute` back.
Every other pair is a bug of ours.

Example: a throttled Produce goes NOT_MUTED, (mute) MUTED, (received) RESPONSE_PENDING, (throttle
started) THROTTLED_AND_RESPONSE_PENDING, (answer queued) THROTTLED, (200 ms later) MUTED, (unmute)
NOT_MUTED.
"""

from enum import IntEnum
from typing import Final

from odradek.errors import InvariantViolation

__all__ = ["WHILE_HANDLING", "MuteEvent", "MuteState", "after", "mute", "unmute"]


class MuteState(IntEnum):
    """Whether and why a connection is muted. Only NOT_MUTED is false."""

    NOT_MUTED = 0
    MUTED = 1
    MUTED_AND_RESPONSE_PENDING = 2
    MUTED_AND_THROTTLED = 3
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = 4


class MuteEvent(IntEnum):
    """An event in the life of a connection's request."""

    REQUEST_RECEIVED = 0
    RESPONSE_SENT = 1
    THROTTLE_STARTED = 2
    THROTTLE_ENDED = 3


_TRANSITIONS: Final = {
    (MuteState.MUTED, MuteEvent.REQUEST_RECEIVED): MuteState.MUTED_AND_RESPONSE_PENDING,
    (MuteState.MUTED_AND_RESPONSE_PENDING, MuteEvent.RESPONSE_SENT): MuteState.MUTED,
    (
        MuteState.MUTED_AND_RESPONSE_PENDING,
        MuteEvent.THROTTLE_STARTED,
    ): MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
    (MuteState.MUTED_AND_THROTTLED, MuteEvent.THROTTLE_ENDED): MuteState.MUTED,
    (
        MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
        MuteEvent.RESPONSE_SENT,
    ): MuteState.MUTED_AND_THROTTLED,
    (
        MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
        MuteEvent.THROTTLE_ENDED,
    ): MuteState.MUTED_AND_RESPONSE_PENDING,
}


def after(state: MuteState, event: MuteEvent) -> MuteState:
    """The state that follows.

    Raises:
        InvariantViolation: The event cannot happen in this state.
    """
    following = _TRANSITIONS.get((state, event))
    if following is None:
        raise InvariantViolation(f"{event.name} cannot happen to a connection that is {state.name}")
    return following


def mute(state: MuteState) -> MuteState:
    """Stops reading; a connection that is muted already stays as it is."""
    return MuteState.MUTED if state is MuteState.NOT_MUTED else state


def unmute(state: MuteState) -> MuteState:
    """Reads again if no reason is left; otherwise nothing changes."""
    return MuteState.NOT_MUTED if state is MuteState.MUTED else state


# The state of an unmuted connection after a request arrived, in one step for the hot path.
WHILE_HANDLING: Final = after(mute(MuteState.NOT_MUTED), MuteEvent.REQUEST_RECEIVED)
