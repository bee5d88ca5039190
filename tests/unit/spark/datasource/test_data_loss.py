"""What counts as lost, and what is then done."""

import logging

import pytest

from odradek.model import TopicPartition
from odradek.spark.datasource.data_loss import DataLossError, DataLossPolicy, Loss, find_losses
from odradek.spark.datasource.offsets import Position

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
START = Position.of({T0: 100, T1: 50}, {"t": "id-1"})


def test_nothing_is_lost() -> None:
    """12:SP-16, 12:SP-37."""
    assert find_losses(START, {"t": "id-1"}, {T0: 100, T1: 900}) == []
    assert find_losses(START, {"t": ""}, {T0: 100, T1: 900}) == []


@pytest.mark.parametrize(
    ("topic_ids", "latest", "expected"),
    [
        ({}, {}, "topic 't': it does not exist any more"),
        (
            {"t": "id-2"},
            {T0: 5, T1: 5},
            "topic 't': it was deleted and created again: expected id id-1, found id-2",
        ),
        ({"t": "id-1"}, {T0: 99, T1: 50}, "t-0: expected offset 100, the log ends at 99"),
        ({"t": "id-1"}, {T0: 100}, "t-1: expected offset 50, there is no such partition"),
    ],
)
def test_what_is_lost_is_named(
    topic_ids: dict[str, str], latest: dict[TopicPartition, int], expected: str
) -> None:
    """12:SP-37: topic, partition, expected and found offsets."""
    assert [str(loss) for loss in find_losses(START, topic_ids, latest)] == [expected]


def test_a_failing_policy_names_every_loss() -> None:
    """12:SP-37."""
    losses = [
        Loss.below_log_start(T0, expected=3, found=9),
        Loss.beyond_log_end(T1, expected=8, found=2),
    ]
    with pytest.raises(DataLossError) as caught:
        DataLossPolicy(is_failing=True).report(losses)
    message = str(caught.value)
    assert "t-0: expected offset 3, the log starts at 9" in message
    assert "t-1: expected offset 8, the log ends at 2" in message
    assert "failOnDataLoss=false" in message


def test_a_lenient_policy_warns_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    """12:SP-37."""
    policy = DataLossPolicy(is_failing=False)
    with caplog.at_level(logging.WARNING):
        policy.report([Loss.below_log_start(T0, expected=3, found=9), Loss.gone("u")])
    assert (policy.gap_count, policy.lost_offset_count) == (2, 6)
    assert "the log starts at 9" in caplog.text
    assert "topic 'u'" in caplog.text


def test_the_same_loss_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """12:SP-37: a stream that waits for its log to grow meets it at every step."""
    policy = DataLossPolicy(is_failing=False)
    loss = Loss.beyond_log_end(T0, expected=9, found=3)
    with caplog.at_level(logging.WARNING):
        for losses in ([loss], [loss], [], [loss]):
            policy.report(losses)
    assert (policy.gap_count, len(caplog.records)) == (2, 2)


def test_a_failing_policy_fails_every_time() -> None:
    policy = DataLossPolicy(is_failing=True)
    for _ in range(2):
        with pytest.raises(DataLossError):
            policy.report([Loss.gone("t")])


def test_no_loss_is_no_matter() -> None:
    DataLossPolicy(is_failing=True).report([])
