"""From `partition.assignment.strategy` to strategies."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from odradek.client.assignors.interface import Assignor
from odradek.client.assignors.ranges import RangeAssignor
from odradek.client.assignors.round_robin import RoundRobinAssignor
from odradek.client.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from odradek.errors import ConfigError

__all__ = ["BUILT_IN", "find_assignors", "is_cooperative"]

_KEY: Final = "partition.assignment.strategy"
_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."

BUILT_IN: Final[Mapping[str, Assignor]] = MappingProxyType(
    {
        one.name: one
        for one in (
            RangeAssignor(),
            RoundRobinAssignor(),
            StickyAssignor(),
            CooperativeStickyAssignor(),
        )
    }
)
_JAVA_CLASSES: Final = {f"{_JAVA_PACKAGE}{type(one).__name__}": one for one in BUILT_IN.values()}


def find_assignors(strategies: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The strategies of a member, most wanted first: by name, by Java class name, or themselves.

    Raises:
        ConfigError: A name is unknown, one comes twice, or there is none.
    """
    found: list[Assignor] = []
    for strategy in strategies:
        assignor = _find(strategy) if isinstance(strategy, str) else strategy
        if any(assignor.name == other.name for other in found):
            raise ConfigError(_KEY, assignor.name, "named twice")
        found.append(assignor)
    if not found:
        raise ConfigError(_KEY, "", f"no strategy; there are: {', '.join(BUILT_IN)}")
    return tuple(found)


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Whether a member keeps its partitions while it joins: only if every strategy allows it."""
    return all(assignor.is_cooperative for assignor in assignors)


def _find(name: str) -> Assignor:
    assignor = BUILT_IN.get(name) or _JAVA_CLASSES.get(name)
    if assignor is None:
        close = get_close_matches(name, BUILT_IN, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(BUILT_IN)}"
        raise ConfigError(_KEY, name, f"unknown strategy; {hint}")
    return assignor
