"""In-sync replicas: a leader's view of its followers, and the decisions that follow from it. Pure.

Words:

- *committed ISR*: the one in the store, as far as this leader knows.
- *maximal ISR*: committed, plus the brokers that a change in flight would add. A member being added
  counts from the moment its change is sent, one being removed until the removal is confirmed,
  because the answer may be lost although the change was stored. The high watermark waits for the
  maximal ISR; `min.insync.replicas` is compared with the committed one.
- *caught up*: at a moment t the follower had fetched everything the leader had at t.

Worked example of catching up (fetch offset f, leader's end L, time t)::

    fetch f=100 L=100 t=1000   at the end: caught up at 1000
    fetch f=120 L=150 t=2000   120 >= 100, the end at the last fetch: caught up at 1000
    fetch f=150 L=200 t=3000   150 >= 150: caught up at 2000
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek.model import LeaderAndIsr

__all__ = [
    "NEVER_MS",
    "FollowerState",
    "IsrChange",
    "can_join_isr",
    "high_watermark_candidate",
    "out_of_sync_replicas",
]

# Before every moment of a monotonic clock, which may be near 0 when the machine has just started.
NEVER_MS = -(2**62)


class FollowerState:
    """A leader's view of one follower; fed by its fetches that carry the leader's epoch."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "told_high_watermark",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1  # Of its last fetch; -1 unless its fetches carry one.
        self.log_end_offset = -1  # Unknown until its first fetch from this leader.
        self.log_start_offset = -1
        self.last_caught_up_ms = NEVER_MS
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_end = 0  # The leader's log end at the previous fetch.
        self.told_high_watermark = -1  # In the last answer.

    def reset(self, *, now_ms: int, is_in_isr: bool, is_new_leader: bool) -> None:
        """Begins a new leader epoch: members count as caught up now, others have to catch up.

        Where the follower's log ends is still known if the leader is the same as before.
        """
        if is_new_leader:
            self.log_end_offset = -1
            self.log_start_offset = -1
        self.last_caught_up_ms = now_ms if is_in_isr else NEVER_MS
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_end = 0
        self.told_high_watermark = -1

    def is_of_earlier_life(self, broker_epoch: int) -> bool:
        """Whether a fetch was sent before its broker was registered as the one that is known."""
        return 0 <= broker_epoch < self.broker_epoch

    def meet(self, broker_epoch: int, *, now_ms: int, is_in_isr: bool) -> None:
        """Takes the epoch of a fetch; another life of its broker is another follower.

        Its disk may be empty: what is known of the earlier life says nothing (KAFKA-15221).
        """
        if broker_epoch < 0 or broker_epoch == self.broker_epoch:
            return
        if self.broker_epoch >= 0:
            self.reset(now_ms=now_ms, is_in_isr=is_in_isr, is_new_leader=True)
        self.broker_epoch = broker_epoch

    def note_idle_until(self, last_fetch_ms: int) -> None:
        """Takes the time of fetches since the last one that was applied, as long as it is idle.

        The leader's end did not move meanwhile, so they asked for the same offset.
        """
        if self.log_end_offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, last_fetch_ms)
        self.last_fetch_ms = max(self.last_fetch_ms, last_fetch_ms)

    def apply_fetch(
        self, *, fetch_offset: int, log_start_offset: int, leader_end: int, now_ms: int
    ) -> None:
        """Applies a fetch: the follower has everything below the offset it fetches from."""
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = now_ms


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """A change on its way to the store; compared by identity, for two may look the same."""

    state: LeaderAndIsr  # What to store, with the version it replaces.
    controller_epoch: int  # Of the controller that made this broker the leader.
    # The registrations of members by which the leader knows them; those of others are unknown.
    broker_epochs: Mapping[int, int] = field(default_factory=dict)
    # Whether these include the registrations of all members that it adds.
    names_added: bool = False

    @property
    def isr(self) -> tuple[int, ...]:
        return self.state.isr


def high_watermark_candidate(
    leader_end: int,
    followers: Iterable[FollowerState],
    maximal_isr: frozenset[int],
    *,
    now_ms: int,
    max_lag_ms: int,
) -> int:
    """The end offset that every replica has which is a member or about to become one.

    A member that is no longer a replica has no state here and is not waited for.
    """
    candidate = leader_end
    for follower in followers:
        counts = (
            follower.broker_id in maximal_isr or now_ms - follower.last_caught_up_ms <= max_lag_ms
        )
        if counts and follower.log_end_offset < candidate:
            candidate = follower.log_end_offset
    return candidate


def out_of_sync_replicas(
    isr: Iterable[int],
    followers: Mapping[int, FollowerState],
    *,
    leader_id: int,
    leader_end: int,
    now_ms: int,
    max_lag_ms: int,
) -> list[int]:
    """Members to be dropped; never the leader.

    They are behind and have not caught up for longer than allowed, or are no longer replicas.
    """
    behind = []
    for broker_id in isr:
        if broker_id == leader_id:
            continue
        follower = followers.get(broker_id)
        if follower is None or (
            follower.log_end_offset != leader_end
            and now_ms - follower.last_caught_up_ms > max_lag_ms
        ):
            behind.append(broker_id)
    return behind


def can_join_isr(follower: FollowerState, *, high_watermark: int, leader_epoch_start: int) -> bool:
    """Whether a follower has all committed records and reached the start of this epoch."""
    return (
        follower.log_end_offset >= high_watermark and follower.log_end_offset >= leader_epoch_start
    )
