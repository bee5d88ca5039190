"""The seam between a fetcher and its leader, and the values that pass through it.

`odradek.broker.peers.leader_endpoint` implements it over connections. Every call fails with an
`OdradekError` if the leader cannot be reached or does not answer; an error of one partition is its
result.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from odradek.errors import ErrorCode
from odradek.model import TopicPartition

__all__ = [
    "EpochAnswer",
    "EpochQuestion",
    "FetchAnswer",
    "FetchQuestion",
    "LeaderEndpoint",
    "OffsetAnswer",
    "OnFetched",
    "PartitionAnswer",
    "PartitionKey",
    "WantedPartition",
]

# A partition as requests name it: the name of its topic, or its id from Fetch 13 on; its index.
PartitionKey: TypeAlias = tuple[str | bytes, int]


class WantedPartition(NamedTuple):
    """The part of a fetch for one partition."""

    key: PartitionKey
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FetchQuestion(NamedTuple):
    """A fetch: the partitions that are new or changed in its session, and those to be forgotten."""

    session_id: int
    session_epoch: int
    wanted: Sequence[WantedPartition]
    forgotten: Sequence[PartitionKey]
    uses_topic_ids: bool
    is_last: bool = True  # Whether no partition is left for the next request; only then it waits.


class PartitionAnswer(NamedTuple):
    """The result of one partition."""

    key: PartitionKey
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    # (epoch, end offset) of the leader at which the logs part; no records then.
    diverging_epoch: tuple[int, int] | None
    records: memoryview  # Batches as they were received.


class FetchAnswer(NamedTuple):
    """The answer to a fetch."""

    error: ErrorCode
    session_id: int
    partitions: Sequence[PartitionAnswer]


# Takes an answer, or the reason why there is none.
OnFetched: TypeAlias = Callable[[FetchAnswer | Exception], None]


class EpochQuestion(NamedTuple):
    """Where did an epoch end? Asked under the leader epoch of the role."""

    current_leader_epoch: int
    epoch: int


class EpochAnswer(NamedTuple):
    """The largest epoch not above the one asked for, and where it ended; -1 undefined."""

    error: ErrorCode
    epoch: int
    end_offset: int


class OffsetAnswer(NamedTuple):
    """The start or end of the leader's log."""

    error: ErrorCode
    offset: int


class LeaderEndpoint(Protocol):
    """One leader, as one fetcher asks it."""

    async def connect(self) -> None:
        """Makes sure that there is a connection, so that the leader's versions are known."""
        ...

    @property
    def finds_divergence(self) -> bool:
        """Whether the leader compares epochs in a fetch (Fetch 12); known once connected."""
        ...

    @property
    def knows_topic_ids(self) -> bool:
        """Whether fetches may name topics by their ids (Fetch 13); known once connected."""
        ...

    def ask(self, question: FetchQuestion, on_answer: OnFetched) -> None:
        """Fetches over the connection that there is; the leader may wait for records.

        Calls back once, in the turn that brings the answer or the end of the connection. The
        callback may ask the next question; it must not raise.

        Raises:
            OdradekError: There is no connection; there will be no call.
        """
        ...

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> Mapping[TopicPartition, EpochAnswer]:
        """Where epochs ended on the leader (OffsetForLeaderEpoch)."""
        ...

    async def log_end(self, tp: TopicPartition, current_leader_epoch: int) -> OffsetAnswer:
        """The end of the leader's log."""
        ...

    async def log_start(self, tp: TopicPartition, current_leader_epoch: int) -> OffsetAnswer:
        """The start of the leader's log."""
        ...

    def close(self) -> None:
        """Ends the connection, and with it the calls under way."""
        ...
