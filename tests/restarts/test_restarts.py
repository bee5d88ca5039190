"""A bounded part of `make restarts`, and what its judge finds."""

from pathlib import Path

import pytest

from tests.restarts.runs import Plan, Told, judge, parse_told, run

GOOD = {0: [(0, 0), (1, 2), (3, 4)], 1: [(0, 1), (1, 3)]}
TOLD = Told(sent=5, acked={0: 0, 1: 0, 2: -1, 3: 1, 4: 3})


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("client", "end"), [("librdkafka", "kill"), ("ours", "stop")])
def test_what_lost_its_answer_is_there_once(client: str, end: str, tmp_path: Path) -> None:
    """10:PR-8, as it happens: five requests in flight lose their answers, and are known again."""
    verdict = run(Plan(client=client, end=end, seed=2, folder=tmp_path, rounds=1, lost=5))

    assert verdict.faults == []
    assert verdict.swallowed == verdict.most_in_flight == 5
    assert verdict.sent > 5


def test_a_good_log_is_clean() -> None:
    assert judge(TOLD, GOOD) == []


@pytest.mark.parametrize(
    ("partition", "log", "fault"),
    [
        (1, [(0, 1), (1, 3), (2, 3)], "record 3 is there 2 times"),
        (0, [(0, 0), (1, 4), (3, 2)], "partition 0: record 2 at 3 follows record 4 at 1"),
        (1, [(0, 1)], "record 3 was acknowledged and is not there"),
        (1, [(0, 1), (2, 3)], "partition 1: record 3 is at 2, its producer was told 1"),
    ],
)
def test_a_bad_log_is_named(partition: int, log: list[tuple[int, int]], fault: str) -> None:
    assert fault in judge(TOLD, GOOD | {partition: log})


def test_an_answer_that_is_missing_is_named() -> None:
    told = parse_told(["acked 0 0", "failed 1 too late"])

    assert judge(told, {0: [(0, 0)]}) == [
        "record 1 failed: too late", "the producer did not come to its end",
    ]  # fmt: skip
    assert judge(Told(sent=1), {0: [(0, 0)]}) == ["record 0 was never answered"]
