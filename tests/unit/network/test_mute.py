"""The states of muting: every pair of state and event."""

import pytest

from odradek.errors import InvariantViolation
from odradek.network.mute import WHILE_HANDLING, MuteEvent, MuteState, after, mute, unmute

NOT_MUTED = MuteState.NOT_MUTED
MUTED = MuteState.MUTED
PENDING = MuteState.MUTED_AND_RESPONSE_PENDING
THROTTLED = MuteState.MUTED_AND_THROTTLED
BOTH = MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING

LEGAL = {
    (MUTED, MuteEvent.REQUEST_RECEIVED): PENDING,
    (PENDING, MuteEvent.RESPONSE_SENT): MUTED,
    (PENDING, MuteEvent.THROTTLE_STARTED): BOTH,
    (THROTTLED, MuteEvent.THROTTLE_ENDED): MUTED,
    (BOTH, MuteEvent.RESPONSE_SENT): THROTTLED,
    (BOTH, MuteEvent.THROTTLE_ENDED): PENDING,
}


@pytest.mark.parametrize("state", MuteState)
@pytest.mark.parametrize("event", MuteEvent)
def test_every_pair_leads_on_or_is_refused_by_name(state: MuteState, event: MuteEvent) -> None:
    if (state, event) in LEGAL:
        assert after(state, event) is LEGAL[state, event]
    else:
        with pytest.raises(InvariantViolation, match=rf"{event.name}.*{state.name}$"):
            after(state, event)


@pytest.mark.parametrize(
    "last_two",
    [
        pytest.param((MuteEvent.RESPONSE_SENT, MuteEvent.THROTTLE_ENDED), id="02:N-18-sent-first"),
        pytest.param((MuteEvent.THROTTLE_ENDED, MuteEvent.RESPONSE_SENT), id="02:N-18-swapped"),
    ],
)
def test_a_throttled_connection_is_unmuted_after_both(
    last_two: tuple[MuteEvent, MuteEvent],
) -> None:
    state = after(mute(NOT_MUTED), MuteEvent.REQUEST_RECEIVED)
    state = after(state, MuteEvent.THROTTLE_STARTED)
    for event in last_two:
        assert unmute(state) is state
        state = after(state, event)

    assert unmute(state) is NOT_MUTED


def test_muting_twice_and_unmuting_too_early_change_nothing() -> None:
    for state in MuteState:
        assert mute(state) is (MUTED if state is NOT_MUTED else state)
        assert unmute(state) is (NOT_MUTED if state is MUTED else state)


def test_the_short_cut_of_the_hot_path_follows_from_the_table() -> None:
    assert WHILE_HANDLING is after(mute(NOT_MUTED), MuteEvent.REQUEST_RECEIVED)
    assert unmute(after(WHILE_HANDLING, MuteEvent.RESPONSE_SENT)) is NOT_MUTED
