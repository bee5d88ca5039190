"""Leader election: the rules of the four elections, and of a partition's first leader. Pure.

AR is the ordered list of replicas, "live" says which of them are online. Every rule takes the
*first* match in list order; AR order counts, not the order of the ISR. None: no replica can lead.

===================  ====================================  ====================  =================
Strategy             leader: first of                      ISR afterwards        recipients
===================  ====================================  ====================  =================
OFFLINE              AR, live and in ISR; if none, and     its live members;     live replicas
                     unclean is permitted: AR, live        unclean: the leader
REASSIGN             target replicas, live and in ISR      unchanged             target replicas
PREFERRED            AR[0] alone, live and in ISR          unchanged             AR
CONTROLLED_SHUTDOWN  AR, live, in ISR, not shutting down   less those shutting   live replicas, or
                                                           down                  shutting down
first leader         AR, live                              all live of AR        the ISR
===================  ====================================  ====================  =================

Example: AR [1, 2, 3], ISR [3, 2], broker 1 is dead. OFFLINE elects 2, and the ISR stays [3, 2].
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from odradek.model import ReplicaAssignment

__all__ = ["Candidates", "Election", "Strategy", "elect", "elect_first"]


class Strategy(Enum):
    """Why a leader is elected."""

    OFFLINE = "offline"  # Unclean only where the topic's configuration permits it.
    OFFLINE_UNCLEAN = "offline, unclean allowed"  # An administrator asked for it.
    REASSIGN = "reassign"
    PREFERRED = "preferred"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


class Election(NamedTuple):
    """The outcome of an election."""

    leader: int
    isr: tuple[int, ...]
    recipients: tuple[int, ...]  # Brokers that get the outcome.
    is_unclean: bool = False


class Candidates(NamedTuple):
    """The input of an election for one partition."""

    assignment: ReplicaAssignment
    isr: tuple[int, ...]
    # Online replicas; in a controlled shutdown those of brokers that are shutting down, too.
    live: frozenset[int]
    shutting_down: frozenset[int] = frozenset()


def elect_first(assignment: ReplicaAssignment, live: frozenset[int]) -> Election | None:
    """The leader of a partition that never had one."""
    isr = tuple(r for r in assignment.replicas if r in live)
    return Election(isr[0], isr, isr) if isr else None


def elect(
    strategy: Strategy, candidates: Candidates, *, is_unclean_permitted: bool = False
) -> Election | None:
    """The next leader of a partition; None if no replica can lead."""
    if strategy is Strategy.OFFLINE_UNCLEAN:
        return _offline(candidates, is_unclean_permitted=True)
    if strategy is Strategy.OFFLINE:
        return _offline(candidates, is_unclean_permitted=is_unclean_permitted)
    return _RULES[strategy](candidates)


def _offline(candidates: Candidates, *, is_unclean_permitted: bool) -> Election | None:
    live = tuple(r for r in candidates.assignment.replicas if r in candidates.live)
    leader = next((r for r in live if r in candidates.isr), None)
    if leader is not None:
        return Election(leader, tuple(r for r in candidates.isr if r in candidates.live), live)
    if is_unclean_permitted and live:
        return Election(live[0], (live[0],), live, is_unclean=True)
    return None


def _reassign(candidates: Candidates) -> Election | None:
    target = candidates.assignment.target
    return _unchanged_isr(target, target, candidates)


def _preferred(candidates: Candidates) -> Election | None:
    replicas = candidates.assignment.replicas
    return _unchanged_isr(replicas[:1], replicas, candidates)


def _unchanged_isr(
    choice: tuple[int, ...], recipients: tuple[int, ...], candidates: Candidates
) -> Election | None:
    for replica in choice:
        if replica in candidates.live and replica in candidates.isr:
            return Election(replica, candidates.isr, recipients)
    return None


def _controlled_shutdown(candidates: Candidates) -> Election | None:
    live = tuple(r for r in candidates.assignment.replicas if r in candidates.live)
    for replica in live:
        if replica in candidates.isr and replica not in candidates.shutting_down:
            isr = tuple(r for r in candidates.isr if r not in candidates.shutting_down)
            return Election(replica, isr, live)
    return None


_RULES: dict[Strategy, Callable[[Candidates], Election | None]] = {
    Strategy.REASSIGN: _reassign,
    Strategy.PREFERRED: _preferred,
    Strategy.CONTROLLED_SHUTDOWN: _controlled_shutdown,
}
