"""A client that keeps a session knows what one without a session would be told."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.errors import ErrorCode
from odradek.replication import FetchResult
from odradek.replication.fetch_session import (
    FetchSessionCache,
    SessionPartition,
    next_epoch,
)

_PARTITIONS = st.integers(0, 4)
_RESULTS = st.one_of(
    st.tuples(st.integers(0, 3), st.integers(0, 2)).map(
        lambda offsets: FetchResult(
            ErrorCode.NONE, high_watermark=offsets[0], log_start_offset=offsets[1]
        )
    ),
    st.just(FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
)
# One round: partitions to add, to forget, and the state each partition has on the broker then.
_ROUNDS = st.tuples(
    st.sets(_PARTITIONS),
    st.sets(_PARTITIONS),
    st.lists(_RESULTS, min_size=5, max_size=5),
)


@settings(max_examples=100, deadline=None)
@given(st.sets(_PARTITIONS, min_size=1), st.lists(_ROUNDS, max_size=12))
def test_incremental_answers_add_up_to_full_ones(
    first: set[int], rounds: list[tuple[set[int], set[int], list[FetchResult]]]
) -> None:
    """11 section 6.1: what is not named in an answer has not changed."""
    cache = FetchSessionCache(10, random=Random(1))
    session_id, epoch = 0, 0
    watched: set[int] = set()
    known: dict[int, tuple[ErrorCode, int, int]] = {}
    for added, forgotten, state in [(first, set(), [FetchResult(ErrorCode.NONE, 0)] * 5), *rounds]:
        added, forgotten = added - forgotten, forgotten - added
        if session_id == 0:
            epoch, added, forgotten = 0, added | watched, set()
            known.clear()
        watched = (watched | added) - forgotten
        context = cache.begin(
            session_id=session_id,
            epoch=epoch,
            wanted={
                key: SessionPartition(key, -1, 0, -1, 0, 1)
                for key in (("t", p) for p in sorted(added))
            },
            forgotten=[("t", p) for p in sorted(forgotten)],
            is_from_follower=False,
            uses_topic_ids=False,
            is_known=lambda _key: True,
            now_ms=0,
        )
        assert {partition.key[1] for partition in context.partitions} == watched
        told = context.select([(p, state[p.key[1]]) for p in context.partitions])
        known = {p: said for p, said in known.items() if p in watched}
        known |= {partition.key[1]: _said(result) for partition, result in told}
        assert known == {p: _said(state[p]) for p in watched}
        session_id, epoch = context.session_id, next_epoch(epoch)
        assert (session_id > 0) is bool(watched)
        assert len(cache) == int(bool(watched))
        assert cache.partition_count == len(watched)


def _said(result: FetchResult) -> tuple[ErrorCode, int, int]:
    return result.error, result.high_watermark, result.log_start_offset
