"""What callers do to a producer: callbacks that raise, odd types, logs that send."""

import logging
from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from typing import Any

import pytest

from odradek.client.producer.accumulator import Accumulator
from odradek.errors import ErrorCode, InvariantViolation
from odradek.records.batch import HEADER_SIZE
from odradek.records.gathering_pure import GatheringPure
from tests.support.network import eventually
from tests.support.produced import Log, producer_of, refuse, script, sent_batches
from tests.support.scripted_broker import scripted
from tests.unit.client.producer.test_partitioning import accumulator

BUFFER_BYTES = 32 * 1024 * 1024


class Names(str, Enum):  # noqa: UP042 - whose `str()` is not its text
    TRACE = "trace"


class Times(IntEnum):
    LONG_AGO = 77


class Stays(bytes):
    """Bytes that do not become plain ones when they are asked to."""

    def __bytes__(self) -> "Stays":
        return self


class Lies(int):
    """A number that says it is another one, and compares as nobody would."""

    def __int__(self) -> int:
        return -5

    def __ge__(self, other: object) -> bool:
        return True

    __le__ = __ge__


class Refuses(GatheringPure):
    """Takes a record or two, and after that none."""

    def add(self, *fields: Any) -> int:
        return -1 if self.record_count == self.taken_count else super().add(*fields)

    taken_count = 0


async def test_a_callback_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """09:CL-10: neither other callbacks, nor other batches, nor the memory of its own."""
    told: list[int] = []

    def fail(_delivery: object) -> None:
        raise ValueError("never mind")

    def tell(number: int, _delivery: object) -> None:
        told.append(number)

    async with scripted() as broker:
        script(broker, partitions=2)
        async with producer_of(broker) as producer:
            sent = [await producer.send("t", b"a", partition=number) for number in (0, 0, 1)]
            for number, delivery in enumerate(sent):
                delivery.add_done_callback(fail)
                delivery.add_done_callback(partial(tell, number))
            for delivery in sent:
                await delivery
            sent[0].add_done_callback(fail)  # At once.
            await (await producer.send("t", b"b", partition=0))
            metrics = producer.metrics()

    assert sorted(told) == [0, 1, 2]
    assert metrics["buffer-available-bytes"] == BUFFER_BYTES
    assert metrics["record-send-total"] == 4
    assert caplog.text.count("a callback of a delivery failed") == 4


async def test_who_waits_on_a_loop_that_is_gone_harms_nobody() -> None:
    """09:CL-6: the loop of somebody who awaited a delivery was closed before it was done."""

    def gone() -> None:
        raise RuntimeError("Event loop is closed")

    async with scripted() as broker:
        script(broker)
        async with producer_of(broker) as producer:
            delivery = await producer.send("t", b"a")
            delivery[0].when_done(gone)
            assert (await delivery).offset == 100


async def test_text_and_numbers_of_classes_of_their_own_are_taken() -> None:
    """09:CL-10: members of enumerations are strings and numbers."""
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker) as producer:
            headers: list[tuple[str, bytes | None]] = [(Names.TRACE, b"1")]
            found = await (
                await producer.send("t", b"a", headers=headers, timestamp=Times.LONG_AGO)
            )
            assert found.timestamp == 77
        (batch,) = sent_batches(broker)

    assert batch.encoded.count(b"trace") == 1


@pytest.mark.usefixtures("gathering")
def test_bytes_that_stay_of_their_class_are_taken_as_bytes() -> None:
    """09:CL-10: or the record would be refused for ever, with everybody else waiting."""
    made, _ = accumulator(1)
    odd = Stays(b"odd")
    for key, value, headers in (
        (odd, b"v", ()),
        (b"k", odd, ()),
        (None, memoryview(odd)[::2], ()),
        (None, bytearray(odd), [("h", odd)]),
    ):
        assert made.append("t", value, key, headers, None, None) is not None  # type: ignore[arg-type]
    (batch,) = made.incomplete
    made.close_batch(batch.queue)
    assert [(key, value) for _, key, value, _ in batch.records()] == [
        (b"odd", b"v"),
        (b"k", b"odd"),
        (None, b"od"),
        (None, b"odd"),
    ]
    assert batch.records()[3][3] == (("h", b"odd"),)


@pytest.mark.usefixtures("gathering")
def test_a_timestamp_counts_as_the_number_it_is() -> None:
    """09:CL-10: whatever its class says of it."""
    made, _ = accumulator(1)
    delivery = made.append("t", b"v", None, (), None, Lies(7))
    assert delivery is not None
    assert delivery[2] == 7
    for number in (-1, 2**63):
        with pytest.raises(ValueError, match=f"timestamp={number}: expected milliseconds"):
            made.append("t", b"v", None, (), None, Lies(number))


@pytest.mark.parametrize("taken_count", [0, 1])
def test_a_batch_that_refuses_what_it_has_room_for_is_an_error(
    taken_count: int,
    use_gathering: Callable[[type[Any]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """09:CL-6: one record that cannot be encoded is no reason to keep the lock for ever."""
    use_gathering(Refuses)
    monkeypatch.setattr(Refuses, "taken_count", taken_count)
    made, _ = accumulator(1)
    for _ in range(taken_count):
        assert made.append("t", b"v", None, (), None, 7) is not None
    with pytest.raises(InvariantViolation, match=r"topic 't' was refused by a batch with room"):
        made.append("t", b"v", None, (), None, 7)
    assert made._lock.acquire(blocking=False)
    made._lock.release()


async def test_headers_that_can_be_read_only_once_are_refused() -> None:
    """09:CL-10: a record that has to wait for room would be sent without them."""
    pairs: Any = (("h", b"1") for _ in range(1))
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker) as producer:
            with pytest.raises(TypeError, match="headers are a generator, expected a list"):
                await producer.send("t", b"a", headers=pairs)
            mapping: Any = {"h": b"1"}
            with pytest.raises(TypeError, match="headers are a dict, expected a list"):
                await producer.send("t", b"a", headers=mapping)


def test_a_record_that_takes_more_than_was_reckoned_goes_into_the_next_batch() -> None:
    """09:CL-13: however the room of a batch and the fields of a record meet."""
    far, most = 2**62, 60_000
    key, value = b"k" * 8192, b"v" * 8192
    for room in range(16_390, 16_440):
        made, _ = accumulator(1, batch_size=most, buffer_memory=10 * most)
        first = b"x" * (most - room - HEADER_SIZE)
        for place, fields in enumerate([(first, None, 0), (b"", None, 0), (value, key, far)]):
            taken, tag, timestamp = fields
            delivery = made.append("t", taken, tag, (), 0, timestamp)
            assert delivery is not None, place
        assert made.free_bytes == 10 * most - sum(one.memory_bytes for one in made.incomplete)
        assert 1 <= len(made.incomplete) <= 2


async def test_a_log_that_is_sent_by_the_producer_itself() -> None:
    """09:CL-6: what it has to tell is told without its lock."""
    log = Log()

    class Sends(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if "begins anew" in text:
                assert self.sink.append("t", text.encode(), None, (), None, None) is not None
                told.append(text)

        sink: Accumulator

    told: list[str] = []
    handler = Sends()
    logger = logging.getLogger("odradek.client.producer")
    before = logger.level
    async with scripted() as broker:
        script(broker, log.append, refuse(ErrorCode.UNKNOWN_PRODUCER_ID), log.append)
        async with producer_of(broker) as producer:
            handler.sink = producer.accumulator
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            try:
                await (await producer.send("t", b"a"))
                await (await producer.send("t", b"b"))
                await eventually(lambda: bool(told))
            finally:
                logger.removeHandler(handler)
                logger.setLevel(before)
            await producer.flush()

    assert log.values == {0: [b"a", b"b", told[0].encode()]}
