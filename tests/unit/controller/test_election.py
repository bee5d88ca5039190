"""The four elections and the first leader, by the table of the specification."""

import pytest

from odradek.controller.election import Candidates, Election, Strategy, elect, elect_first
from odradek.model import ReplicaAssignment

AR = ReplicaAssignment((1, 2, 3))


def candidates(
    assignment: ReplicaAssignment,
    isr: list[int],
    live: set[int],
    shutting_down: frozenset[int] | set[int] = frozenset(),
) -> Candidates:
    return Candidates(assignment, tuple(isr), frozenset(live), frozenset(shutting_down))


TARGET_4_5_6 = ReplicaAssignment((4, 5, 6, 1, 2, 3), adding=(4, 5, 6), removing=(1, 2, 3))
TARGET_4_5 = ReplicaAssignment((4, 5, 1), adding=(4, 5), removing=(1,))


@pytest.mark.parametrize(
    ("strategy", "known", "is_unclean_permitted", "leader", "isr"),
    [
        pytest.param(
            Strategy.OFFLINE, candidates(AR, [3, 2], {2, 3}), False, 2, (3, 2), id="03b:E1"
        ),
        pytest.param(Strategy.OFFLINE, candidates(AR, [1], {2, 3}), False, None, (), id="03b:E2"),
        pytest.param(Strategy.OFFLINE, candidates(AR, [1], {2, 3}), True, 2, (2,), id="03b:E3"),
        pytest.param(Strategy.OFFLINE, candidates(AR, [1], set()), True, None, (), id="03b:E4"),
        pytest.param(
            Strategy.PREFERRED, candidates(AR, [2, 3], {1, 2, 3}), False, None, (), id="03b:E5"
        ),
        pytest.param(
            Strategy.PREFERRED, candidates(AR, [2, 1], {1, 2, 3}), False, 1, (2, 1), id="03b:E6"
        ),
        pytest.param(
            Strategy.REASSIGN,
            candidates(TARGET_4_5, [1, 5, 4], {1, 4, 5}),
            False,
            4,
            (1, 5, 4),
            id="03b:E7",
        ),
        pytest.param(
            Strategy.CONTROLLED_SHUTDOWN,
            candidates(AR, [1, 2, 3], {1, 2, 3}, {1}),
            False,
            2,
            (2, 3),
            id="03b:E8",
        ),
        pytest.param(
            Strategy.CONTROLLED_SHUTDOWN,
            candidates(ReplicaAssignment((1, 2)), [1], {1, 2}, {1}),
            False,
            None,
            (),
            id="03b:E9",
        ),
        pytest.param(
            Strategy.REASSIGN,
            candidates(TARGET_4_5_6, [1, 2, 3, 4, 5, 6], {1, 2, 3, 4, 5, 6}),
            False,
            4,
            (1, 2, 3, 4, 5, 6),
            id="08:F-18-reassigned",
        ),
        pytest.param(
            Strategy.PREFERRED,
            candidates(ReplicaAssignment((3, 2, 1)), [1, 2, 3], {1, 2, 3}),
            False,
            3,
            (1, 2, 3),
            id="08:F-18-preferred",
        ),
    ],
)
def test_elections(
    strategy: Strategy,
    known: Candidates,
    is_unclean_permitted: bool,
    leader: int | None,
    isr: tuple[int, ...],
) -> None:
    election = elect(strategy, known, is_unclean_permitted=is_unclean_permitted)
    if leader is None:
        assert election is None
    else:
        assert election is not None
        assert (election.leader, election.isr) == (leader, isr)
        # 03b:E3, 03b:E4: the meter is marked for unclean ones that happened.
        assert election.is_unclean == (leader not in known.isr)


def test_the_first_leader_is_the_first_live_replica() -> None:
    """03b:E10"""
    assert elect_first(ReplicaAssignment((3, 1, 2)), frozenset({1, 2})) == Election(
        1, (1, 2), (1, 2)
    )
    assert elect_first(AR, frozenset()) is None


def test_an_administrator_may_force_an_unclean_leader() -> None:
    election = elect(Strategy.OFFLINE_UNCLEAN, candidates(AR, [1], {3}))
    assert election == Election(3, (3,), (3,), is_unclean=True)


def test_who_is_told() -> None:
    told = {
        strategy: election.recipients
        for strategy in Strategy
        if (election := elect(strategy, candidates(AR, [1, 2], {1, 2}))) is not None
    }
    assert told == {
        Strategy.OFFLINE: (1, 2),
        Strategy.OFFLINE_UNCLEAN: (1, 2),
        Strategy.REASSIGN: (1, 2, 3),
        Strategy.PREFERRED: (1, 2, 3),
        Strategy.CONTROLLED_SHUTDOWN: (1, 2),
    }
