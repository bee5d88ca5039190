"""The controlled shutdown of a broker: asked for until nothing is led, and not for ever."""

import asyncio

import pytest

from odradek.broker.config.inter_broker import InterBrokerSettings
from odradek.broker.hand_over import hand_over
from odradek.errors import ApiError, DisconnectedError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import ClusterDelta, ClusterMembership
from odradek.model import TopicPartition
from tests.support.caches import update_cache
from tests.support.controllers import broker

STALE = ApiError(ErrorCode.STALE_BROKER_EPOCH, "registered again")
LOST = DisconnectedError("hung up")
LED = frozenset({TopicPartition("t", 0)})
NONE: frozenset[TopicPartition] = frozenset()


class Port:
    """Answers as scripted, the last one again and again."""

    broker_epoch = 7

    def __init__(self, *answers: frozenset[TopicPartition] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    async def controlled_shutdown(self, broker_epoch: int) -> frozenset[TopicPartition]:
        self.asked.append(broker_epoch)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def stop(port: Port, *, brokers: int = 2, enabled: bool = True) -> tuple[bool, list[float]]:
    cache = MetadataCache(0)
    members = tuple(broker(number) for number in range(brokers))
    update_cache(cache, 0, ClusterDelta(membership=ClusterMembership(1, members)))
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    settings = InterBrokerSettings(
        controlled_shutdown_enabled=enabled,
        controlled_shutdown_max_retries=2,
        controlled_shutdown_retry_backoff_ms=500,
    )
    done = hand_over(port, cache, settings, broker_id=0, sleep=sleep)  # type: ignore[arg-type]  # only what is asked of it
    return asyncio.run(done), pauses


@pytest.mark.parametrize(
    ("answers", "succeeds", "asked"),
    [
        ((NONE,), True, 1),
        ((LED, LOST, NONE), True, 3),
        ((LED,), False, 3),
        ((LOST,), False, 3),
        ((STALE,), False, 1),
    ],
    ids=["at once", "at last", "never", "unreachable", "not registered"],
)
def test_the_controller_is_asked_as_often_as_needed_and_allowed(
    answers: tuple[frozenset[TopicPartition] | Exception, ...], succeeds: bool, asked: int
) -> None:
    """`controlled.shutdown.max.retries` and `controlled.shutdown.retry.backoff.ms`."""
    port = Port(*answers)
    assert stop(port) == (succeeds, [0.5] * (asked - 1))
    assert port.asked == [7] * asked


@pytest.mark.parametrize(("brokers", "enabled"), [(1, True), (2, False)], ids=["alone", "disabled"])
def test_a_broker_may_stop_without_a_word(brokers: int, enabled: bool) -> None:
    port = Port(NONE)
    assert stop(port, brokers=brokers, enabled=enabled) == (False, [])
    assert port.asked == []
