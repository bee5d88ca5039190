"""Pings, broken links and lost sessions, by the clock alone."""

import pytest

from odradek.coordination.zookeeper.liveness import Liveness, Verdict

T = 18_000


@pytest.mark.parametrize(
    ("now_ms", "verdict"),
    [
        (0, Verdict.NOTHING),
        (5_999, Verdict.NOTHING),
        (6_000, Verdict.PING),
        (11_999, Verdict.PING),
        (12_000, Verdict.BROKEN),
        (17_999, Verdict.BROKEN),
        (18_000, Verdict.LOST),
    ],
)
def test_silence(now_ms: int, verdict: Verdict) -> None:
    assert Liveness(T, 0).judge(now_ms) is verdict


def test_an_answer_counts_from_the_time_its_request_was_sent() -> None:
    liveness = Liveness(T, 0)
    liveness.sent(6_000)
    liveness.heard(11_000)
    liveness.acknowledged(6_000)

    assert liveness.judge(11_999) is Verdict.NOTHING
    assert liveness.judge(12_000) is Verdict.PING
    assert liveness.judge(23_000) is Verdict.BROKEN
    assert liveness.judge(24_000) is Verdict.LOST
    liveness.acknowledged(1_000)  # An older request, answered late, takes nothing back.
    assert liveness.judge(23_999) is Verdict.BROKEN


def test_a_notification_keeps_the_link_but_not_the_session() -> None:
    liveness = Liveness(T, 0)
    liveness.heard(17_000)
    liveness.sent(17_000)

    assert liveness.judge(17_999) is Verdict.NOTHING
    assert liveness.judge(18_000) is Verdict.LOST


def test_the_next_judgement_is_when_the_verdict_changes() -> None:
    liveness = Liveness(T, 0)
    assert liveness.next_judgement_ms(0) == 6_000
    liveness.sent(6_000)
    assert liveness.next_judgement_ms(6_000) == 6_000
    assert liveness.next_judgement_ms(50_000) == 1
