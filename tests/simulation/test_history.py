"""What the judge of a simulation passes, and what it must not pass."""

import pytest

from odradek.model import TopicPartition
from tests.simulation.history import History, Violation

TP = TopicPartition("t", 0)

# The records of a log, by offset.
Log = dict[int, bytes]


def _judge(log: Log) -> History:
    return History(lambda _tp: log)


def test_an_acknowledged_record_that_is_gone_is_a_violation() -> None:
    history = _judge({})
    history.acknowledge(TP, 0, b"a")
    history.acknowledge(TP, 1, b"b")
    with pytest.raises(Violation, match=r"b'b' was acknowledged at 1, and is lost"):
        history.check_log(TP, [(0, b"a")])


def test_an_unsynced_record_may_be_gone_after_a_power_cut() -> None:
    history = _judge(log := {0: b"synced", 1: b"unsynced"})
    history.acknowledge(TP, 0, b"synced")
    history.acknowledge(TP, 1, b"unsynced")
    history.doubt(TP, log, durable_end=1)
    del log[1]
    history.settle()
    history.acknowledge(TP, 1, b"another")
    history.check_log(TP, [(0, b"synced"), (1, b"another")])


def test_a_synced_record_may_not_be_gone_after_a_power_cut() -> None:
    history = _judge(log := {0: b"synced"})
    history.acknowledge(TP, 0, b"synced")
    history.doubt(TP, log, durable_end=1)
    log.clear()
    history.settle()
    with pytest.raises(Violation, match="was acknowledged at 0, and is lost"):
        history.check_log(TP, [])


def test_an_unsynced_record_that_outlived_a_power_cut_may_not_be_gone_later() -> None:
    history = _judge(log := {0: b"lucky"})
    history.acknowledge(TP, 0, b"lucky")
    history.doubt(TP, log, durable_end=0)
    history.settle()
    with pytest.raises(Violation, match="was acknowledged at 0, and is lost"):
        history.check_log(TP, [])


def test_an_offset_may_hold_another_record_after_each_of_several_power_cuts() -> None:
    # No broker served between the cuts, but one had started, and appended.
    history = _judge(log := {0: b"synced", 1: b"first life"})
    history.acknowledge(TP, 0, b"synced")
    history.acknowledge(TP, 1, b"first life")
    history.doubt(TP, log, durable_end=1)
    log[1] = b"second life"
    history.doubt(TP, log, durable_end=1)
    log[1] = b"third life"
    history.settle()
    history.acknowledge(TP, 1, b"third life")
    history.check_log(TP, [(0, b"synced"), (1, b"third life")])


def test_each_power_cut_has_its_own_durable_end() -> None:
    # What was not synced at the first cut may be gone, though its offset was synced at the second.
    history = _judge(log := {0: b"first life"})
    history.acknowledge(TP, 0, b"first life")
    history.doubt(TP, log, durable_end=0)
    log[0] = b"second life"
    history.acknowledge(TP, 0, b"second life")
    history.doubt(TP, log, durable_end=1)
    history.settle()
    history.check_log(TP, [(0, b"second life")])
    with pytest.raises(Violation, match="b'second life' was acknowledged at 0, and is lost"):
        history.check_log(TP, [])


def test_what_one_power_cut_left_must_be_there_at_the_next() -> None:
    # A broker that started in between, and died before it served, may not have cut it off.
    history = _judge(log := {0: b"a", 1: b"b"})
    history.doubt(TP, log, durable_end=2)
    del log[1]
    with pytest.raises(Violation, match="2 was durable, and the disk holds 1"):
        history.doubt(TP, log, durable_end=1)


def test_a_broker_that_has_not_started_to_the_end_may_answer_for_an_offset_in_doubt() -> None:
    history = _judge(log := {0: b"first life"})
    history.acknowledge(TP, 0, b"first life")
    history.doubt(TP, log, durable_end=0)
    log[0] = b"second life"
    history.acknowledge(TP, 0, b"second life")
    history.see(TP, 0, b"first life")  # A consumer had fetched it before.
    history.settle()
    history.check_log(TP, [(0, b"second life")])
    with pytest.raises(Violation, match="b'second life' was acknowledged at 0, and is lost"):
        history.check_log(TP, [])


def test_two_records_at_one_offset_are_a_violation_without_a_power_cut() -> None:
    history = _judge({0: b"a"})
    history.acknowledge(TP, 0, b"a")
    with pytest.raises(Violation, match="b'b' is read, and b'a' was before"):
        history.see(TP, 0, b"b")


def test_a_lost_record_that_is_written_again_must_stay() -> None:
    history = _judge(log := {0: b"a"})
    history.acknowledge(TP, 0, b"a")
    history.doubt(TP, log, durable_end=0)
    log.clear()
    history.settle()
    history.see(TP, 0, b"a")  # Fetched before the cut: proves nothing.
    history.check_log(TP, [])
    log[0] = b"a"
    history.acknowledge(TP, 0, b"a")  # The producer has sent it again.
    with pytest.raises(Violation, match="b'a' was acknowledged at 0, and is lost"):
        history.check_log(TP, [])
