"""Where a follower's log is cut, or begins anew, so that it is a prefix of the leader's. Pure.

**Diverged logs.** The leader answers for the follower's last epoch with the largest epoch of its
own log that is not larger, and the offset at which that epoch ended there. Worked example::

    leader     epoch 1: 0-19    epoch 3: 20-39
    follower   epoch 1: 0-24    epoch 2: 25-29

    the follower asks for epoch 2; the leader answers (1, 20)
    the follower's epoch 1 ended at 25: it cuts at min(25, 20) = 20, and the logs agree

If the follower does not know the leader's epoch, either, it cuts at the end of its own largest
epoch below and asks again with that one, until the epochs meet (KAFKA-6361).

**Out of range.** The leader does not have the offset that the follower asks for::

    the leader ends at 80, the follower at 100     an unclean election: cut at 80
    the leader starts at 40, the follower ends at 10    begin anew at 40: 10 to 39 are deleted
    the leader has 40 to 89, the follower ends at 60    continue at 60
"""

from typing import NamedTuple

__all__ = ["UNDEFINED", "Reset", "Truncation", "decide_reset", "decide_truncation"]

UNDEFINED = -1  # An epoch or offset that the leader does not know.


class Truncation(NamedTuple):
    """Where to cut a log, and whether it agrees with the leader's afterwards."""

    offset: int
    is_complete: bool


def decide_truncation(
    *,
    leader_epoch: int,
    leader_end: int,
    own_epoch: int,
    own_epoch_end: int,
    log_end: int,
    fetch_offset: int,
) -> Truncation:
    """Decides where to cut.

    Args:
        leader_epoch: The leader's largest epoch not above the one that was asked for; -1 undefined.
        leader_end: The offset at which it ended on the leader; -1 undefined.
        own_epoch: The largest epoch of the local log not above `leader_epoch`; -1 without one.
        own_epoch_end: Where that ended here.
        log_end: The end of the local log.
        fetch_offset: Where the partition stands: its high watermark, if nothing better is known.
    """
    if leader_end == UNDEFINED:
        return Truncation(min(fetch_offset, log_end), True)
    if leader_epoch == UNDEFINED or own_epoch == UNDEFINED:
        return Truncation(min(leader_end, log_end), True)
    if own_epoch != leader_epoch:
        return Truncation(min(own_epoch_end, log_end), False)
    return Truncation(min(own_epoch_end, leader_end, log_end), True)


class Reset(NamedTuple):
    """How a follower continues whose offset the leader does not have."""

    offset: int
    lag: int
    is_restart: bool  # The local log is emptied and begins at the offset; otherwise it is cut.


def decide_reset(*, log_end: int, leader_end: int, leader_start: int | None) -> Reset | None:
    """Decides where to continue; None if the leader's start is needed for it, and not given."""
    if leader_end < log_end:
        return Reset(leader_end, 0, False)
    if leader_start is None:
        return None
    offset = max(leader_start, log_end)
    return Reset(offset, max(0, leader_end - offset), leader_start > log_end)
