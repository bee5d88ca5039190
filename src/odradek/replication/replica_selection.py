"""Which replica a consumer should read from (KIP-392). Pure.

The leader decides, with each fetch that names the consumer's rack, and answers with the id of a
follower instead of records. The rules are those of Kafka's RackAwareReplicaSelector:

1. A follower qualifies if it is in the ISR and its log contains the fetch offset. One outside of
   the ISR may fall behind for ever, and the consumer with it.
2. The leader is read if it is in the consumer's rack, or no qualified follower is.
3. Otherwise the qualified follower of the rack that is furthest: by its log end, then by the time
   at which it was last caught up, then by its id.

Worked example: a consumer of rack b reads at offset 100. Broker 1 leads in rack a, 2 and 3 follow
in rack b with log ends 120 and 130, both in sync: it is sent to 3. At offset 125 only 3 qualifies,
at 135 neither does, and the leader answers itself.
"""

from collections.abc import Callable, Collection, Iterable

from odradek.replication.isr import FollowerState

__all__ = ["NO_REPLICA", "select_replica"]

# As in an answer: the leader is to be read.
NO_REPLICA = -1


def select_replica(
    rack: str,
    fetch_offset: int,
    *,
    leader_id: int,
    followers: Iterable[FollowerState],
    isr: Collection[int],
    rack_of: Callable[[int], str | None],
) -> int:
    """The follower that a consumer should read from, or NO_REPLICA for the leader.

    Args:
        rack: The consumer's.
        fetch_offset: The next offset that it reads.
        leader_id: The broker that decides.
        followers: Its view of the other replicas.
        isr: The in-sync replicas.
        rack_of: The rack of a broker; None if it has none, or the consumer cannot reach it.
    """
    if rack_of(leader_id) == rack:
        return NO_REPLICA
    best: FollowerState | None = None
    for one in followers:
        if (
            one.broker_id in isr
            and one.log_start_offset <= fetch_offset <= one.log_end_offset
            and rack_of(one.broker_id) == rack
            and (best is None or _progress(one) > _progress(best))
        ):
            best = one
    return NO_REPLICA if best is None else best.broker_id


def _progress(follower: FollowerState) -> tuple[int, int, int]:
    return follower.log_end_offset, follower.last_caught_up_ms, follower.broker_id
