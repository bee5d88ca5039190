"""Batches that are too large, expanded, for the loop: one at a time, on a thread."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from odradek.broker.expansions import Expansions
from odradek.errors import ApiError, ErrorCode, InvalidRecordError
from odradek.model import AppendOrigin, TopicPartition
from odradek.network.request import Request
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.headers import RequestHeader
from odradek.records.batch import CODEC_MASK, parse_header
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.log.config import LogConfig
from odradek.storage.log.expansion import (
    INLINE_EXPANSION_BYTES,
    INLINE_REBUILD_BYTES,
    ExpandedRecords,
    ExpansionDeferredError,
    InlineBudget,
)
from odradek.storage.log.validation import BatchValidator
from tests.unit.broker.handlers.handler_fakes import FakeConnection

TP = TopicPartition("t", 0)
EXPANDER = "expander"


@contextlib.asynccontextmanager
async def waited_for() -> AsyncIterator[Expansions]:
    """At the end all that was started is over."""
    with ThreadPoolExecutor(2, EXPANDER) as executor:
        async with asyncio.TaskGroup() as group:

            class Group:
                def spawn(self, work: Coroutine[Any, Any, None], /) -> None:
                    group.create_task(work)

                async def sleep(self, delay_s: float, /) -> None:
                    raise AssertionError("nothing waits here")

            yield Expansions(Group(), executor)


def request_of(connection: FakeConnection) -> Request:
    header = RequestHeader(ApiKey.PRODUCE, 7, 1, "test")
    return Request(connection, header, memoryview(b""), 0, 0)


def bomb(size: int = INLINE_EXPANSION_BYTES + 1) -> bytearray:
    return build_batch([(1_000, None, bytes(size), ())], codec=Codec.ZSTD)


def expanded_by(validator: BatchValidator, records: bytearray) -> tuple[int, bytearray | None]:
    """What is stored of a client's batch that the loop has no time for."""
    header = parse_header(records)
    assert header is not None

    def check(buffer: bytearray) -> tuple[int, bytearray | None]:
        return validator.validate_and_assign(
            buffer,
            0,
            header,
            base_offset=5,
            leader_epoch=1,
            now_ms=2_000,
            origin=AppendOrigin.CLIENT,
        )

    with pytest.raises(ExpansionDeferredError) as deferred:
        check(bytearray(records))
    expanded = ExpandedRecords(records)
    deferred.value.expand(expanded)
    return check(expanded)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_large_batch_is_compressed_anew_on_a_thread(codec: Codec) -> None:
    validator = BatchValidator(LogConfig(compression_type="gzip"))
    value = bytes(INLINE_REBUILD_BYTES + 1)
    records = build_batch([(1_000, None, value, ())], codec=codec)
    timestamp, rebuilt = expanded_by(validator, records)
    assert timestamp == 1_000
    assert rebuilt is not None
    header = parse_header(rebuilt)
    assert header is not None
    assert (header.base_offset, header.leader_epoch) == (5, 1)
    assert header.attributes & CODEC_MASK == Codec.GZIP


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_large_batch_is_numbered_anew_on_a_thread(codec: Codec) -> None:
    value = bytes(INLINE_REBUILD_BYTES)
    two = [(1_000, None, value, ()), (1_001, None, value, ())]
    records = build_batch(two, codec=codec, offset_deltas=[1, 0], last_offset_delta=1)
    timestamp, rebuilt = expanded_by(BatchValidator(LogConfig()), records)
    assert timestamp == 1_001
    assert rebuilt is not None


def test_the_batches_of_a_request_share_what_the_loop_has_time_for() -> None:
    budget = InlineBudget()
    validator = BatchValidator(LogConfig(), budget)
    records = bomb(INLINE_EXPANSION_BYTES // 2 - 100)

    def check() -> None:
        header = parse_header(records)
        assert header is not None
        validator.validate_and_assign(
            bytearray(records),
            0,
            header,
            base_offset=5,
            leader_epoch=1,
            now_ms=2_000,
            origin=AppendOrigin.CLIENT,
        )

    budget.begin()
    check()
    check()
    with pytest.raises(ExpansionDeferredError):
        check()
    budget.end()
    for _ in range(3):  # Requests of their own.
        check()


def validate(records: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> int:
    header = parse_header(records)
    assert header is not None
    timestamp, rebuilt = BatchValidator(LogConfig()).validate_and_assign(
        records, 0, header, base_offset=5, leader_epoch=1, now_ms=2_000, origin=origin
    )
    assert rebuilt is None
    return timestamp


def test_a_large_expansion_is_deferred_and_then_known() -> None:
    records = bomb()
    with pytest.raises(ExpansionDeferredError) as deferred:
        validate(records)
    expanded = ExpandedRecords(records)
    deferred.value.expand(expanded)

    assert validate(expanded) == 1_000
    changed = parse_header(expanded)
    assert changed is not None
    assert (changed.base_offset, changed.leader_epoch) == (5, 1)


def test_an_ordinary_batch_and_one_of_the_broker_itself_are_not_deferred() -> None:
    assert validate(bomb(INLINE_EXPANSION_BYTES // 2)) == 1_000
    assert validate(bomb(), AppendOrigin.COORDINATOR) == 1_000


def test_what_is_wrong_inside_is_told_after_it_was_expanded() -> None:
    records = bomb()
    records[-10] ^= 0xFF
    with pytest.raises(ExpansionDeferredError) as deferred:
        validate(records)
    expanded = ExpandedRecords(records)
    deferred.value.expand(expanded)

    with pytest.raises(InvalidRecordError) as refused:
        validate(expanded)
    assert not isinstance(refused.value, ExpansionDeferredError)


@pytest.mark.parametrize("kinds", ["produced", "searched", "both"])
def test_one_batch_is_expanded_at_a_time(kinds: str) -> None:
    """Those that are produced and those that are searched by time have one turn among them all."""
    meeting = threading.Barrier(2)
    count = 3
    appended: list[int] = []
    threads: set[threading.Thread] = set()

    has_met = threading.Event()

    def work() -> None:
        threads.add(threading.current_thread())
        try:
            meeting.wait(0.05)  # Two at a time would meet; one alone waits in vain.
        except threading.BrokenBarrierError:
            meeting.reset()
        else:
            has_met.set()

    def expand(_records: ExpandedRecords) -> None:
        work()

    async def scenario() -> None:
        async with waited_for() as expansions, asyncio.TaskGroup() as searches:
            for number in range(count):

                def append(
                    expanded: Mapping[TopicPartition, ExpandedRecords], number: int = number
                ) -> None:
                    assert set(expanded) == {TP}
                    appended.append(number)

                if kinds != "searched":
                    records = {TP: (ExpandedRecords(b"x"), expand)}
                    expansions.start(request_of(FakeConnection()), records, append)
                if kinds != "produced":
                    searches.create_task(expansions.run(work))

    asyncio.run(scenario())
    assert not has_met.is_set()
    assert sorted(appended) == ([] if kinds == "searched" else list(range(count)))
    # On no thread but those that the broker was given.
    assert {thread.name.rpartition("_")[0] for thread in threads} == {EXPANDER}


def test_batches_of_a_client_that_hung_up_are_not_expanded() -> None:
    connection = FakeConnection()
    connection.is_closed = True

    def fail(*_: object) -> None:
        raise AssertionError("nobody waits for it")

    async def scenario() -> None:
        async with waited_for() as expansions:
            expansions.start(request_of(connection), {TP: (ExpandedRecords(b"x"), fail)}, fail)

    asyncio.run(scenario())


def test_a_thread_that_has_no_memory_refuses_one_batch_and_ends_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The border between requests: the broker's tasks end with the first that fails."""
    records = ExpandedRecords(bomb())
    appended: list[Mapping[TopicPartition, ExpandedRecords]] = []

    def fail(_records: ExpandedRecords) -> None:
        raise MemoryError

    async def scenario() -> None:
        async with waited_for() as expansions:
            expansions.start(request_of(FakeConnection()), {TP: (records, fail)}, appended.append)

    asyncio.run(scenario())

    assert appended == [{TP: records}]
    with pytest.raises(ApiError, match="MemoryError") as refused:
        validate(records)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "could not be expanded" in caplog.text
