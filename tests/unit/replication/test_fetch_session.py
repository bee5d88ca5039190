"""Fetch sessions (11 section 6.1)."""

from collections.abc import Sequence
from random import Random

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.files import Disk
from odradek.replication import FetchResult
from odradek.replication.fetch_session import (
    EVICTION_MS,
    FetchContext,
    FetchSessionCache,
    PartitionKey,
    SessionPartition,
    next_epoch,
)
from odradek.storage.segments.file_slice import FileSlice

RECORDS = FileSlice(Disk(), -1, 0, 10)
UNKNOWN = 1_000  # The first partition that does not exist.


def key(partition: int) -> PartitionKey:
    return "t", partition


def wanted(*partitions: int, offset: int = 0) -> list[SessionPartition]:
    return [SessionPartition(key(p), -1, offset, -1, 0, 100) for p in partitions]


def result(
    high_watermark: int = 5,
    log_start: int = 0,
    *,
    records: FileSlice | None = None,
    error: ErrorCode = ErrorCode.NONE,
    diverging_epoch: tuple[int, int] | None = None,
    preferred_read_replica: int = -1,
) -> FetchResult:
    return FetchResult(
        error,
        high_watermark,
        high_watermark,
        log_start,
        records,
        preferred_read_replica=preferred_read_replica,
        diverging_epoch=diverging_epoch,
    )


class Client:
    """One client of a cache; remembers session and epoch as a client does."""

    def __init__(self, cache: FetchSessionCache, *, is_follower: bool = False) -> None:
        self.cache = cache
        self.is_follower = is_follower
        self.now_ms = 0
        self.session_id = 0
        self.epoch = 0

    def ask(
        self,
        partitions: Sequence[SessionPartition] = (),
        *,
        session_id: int | None = None,
        epoch: int | None = None,
        forgotten: Sequence[int] = (),
        uses_topic_ids: bool = False,
    ) -> FetchContext:
        context = self.cache.begin(
            session_id=self.session_id if session_id is None else session_id,
            epoch=self.epoch if epoch is None else epoch,
            wanted={partition.key: partition for partition in partitions},
            forgotten=[key(p) for p in forgotten],
            is_from_follower=self.is_follower,
            uses_topic_ids=uses_topic_ids,
            is_known=lambda key: key[1] < UNKNOWN,
            now_ms=self.now_ms,
        )
        self.session_id = context.session_id
        self.epoch = next_epoch(self.epoch)
        return context


def answer(context: FetchContext, *results: FetchResult) -> list[int]:
    """The partitions that the answer names, in order."""
    told = context.select(list(zip(context.partitions, results, strict=True)))
    return [partition.key[1] for partition, _ in told]


def order(context: FetchContext) -> list[int]:
    return [partition.key[1] for partition in context.partitions]


@pytest.fixture
def cache() -> FetchSessionCache:
    return FetchSessionCache(2, random=Random(1))


@pytest.fixture
def client(cache: FetchSessionCache) -> Client:
    return Client(cache)


def code_of(client: Client, **fields: int | bool) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        client.ask(**fields)  # type: ignore[arg-type]
    return caught.value.code


def test_no_session(cache: FetchSessionCache, client: Client) -> None:
    context = client.ask(wanted(0, 1), epoch=-1)
    assert (context.session_id, context.is_incremental, len(cache)) == (0, False, 0)
    assert answer(context, result(), result()) == [0, 1]


def test_a_full_request_is_answered_in_full(client: Client) -> None:
    context = client.ask(wanted(0, 1))
    assert context.session_id > 0
    assert answer(context, result(), result()) == [0, 1]


def test_an_incremental_request_gets_news_only(client: Client) -> None:
    answer(client.ask(wanted(0, 1, 2)), result(), result(), result())
    context = client.ask()
    assert context.is_incremental
    assert order(context) == [0, 1, 2]
    assert answer(context, result(), result(6), result()) == [1]
    assert answer(client.ask(), result(), result(), result(6)) == []


@pytest.mark.parametrize(
    "news",
    [
        result(6),
        result(log_start=1),
        result(records=RECORDS),
        result(diverging_epoch=(1, 2)),
        result(preferred_read_replica=3),
        FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["high-watermark", "log-start", "records", "diverging", "preferred-replica", "error"],
)
def test_what_is_news(client: Client, news: FetchResult) -> None:
    answer(client.ask(wanted(0)), result())
    assert answer(client.ask(), result()) == []
    assert answer(client.ask(), news) == [0]


def test_an_error_is_said_each_time_and_so_is_its_end(client: Client) -> None:
    answer(client.ask(wanted(0)), result())
    error = FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert answer(client.ask(), error) == [0]
    assert answer(client.ask(), error) == [0]
    assert answer(client.ask(), result()) == [0]
    assert answer(client.ask(), result()) == []


def test_whoever_was_told_something_goes_to_the_end(client: Client) -> None:
    answer(client.ask(wanted(0, 1, 2)), result(), result(), result())
    answer(client.ask(), result(records=RECORDS), result(), result())
    assert order(client.ask()) == [1, 2, 0]


def test_partitions_are_added_changed_and_forgotten(client: Client) -> None:
    answer(client.ask(wanted(0, 1)), result(), result())
    context = client.ask(wanted(0, 2, offset=7), forgotten=[1])
    assert order(context) == [0, 2]
    assert [partition.fetch_offset for partition in context.partitions] == [7, 7]
    # What partition 0 was told is remembered; 2 is new.
    assert answer(context, result(), result()) == [2]


def test_a_session_left_empty_ends(cache: FetchSessionCache, client: Client) -> None:
    answer(client.ask(wanted(0)), result())
    context = client.ask(forgotten=[0])
    assert (context.session_id, len(cache), context.partitions) == (0, 0, [])


def test_errors_of_sessions(client: Client) -> None:
    assert code_of(client, session_id=123, epoch=1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code_of(client, session_id=0, epoch=1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    client.ask(wanted(0))
    assert code_of(client, epoch=2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code_of(client, epoch=-7) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code_of(client, uses_topic_ids=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert client.ask().is_incremental


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_old_session(
    cache: FetchSessionCache, client: Client, epoch: int
) -> None:
    old = client.ask(wanted(0)).session_id
    new = client.ask(wanted(0), epoch=epoch).session_id
    assert (new == 0) is (epoch == -1)
    assert len(cache) == (0 if epoch == -1 else 1)
    assert code_of(client, session_id=old, epoch=1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap() -> None:
    assert [next_epoch(e) for e in (0, 1, 2**31 - 1)] == [1, 2, 1]


def test_an_answer_that_was_overtaken(client: Client) -> None:
    """The client asked again on another connection: the late answer must not spoil the session."""
    answer(client.ask(wanted(0)), result())
    late = client.ask()
    on_time = client.ask()
    assert answer(late, result(9)) == []
    assert late.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert answer(on_time, result(9)) == [0]
    assert on_time.error is ErrorCode.NONE


# The cache


def fill(cache: FetchSessionCache, *sizes: int, now_ms: int = 0, is_follower: bool = False) -> None:
    for size in sizes:
        client = Client(cache, is_follower=is_follower)
        client.now_ms = now_ms
        assert client.ask(wanted(*range(size))).session_id


@pytest.mark.parametrize(
    ("size", "now_ms", "is_follower", "is_granted"),
    [
        pytest.param(2, 1, False, False, id="not-larger"),
        pytest.param(3, 1, False, True, id="larger"),
        pytest.param(1, EVICTION_MS, False, False, id="not-old-enough"),
        pytest.param(1, EVICTION_MS + 1, False, True, id="old"),
        pytest.param(1, 1, True, True, id="a-follower"),
    ],
)
def test_a_full_cache(
    cache: FetchSessionCache, size: int, now_ms: int, is_follower: bool, is_granted: bool
) -> None:
    fill(cache, 2, 4)
    client = Client(cache, is_follower=is_follower)
    client.now_ms = now_ms
    context = client.ask(wanted(*range(size)))
    assert (context.session_id > 0) is is_granted
    assert len(cache) == 2
    assert order(context) == list(range(size))  # Served in any case.


def test_followers_do_not_yield_to_consumers(cache: FetchSessionCache) -> None:
    fill(cache, 1, 1, is_follower=True)
    assert Client(cache).ask(wanted(*range(50))).session_id == 0
    fill(cache, 2, is_follower=True)


def test_no_slots() -> None:
    cache = FetchSessionCache(0, random=Random(1))
    assert Client(cache).ask(wanted(0)).session_id == 0


def test_a_partition_that_does_not_exist_gets_no_session(cache: FetchSessionCache) -> None:
    """02 §12: a session outlives its connection, and so would all that a client thinks up."""
    context = Client(cache).ask(wanted(0, UNKNOWN))
    assert (context.session_id, order(context)) == (0, [0, UNKNOWN])
    assert (len(cache), cache.partition_count) == (0, 0)


def test_a_session_ends_when_a_partition_is_added_that_does_not_exist(
    cache: FetchSessionCache, client: Client
) -> None:
    client.ask(wanted(0))
    with pytest.raises(ApiError) as caught:
        client.ask(wanted(UNKNOWN))
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count) == (0, 0)


def test_partitions_of_all_sessions_are_bounded() -> None:
    """02 §12."""
    cache = FetchSessionCache(10, random=Random(1), max_partitions=10)
    first, second, third = Client(cache), Client(cache), Client(cache)
    assert first.ask(wanted(*range(4))).session_id
    assert second.ask(wanted(*range(5))).session_id
    assert cache.partition_count == 9
    # It may not push two sessions out.
    assert third.ask(wanted(*range(6))).session_id == 0
    third.epoch = 0
    assert third.ask(wanted(*range(5))).session_id
    assert (len(cache), cache.partition_count) == (2, 10)
    with pytest.raises(ApiError):
        second.ask(wanted(9))
    assert cache.partition_count == 5
    third.ask(forgotten=[1, 2])
    assert cache.partition_count == 3
