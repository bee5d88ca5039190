"""What queries read, planned against a cluster in memory."""

import pytest

from odradek.client.offsets import LATEST
from odradek.errors import ApiError
from odradek.model import TopicPartition
from odradek.spark.datasource.data_loss import DataLossError, lost_json, parse_lost
from odradek.spark.datasource.limits import Limits
from odradek.spark.datasource.offsets import Position
from odradek.spark.datasource.options import SourceOptions, parse_options
from odradek.spark.datasource.planning import StreamPlanner, plan_batch
from odradek.testing import ManualClock
from tests.unit.spark.datasource.fake_lookup import FakeLog, FakeLookup

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def options(is_streaming: bool = True, /, **given: str) -> SourceOptions:
    chosen = {"kafka.bootstrap.servers": "h:1", **given}
    if not {"subscribePattern", "assign"} & set(given):
        chosen.setdefault("subscribe", "t")
    return parse_options(chosen, is_streaming=is_streaming)


def batch(lookup: FakeLookup, **given: str) -> list[tuple[int, int, int]]:
    splits = plan_batch(lookup, options(False, **given))
    return [(one.partition, one.start, one.end) for one in splits]


def planner(**given: str) -> StreamPlanner:
    return StreamPlanner(options(**given), ManualClock())


def at(offsets: dict[TopicPartition, int], topic_id: str = "id-of-t") -> Position:
    return Position.of(offsets, {"t": topic_id})


def cluster(*logs: FakeLog) -> FakeLookup:
    return FakeLookup({"t": list(logs)})


# Batches.


def test_a_batch_reads_all_that_is_there() -> None:
    """12:SP-29: an empty partition is no task."""
    assert batch(cluster(FakeLog(9, start=4), FakeLog(), FakeLog(2))) == [(0, 4, 9), (2, 0, 2)]


def test_a_batch_between_offsets() -> None:
    """12:SP-29: -2 and -1 name the ends."""
    found = batch(
        cluster(FakeLog(9, start=4), FakeLog(7)),
        startingOffsets='{"t": {"0": -2, "1": 3}}',
        endingOffsets='{"t": {"0": 6, "1": -1}}',
    )
    assert found == [(0, 4, 6), (1, 3, 7)]


def test_a_batch_between_times() -> None:
    """12:SP-29: no record that late ends a batch at the latest."""
    lookup = cluster(FakeLog(9), FakeLog(100))
    assert batch(lookup, startingTimestamp="1005", endingTimestamp="1050") == [
        (0, 5, 9),
        (1, 5, 50),
    ]


def test_a_time_after_the_last_record_is_an_error_or_the_end() -> None:
    """12:SP-29: startingOffsetsByTimestampStrategy."""
    lookup = cluster(FakeLog(9), FakeLog(100))
    with pytest.raises(ValueError, match="there is no record at or after that time in t-0;"):
        batch(lookup, startingTimestamp="1050")
    found = batch(lookup, startingTimestamp="1050", startingOffsetsByTimestampStrategy="latest")
    assert found == [(1, 50, 100)]


@pytest.mark.parametrize(
    ("named", "expected"),
    [('{"t": {"0": 1}}', "without t-1"), ('{"t": {"0": 1, "1": 1, "5": 1}}', "unexpected t-5")],
)
def test_offsets_must_name_every_partition(named: str, expected: str) -> None:
    """12:SP-29."""
    with pytest.raises(ValueError, match=expected):
        batch(cluster(FakeLog(9), FakeLog(9)), startingOffsets=named)


def test_a_topic_that_is_not_there_is_named() -> None:
    with pytest.raises(ApiError, match="u does not exist"):
        batch(cluster(FakeLog(9)), subscribe="t,u")
    with pytest.raises(ApiError, match="t-3 does not exist"):
        batch(cluster(FakeLog(9)), assign='{"t": [0, 3]}')


def test_a_pattern_without_a_topic_reads_nothing() -> None:
    assert batch(cluster(FakeLog(9)), subscribePattern="x.*") == []
    assert batch(cluster(FakeLog(9)), subscribePattern="t|x") == [(0, 0, 9)]


@pytest.mark.parametrize(
    ("starting", "ending", "message", "rest"),
    [
        (2, 9, "expected offset 2, the log starts at 4", [(0, 4, 9)]),
        (4, 15, "expected offset 15, the log ends at 9", [(0, 4, 9)]),
        (12, 15, "expected offset 15, the log ends at 9", []),
        (8, 6, "starts at 8 and ends at 6", []),
    ],
)
def test_offsets_that_are_not_there(
    starting: int, ending: int, message: str, rest: list[tuple[int, int, int]]
) -> None:
    """12:SP-37."""
    given = {
        "startingOffsets": f'{{"t": {{"0": {starting}}}}}',
        "endingOffsets": f'{{"t": {{"0": {ending}}}}}',
    }
    lookup = cluster(FakeLog(9, start=4))
    with pytest.raises(DataLossError, match=message):
        batch(lookup, **given)
    assert batch(lookup, **given, failOnDataLoss="false") == rest


# Streams.


def test_a_new_stream_begins_where_it_is_told_and_keeps_to_it() -> None:
    """12:SP-34: Spark asks twice."""
    lookup = cluster(FakeLog(9, start=4))
    first = planner(startingOffsets="latest")
    assert first.initial(lookup) == at({T0: 9})
    lookup.logs["t"][0].end = 11
    assert first.initial(lookup) == at({T0: 9})
    assert planner(startingOffsets="earliest").initial(lookup) == at({T0: 4})
    with pytest.raises(DataLossError, match="the log starts at 4"):
        planner(startingOffsets='{"t": {"0": 1}}').initial(lookup)


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"startingOffsets": "latest"}, 9),
        ({"startingTimestamp": "1006"}, 6),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 1006}}'}, 6),
        ({"startingOffsets": '{"t": {"0": -1}}'}, 9),
        ({"startingOffsets": '{"t": {"0": 70}}', "failOnDataLoss": "false"}, 9),
    ],
)
def test_a_start_that_moves_is_noted_by_a_batch_of_nothing(
    given: dict[str, str], first: int
) -> None:
    """12:SP-34: Spark notes no more of the first batch than its end."""
    lookup = cluster(FakeLog(9))
    stream = planner(**given)
    start = stream.initial(lookup)
    assert start == at({T0: first})
    lookup.logs["t"][0].end = 20
    # Until it is read, however often it is planned.
    for _ in range(2):
        assert stream.end(lookup, start) is start
    assert stream.latest == at({T0: 20})
    stream.on_batch()
    assert stream.end(lookup, start) == at({T0: 20})


@pytest.mark.parametrize("offsets", ["earliest", '{"t": {"0": 4}}', '{"t": {"0": -2}}'])
def test_a_start_that_stays_needs_no_batch_of_nothing(offsets: str) -> None:
    """12:SP-34."""
    lookup = cluster(FakeLog(9, start=4))
    stream = planner(startingOffsets=offsets)
    start = stream.initial(lookup)
    assert stream.end(lookup, start) == at({T0: 9})


def test_a_stream_that_has_begun_goes_on_at_once() -> None:
    """12:SP-34: from a checkpoint."""
    lookup = cluster(FakeLog(9))
    stream = planner(startingOffsets="latest")
    stream.initial(lookup)
    assert stream.end(lookup, at({T0: 5})) == at({T0: 9})


def test_a_batch_ends_at_the_end() -> None:
    """12:SP-33: one question for the ends, and no other."""
    lookup = cluster(FakeLog(9), FakeLog(5))
    assert planner().end(lookup, at({T0: 3, T1: 5})) == at({T0: 9, T1: 5})
    assert [query for query in lookup.queries if query] == [{T0: LATEST, T1: LATEST}]


def test_where_nothing_is_new_the_position_stays_as_it_is() -> None:
    """12:SP-32: also one that another source wrote, or that has another split."""
    start = Position.of({T0: 9}, {})
    assert planner(minPartitions="5").end(cluster(FakeLog(9)), start) is start


def test_a_new_partition_is_picked_up_from_its_first_record() -> None:
    """12:SP-34."""
    lookup = cluster(FakeLog(9), FakeLog(500, start=400))
    end = planner().end(lookup, at({T0: 9}), Limits(max_offsets=10))
    assert end == at({T0: 9, T1: 410})


def test_a_new_topic_of_a_pattern_is_picked_up() -> None:
    """12:SP-34."""
    lookup = FakeLookup({"t": [FakeLog(9)], "t2": [FakeLog(3)]})
    end = planner(subscribePattern="t.*").end(lookup, at({T0: 9}))
    assert end.offsets() == {T0: 9, TopicPartition("t2", 0): 3}
    assert end.topic_ids()["t2"] == "id-of-t2"


def test_available_now_ends_where_the_run_began() -> None:
    """12:SP-34: ends and partitions are frozen, limits go on."""
    lookup = cluster(FakeLog(9))
    stream = planner(minOffsetsPerTrigger="1000")
    stream.freeze(lookup)
    lookup.logs["t"][0].end = 50
    lookup.logs["t"].append(FakeLog(3))
    limits = Limits(max_offsets=6, min_offsets=1000)

    first = stream.end(lookup, at({T0: 0}), limits)
    assert first == at({T0: 6})  # 12:SP-33: the least number is ignored.
    second = stream.end(lookup, first, limits)
    assert second == at({T0: 9})
    assert stream.end(lookup, second, limits) is second


def test_a_small_batch_waits_until_its_time_is_over() -> None:
    """12:SP-33."""
    clock, lookup = ManualClock(), cluster(FakeLog(9))
    stream = StreamPlanner(options(), clock)
    limits = Limits(min_offsets=10, max_delay_ms=1000)
    start = at({T0: 0})
    assert stream.end(lookup, start, limits) is start
    assert stream.latest == at({T0: 9})
    clock.advance(1000)
    first = stream.end(lookup, start, limits)
    assert first == at({T0: 9})
    lookup.logs["t"][0].end = 18
    assert stream.end(lookup, first, limits) is first
    lookup.logs["t"][0].end = 19
    assert stream.end(lookup, first, limits) == at({T0: 19})


def test_a_limit_in_bytes_takes_the_mean_size_of_records() -> None:
    """12:SP-33."""
    lookup = cluster(FakeLog(1000, start=500, size_bytes=50_000))
    end = planner().end(lookup, at({T0: 600}), Limits(max_bytes=1000))
    assert end == at({T0: 610})


def test_the_end_that_is_reported_knows_no_limits() -> None:
    """12:SP-33: it is what lag is counted from."""
    stream = planner()
    assert stream.latest is None
    stream.end(cluster(FakeLog(900)), at({T0: 0}), Limits(max_offsets=10))
    assert stream.latest == at({T0: 900})


@pytest.mark.parametrize(
    ("lookup", "message", "end"),
    [
        (FakeLookup({}), "does not exist any more", at({T0: 100})),
        (
            FakeLookup({"t": [FakeLog(3)]}, {"t": "id-2"}),
            "expected id id-of-t, found id-2",
            at({T0: 3}, "id-2"),
        ),
        (
            FakeLookup({"t": [FakeLog(100)]}, {"t": "id-2"}),
            "expected id id-of-t, found id-2",
            at({T0: 100}, "id-2"),
        ),
        (cluster(FakeLog(40)), "expected offset 100, the log ends at 40", at({T0: 40})),
    ],
)
def test_data_that_is_lost(lookup: FakeLookup, message: str, end: Position) -> None:
    """12:SP-37: the query fails, or goes on with what there is."""
    start = at({T0: 100})
    with pytest.raises(DataLossError, match=message):
        planner().end(lookup, start)
    assert planner(failOnDataLoss="false").end(lookup, start) == end


def test_what_a_batch_will_not_find_is_counted() -> None:
    """12:SP-37, 12:SP-16: where the stream is planned; a failing one leaves it to the tasks."""
    lookup = cluster(FakeLog(100, start=30), FakeLog(50), FakeLog(9, start=9))
    start = at({T0: 10, T1: 0})
    stream = planner(failOnDataLoss="false")
    first = stream.end(lookup, start, Limits(max_offsets=28))
    assert first == at({T0: 28, T1: 10, T2: 9})
    assert (stream.losses.gap_count, stream.losses.lost_offset_count) == (1, 18)
    assert lost_json(stream.losses) == {"lost": {"gaps": 1, "offsets": 18}}
    second = stream.end(lookup, first)
    assert (stream.losses.gap_count, stream.losses.lost_offset_count) == (2, 20)
    assert stream.end(lookup, second) is second
    assert parse_lost(lost_json(stream.losses)) == (2, 20)
    again = planner(failOnDataLoss="false")
    assert stream.has_planned(second)
    assert not again.has_planned(second)
    again.note_replay(lookup, start, first)
    assert parse_lost(lost_json(again.losses)) == (1, 18)
    failing = planner()
    failing.end(lookup, start)
    assert lost_json(failing.losses) == {}
    assert parse_lost({"topics": {}}) == (0, 0)


def test_a_log_that_was_cut_off_is_read_on_from_its_end() -> None:
    """12:SP-37: what comes there is new."""
    lookup = cluster(FakeLog(40))
    stream = planner(failOnDataLoss="false")
    cut = stream.end(lookup, at({T0: 100}))
    assert stream.end(lookup, cut) is cut
    lookup.logs["t"][0].end = 60
    assert stream.end(lookup, cut) == at({T0: 60})


@pytest.mark.parametrize("is_failing", ["true", "false"])
def test_an_open_transaction_before_the_position_is_no_loss(is_failing: str) -> None:
    """12:SP-37: as of a stream that read uncommitted records before."""
    lookup = cluster(FakeLog(100, stable_end=40))
    stream = planner(failOnDataLoss=is_failing)
    start = at({T0: 90})
    assert stream.end(lookup, start) is start
    lookup.logs["t"][0].stable_end = 95
    assert stream.end(lookup, start) == at({T0: 95})
    named = planner(failOnDataLoss=is_failing, startingOffsets='{"t": {"0": 97}}')
    assert named.initial(lookup) == at({T0: 97})


def test_a_stream_goes_on_without_a_topic_and_takes_it_up_again() -> None:
    """12:SP-37."""
    stream = planner(subscribe="t,u", failOnDataLoss="false")
    lookup = FakeLookup({"t": [FakeLog(9)]})
    before = Position.of({T0: 5, TopicPartition("u", 0): 3}, {"t": "id-of-t", "u": "id-of-u"})
    u0 = TopicPartition("u", 0)
    without = stream.end(lookup, before)
    assert without.offsets() == {T0: 9, u0: 3}
    assert without.topic_ids() == before.topic_ids()
    assert stream.end(lookup, without) is without
    # The same topic goes on where it was, another one begins.
    lookup.logs["u"] = [FakeLog(8)]
    assert stream.end(lookup, without).offset(u0) == 8
    lookup.ids["u"] = "another"
    again = stream.end(lookup, without, Limits(max_offsets=2))
    assert (again.offset(u0), again.topic_ids()["u"]) == (2, "another")


def test_a_topic_of_a_pattern_that_is_gone_leaves_the_position() -> None:
    """12:SP-37."""
    stream = planner(subscribePattern="t|u", failOnDataLoss="false")
    before = Position.of({T0: 5, TopicPartition("u", 0): 3}, {"t": "id-of-t", "u": "id-of-u"})
    assert stream.end(cluster(FakeLog(9)), before) == at({T0: 9})


def test_a_topic_that_never_was_is_no_loss_but_an_error() -> None:
    with pytest.raises(ApiError, match="u does not exist"):
        planner(subscribe="t,u").end(cluster(FakeLog(9)), at({T0: 0}))
