"""Producers are kept from task to task, and not for longer."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from odradek.spark.datasource.writer_producers import IDLE_S, ProducerCache

SETTINGS = (("bootstrap.servers", "localhost:9092"),)


@dataclass(eq=False)
class FakeProducer:
    settings: dict[str, str]
    is_closed: bool = False

    def close(self, timeout: float | None = None) -> None:
        self.is_closed = True


@dataclass(eq=False)
class FakeAlarm:
    delay_s: float
    work: Callable[[], None]
    is_set: bool = False

    def start(self) -> None:
        self.is_set = True

    def cancel(self) -> None:
        self.is_set = False

    def ring(self) -> None:
        assert self.is_set
        self.work()


@dataclass
class World:
    made: list[FakeProducer] = field(default_factory=list)
    alarms: list[FakeAlarm] = field(default_factory=list)

    def cache(self) -> ProducerCache:
        return ProducerCache(self._make, self._alarm)  # type: ignore[arg-type]  # a fake

    def _make(self, settings: dict[str, str]) -> FakeProducer:
        self.made.append(FakeProducer(settings))
        return self.made[-1]

    def _alarm(self, delay_s: float, work: Callable[[], None]) -> FakeAlarm:
        self.alarms.append(FakeAlarm(delay_s, work))
        return self.alarms[-1]


def test_the_next_task_has_the_same_producer() -> None:
    world = World()
    cache = world.cache()
    for _ in range(3):
        with cache.lease(SETTINGS):
            pass
    assert [producer.settings for producer in world.made] == [dict(SETTINGS)]
    assert [alarm.is_set for alarm in world.alarms] == [False, False, True]


def test_other_settings_have_their_own() -> None:
    world = World()
    cache = world.cache()
    with cache.lease(SETTINGS), cache.lease((*SETTINGS, ("linger.ms", "1"))):
        pass
    assert len(world.made) == 2


def test_an_idle_one_is_closed() -> None:
    """12:SP-45."""
    world = World()
    cache = world.cache()
    with cache.lease(SETTINGS):
        pass
    assert world.alarms[0].delay_s == IDLE_S < 60
    world.alarms[0].ring()
    assert world.made[0].is_closed
    with cache.lease(SETTINGS):
        pass
    assert len(world.made) == 2


def test_one_in_use_is_not_closed_by_an_alarm_that_came_late() -> None:
    world = World()
    cache = world.cache()
    with cache.lease(SETTINGS):
        pass
    with cache.lease(SETTINGS):
        world.alarms[0].work()
        assert not world.made[0].is_closed
    world.alarms[0].work()
    assert world.made[0].is_closed


def test_one_whose_task_failed_is_not_used_again() -> None:
    world = World()
    cache = world.cache()
    with pytest.raises(ValueError, match="refused"), cache.lease(SETTINGS):
        raise ValueError("refused")
    assert world.made[0].is_closed
    with cache.lease(SETTINGS):
        pass
    assert len(world.made) == 2


def test_two_at_once_leave_one() -> None:
    world = World()
    cache = world.cache()
    with cache.lease(SETTINGS), cache.lease(SETTINGS):
        pass
    assert [producer.is_closed for producer in world.made] == [False, True]
