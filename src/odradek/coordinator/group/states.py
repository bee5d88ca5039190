"""The five states of a group, and which may follow which.

Normal life::

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance -> ...
      ^______________|  nobody joined

Any state may end in Dead, for the group moves to another coordinator at any time; Dead ends there.
"""

from enum import Enum
from typing import Final

from odradek.errors import InvariantViolation

__all__ = ["VALID_PREVIOUS", "GroupState", "check_transition"]


class GroupState(Enum):
    """What a group is doing; the value is the name tools print."""

    EMPTY = "Empty"  # No members; it may hold offsets.
    PREPARING_REBALANCE = "PreparingRebalance"  # Members are joining, for the first time or again.
    COMPLETING_REBALANCE = "CompletingRebalance"  # All joined, the leader is assigning.
    STABLE = "Stable"
    DEAD = "Dead"  # Removed, or coordinated elsewhere.


VALID_PREVIOUS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


def check_transition(group_id: str, current: GroupState, target: GroupState) -> None:
    """Raises:
    InvariantViolation: `target` cannot follow `current`.
    """
    if current not in VALID_PREVIOUS[target]:
        allowed = ", ".join(sorted(state.value for state in VALID_PREVIOUS[target]))
        raise InvariantViolation(
            f"group {group_id!r} is {current.value}: {target.value} may only follow {allowed}"
        )
