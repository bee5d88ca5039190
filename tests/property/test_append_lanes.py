"""The everyday lane of an append and the general way: the same files, answers and refusals.

`Appender.append_single` does for a single, plain batch in one function what the general way,
`Appender.append_as_leader`, does in several. Every set is appended to two logs that are alike but
for one of them being without the lane. Both must then be alike again, byte for byte.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.errors import ApiError
from odradek.model import AppendOrigin
from odradek.records.batch import HEADER, MAX_SEQUENCE, BatchHeader, compute_crc
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.log.append_analysis import LogAppendInfo
from odradek.storage.log.appender import Appender
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from tests.support.logs import T0, LogFixture, batch

# Segments and indexes that fill up, and limits that a batch may exceed.
CONFIGS = (
    LogConfig(
        max_message_bytes=1_500,
        segment_bytes=4_000,
        index_interval_bytes=300,
        segment_index_bytes=12 * 12,
    ),
    LogConfig(segment_bytes=1_000, flush_messages=3),
    LogConfig(timestamp_type="LogAppendTime"),
    LogConfig(compression_type="lz4"),
    LogConfig(timestamp_before_max_ms=1_000, timestamp_after_max_ms=1_000),
    LogConfig(compression_type="uncompressed"),
    LogConfig(cleanup_policy=("compact",), segment_bytes=4_000),
)


class Sent(NamedTuple):
    """A set as a client may send it."""

    kind: str
    records: bytearray
    is_writable: bool
    leader_epoch: int
    origin: AppendOrigin = AppendOrigin.CLIENT


class GeneralAppender(Appender):
    """Sends every set the general way."""

    __slots__ = ()

    def append_single(
        self, records: Any, leader_epoch: int, origin: AppendOrigin
    ) -> LogAppendInfo | None:
        return None


class LaneAppender(Appender):
    """Counts what the lane takes."""

    taken = 0

    def append_single(
        self, records: Any, leader_epoch: int, origin: AppendOrigin
    ) -> LogAppendInfo | None:
        info = super().append_single(records, leader_epoch, origin)
        self.taken += info is not None
        return info


class TwoLogs:
    """A log that has the lane and one that has not."""

    def __init__(self, fixtures: tuple[LogFixture, LogFixture], config: LogConfig) -> None:
        self._fixtures = fixtures
        self.logs = tuple(fixture.open(config=config) for fixture in fixtures)
        self.lane = LaneAppender(self.logs[0], config)
        self.logs[0]._appender = self.lane
        self.logs[1]._appender = GeneralAppender(self.logs[1], config)

    def append(self, sent: Sent) -> None:
        lane, general = (outcome(log, sent) for log in self.logs)
        assert lane == general

    def check_alike(self) -> None:
        lane, general = self.logs
        assert lane.offsets() == general.offsets()
        assert lane.log_end_offset_metadata == general.log_end_offset_metadata
        assert lane.recovery_point == general.recovery_point
        assert lane.producer_state.map_end_offset == general.producer_state.map_end_offset
        assert producers_of(lane) == producers_of(general)
        assert lane.leader_epochs.entries == general.leader_epochs.entries
        files = [{n: f.path(n).read_bytes() for n in f.names()} for f in self._fixtures]
        assert files[0] == files[1]


def producers_of(log: Log) -> dict[int, str]:
    """All that the log remembers of each producer."""
    return {number: repr(entry) for number, entry in log.producer_state.producers.items()}


def outcome(log: Log, sent: Sent) -> tuple[object, ...]:
    """What an append says, what it does to the buffer, and what it reports as too large."""
    rejected: list[int] = []
    log.on_append_rejected = rejected.append
    records = bytearray(sent.records) if sent.is_writable else bytes(sent.records)
    try:
        info = log.append_as_leader(records, leader_epoch=sent.leader_epoch, origin=sent.origin)
    except ApiError as error:
        return type(error), error.code, str(error), rejected
    return repr(info), bytes(records), rejected


@contextmanager
def two_logs(config: LogConfig) -> Iterator[TwoLogs]:
    with (
        tempfile.TemporaryDirectory() as path,
        LogFixture(Path(path, "lane")) as lane,
        LogFixture(Path(path, "general")) as general,
    ):
        yield TwoLogs((lane, general), config)


def with_header(built: bytearray, *, mend_crc: bool = True, **fields: int) -> bytearray:
    """The batch with other values in its header."""
    header = BatchHeader._make(HEADER.unpack_from(built))._replace(**fields)
    HEADER.pack_into(built, 0, *header)
    if mend_crc:
        crc = compute_crc(built, 0, len(built))
        HEADER.pack_into(built, 0, *header._replace(crc=crc))
    return built


# What a batch may be like. Each draws a batch and what to call it.

SMALL = st.integers(-3, 3)


@st.composite
def plain(draw: st.DrawFn) -> bytearray:
    records = draw(
        st.lists(
            st.tuples(
                st.integers(-1, T0 + 5_000),
                st.none() | st.binary(max_size=5),
                st.none() | st.binary(max_size=300),
                st.lists(st.tuples(st.just("h"), st.none() | st.binary(max_size=3)), max_size=2),
            ),
            min_size=1,
            max_size=6,
        )
    )
    return build_batch([(max(-1, t), key, value, tuple(h)) for t, key, value, h in records])


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, bytearray]:
    """A plain batch with one thing about it that a lane may stumble over."""
    built = draw(plain())
    header = BatchHeader._make(HEADER.unpack_from(built))
    name = draw(
        st.sampled_from(
            (
                "plain", "plain", "plain", "bad checksum", "bit", "count", "last_offset_delta",
                "max_timestamp", "base_timestamp", "base_offset", "magic", "attributes", "length",
                "producer_id", "leader_epoch", "torn", "trailing",
            )
        )
    )  # fmt: skip
    match name:
        case "bad checksum":
            with_header(built, mend_crc=False, crc=header.crc ^ 1 << draw(st.integers(0, 31)))
        case "bit":
            bit = draw(st.integers(0, len(built) * 8 - 1))
            built[bit // 8] ^= 1 << bit % 8
            if draw(st.booleans()) and bit // 8 >= 21:
                with_header(built)
        case "count":
            with_header(built, record_count=header.record_count + draw(SMALL))
        case "last_offset_delta":
            with_header(built, last_offset_delta=header.last_offset_delta + draw(SMALL))
        case "max_timestamp":
            with_header(built, max_timestamp=header.max_timestamp + draw(SMALL))
        case "base_timestamp":
            with_header(built, base_timestamp=header.base_timestamp + draw(SMALL))
        case "base_offset":
            with_header(built, mend_crc=False, base_offset=draw(SMALL))
        case "magic":
            with_header(built, mend_crc=False, magic=draw(st.integers(0, 4)))
        case "attributes":
            with_header(built, attributes=draw(st.integers(0, 0x7F)))
        case "length":
            with_header(built, mend_crc=False, length=max(-1, header.length + draw(SMALL)))
        case "producer_id":
            with_header(built, producer_id=draw(SMALL), producer_epoch=draw(SMALL))
        case "leader_epoch":
            with_header(built, mend_crc=False, leader_epoch=draw(SMALL))
        case "torn":
            del built[draw(st.integers(0, len(built) - 1)) :]
        case "trailing":
            built += draw(st.binary(min_size=1, max_size=80))
    return name, built


@st.composite
def of_other_kind(draw: st.DrawFn) -> tuple[str, bytearray]:
    """Sound batches that are not everyday ones, and sets of several."""
    kind = draw(st.sampled_from(("codec", "producer", "gap", "several", "large")))
    match kind:
        case "codec":
            return kind, batch(draw(st.integers(1, 4)), codec=draw(st.sampled_from(Codec)))
        case "producer":
            return kind, batch(
                2,
                producer_id=draw(st.integers(-1, 1)),
                producer_epoch=0,
                base_sequence=draw(st.integers(-1, 4) | st.integers(0, 4).map(lambda n: 2 * n)),
            )
        case "gap":
            deltas = draw(st.lists(st.integers(0, 5), min_size=2, max_size=4))
            records = [(T0, b"k", b"v", ()) for _ in deltas]
            last = draw(st.none() | st.integers(0, 6))
            return kind, build_batch(records, offset_deltas=deltas, last_offset_delta=last)
        case "several":
            return kind, draw(plain()) + draw(changed())[1]
    return kind, batch(size=draw(st.sampled_from((999, 1_000, 1_001, 1_499, 1_500, 1_501, 4_100))))


SETS = st.builds(
    lambda named, is_writable, epoch: Sent(named[0], named[1], is_writable, epoch),
    changed() | changed() | of_other_kind(),
    st.sampled_from((True, True, True, False)),
    st.integers(0, 2),
)
# A coordinator builds its own batches, so they are sound; a topic may refuse them all the same.
COORDINATOR_SETS = st.builds(
    lambda built, epoch: Sent("plain", built, True, epoch, AppendOrigin.COORDINATOR),
    plain(),
    st.integers(0, 2),
)


@settings(max_examples=140, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    config=st.sampled_from(CONFIGS),
    sets=st.lists(SETS | SETS | COORDINATOR_SETS, min_size=1, max_size=6),
)
def test_both_ways_do_the_same(config: LogConfig, sets: list[Sent]) -> None:
    """01:10.3"""
    with two_logs(config) as logs:
        for sent in sets:
            logs.append(sent)
        logs.check_alike()


def test_everyday_batches_take_the_lane() -> None:
    """Or the test above would compare the general way with itself."""
    with two_logs(CONFIGS[0]) as logs:
        for count in range(1, 21):
            logs.append(Sent("plain", batch(count, value=bytes(50)), True, 0))
        logs.check_alike()

        assert logs.lane.taken == 20
        assert len(logs.logs[0].segments) > 1


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_everyday_batches_of_other_topics_do_so(origin: AppendOrigin) -> None:
    """An offset commit is one: keys are required there, as on every compacted topic."""
    for config in CONFIGS[4:]:
        with two_logs(config) as logs:
            for count in range(1, 6):
                logs.append(Sent("plain", batch(count, key=b"k"), True, 0, origin))
            logs.check_alike()

            assert logs.lane.taken == 5


def produced(sequence: int, count: int = 1, *, epoch: int = 0) -> bytearray:
    return batch(count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def test_a_batch_that_continues_its_producer_does_so() -> None:
    """10:8.4; the largest sequence is followed by 0."""
    with two_logs(CONFIGS[0]) as logs:
        sequence = MAX_SEQUENCE - 10
        for count in range(1, 9):
            logs.append(Sent("continues", produced(sequence, count), True, 0))
            sequence = (sequence + count) & MAX_SEQUENCE
        logs.check_alike()

        assert logs.lane.taken == 7  # All but the first, which nothing is known before.
        assert [b.last_sequence for b in logs.logs[0].producer_state.producers[7].batches] == [
            MAX_SEQUENCE - 1, 3, 9, 16, 24,
        ]  # fmt: skip


def test_any_other_batch_of_a_producer_does_not() -> None:
    """10:8.4: repeated, behind a gap, of another epoch, a coordinator's, within a transaction."""
    with two_logs(CONFIGS[0]) as logs:
        logs.append(Sent("first", produced(0, 2), True, 0))
        for records in (
            produced(0, 2),
            produced(3),
            produced(2, epoch=-1),
            produced(0, epoch=1),
            produced(2, epoch=0),
            produced(-1, epoch=1),
        ):
            logs.append(Sent("other", records, True, 0))
        coordinators = Sent("other", produced(1, epoch=1), True, 0, AppendOrigin.COORDINATOR)
        logs.append(coordinators)
        for log in logs.logs:
            log.producer_state.producers[7].current_transaction_first_offset = 0
        logs.append(Sent("other", produced(2, epoch=1), True, 0))
        logs.check_alike()

        assert logs.lane.taken == 0


def test_a_record_that_the_topic_refuses_does_not() -> None:
    keyless, old = batch(key=None), batch(timestamp=T0 - 100_000)
    for config, refused in ((CONFIGS[6], keyless), (CONFIGS[4], old)):
        with two_logs(config) as logs:
            for origin in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR):
                logs.append(Sent("refused", refused, True, 0, origin))
            logs.check_alike()

            assert logs.lane.taken == 0
            assert logs.logs[0].log_end_offset == 0


def test_no_other_batch_does() -> None:
    with two_logs(CONFIGS[0]) as logs:
        for records in (
            batch(codec=Codec.LZ4),
            batch(producer_id=4000, producer_epoch=0, base_sequence=0),
            batch() + batch(),
            batch() + b"\0",
            batch()[:-1],
            batch(size=1_501),
            with_header(batch(), base_offset=1),
            with_header(batch(), max_timestamp=T0 + 1),
            with_header(batch(), last_offset_delta=1),
            with_header(batch(), record_count=2),
            batch(timestamp=-1),
            with_header(batch(), mend_crc=False, crc=0),
        ):
            logs.append(Sent("other", records, True, 0))
        logs.append(Sent("other", batch(), False, 0))
        logs.check_alike()

        assert logs.lane.taken == 0
