"""The event queue: order, preemption, failures, waiting."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from odradek.controller.event_manager import EventManager, QueuedEvent
from odradek.controller.events import (
    BrokerChange,
    BrokerModifications,
    ControllerActivity,
    ControllerEvent,
    Expire,
    ShutdownEventThread,
    TopicChange,
)
from odradek.controller.stats import ControllerStats
from odradek.metrics import MetricName, MetricRegistry
from odradek.testing import ManualClock

A, B, X = BrokerChange(), TopicChange(), Expire()


class Processor:
    """Writes down what happens to events."""

    def __init__(self) -> None:
        self.processed: list[ControllerEvent] = []
        self.preempted: list[ControllerEvent] = []
        self.handle: Callable[[ControllerEvent], Awaitable[None]] | None = None

    async def process(self, event: ControllerEvent) -> None:
        self.processed.append(event)
        if self.handle is not None:
            await self.handle(event)

    def preempt(self, event: ControllerEvent) -> None:
        self.preempted.append(event)


class Setup:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = MetricRegistry(self.clock, Random(1))
        self.processor = Processor()
        self.manager = EventManager(
            self.processor,
            clock=self.clock,
            metrics=self.metrics,
            stats=ControllerStats(self.metrics),
        )

    async def drain(self) -> None:
        """Runs until everything that was put is handled."""
        self.manager.put(ShutdownEventThread())
        await self.manager.run()
        self.manager.close()


def test_events_are_processed_in_order() -> None:
    """03b:T1.1, 03b:I1"""

    async def main() -> None:
        setup = Setup()
        setup.manager.put(A)
        setup.manager.put(B)
        await setup.drain()
        assert setup.processor.processed == [A, B]

    asyncio.run(main())


def test_a_failure_does_not_stop_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    """03b:T1.2, 03b:I3, 03b:I4"""

    async def main() -> None:
        setup = Setup()
        states: list[ControllerActivity] = []

        async def handle(event: ControllerEvent) -> None:
            states.append(setup.manager.state)
            if event is A:
                raise RuntimeError("planted")

        setup.processor.handle = handle
        setup.manager.put(A)
        setup.manager.put(B)
        await setup.drain()
        assert setup.processor.processed == [A, B]
        assert states == [ControllerActivity.BROKER_CHANGE, ControllerActivity.TOPIC_CHANGE]
        assert setup.manager.state is ControllerActivity.IDLE

    asyncio.run(main())
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


def test_clear_and_put_preempts_in_order() -> None:
    """03b:T1.3"""

    async def main() -> None:
        setup = Setup()
        setup.manager.put(A)
        setup.manager.put(B)
        setup.manager.clear_and_put(X)
        assert setup.processor.preempted == [A, B]
        await setup.drain()
        assert setup.processor.processed == [X]

    asyncio.run(main())


def test_an_event_is_processed_or_preempted_once() -> None:
    """03b:T1.4, 03b:I2"""

    async def main() -> None:
        processor = Processor()
        preempted = QueuedEvent(A, 0)
        preempted.preempt(processor)
        await preempted.process(processor)
        preempted.preempt(processor)
        processed = QueuedEvent(B, 0)
        await processed.process(processor)
        processed.preempt(processor)
        await processed.process(processor)
        assert (processor.preempted, processor.processed) == ([A], [B])
        await preempted.await_processing()  # A preempted event lets nobody hang.

    asyncio.run(main())


def test_waiting_ends_when_processing_starts() -> None:
    """03b:T1.5"""

    async def main() -> None:
        setup = Setup()
        go_on = asyncio.Event()

        async def handle(_event: ControllerEvent) -> None:
            await go_on.wait()

        setup.processor.handle = handle
        queued = setup.manager.put(A)
        draining = asyncio.ensure_future(setup.drain())
        await queued.await_processing()
        assert setup.manager.state is ControllerActivity.BROKER_CHANGE
        go_on.set()
        await draining

    asyncio.run(main())


def test_times_are_measured() -> None:
    """03b:T1.7: 10 to 35 is a sample of 25; the event itself takes 7."""

    async def main() -> None:
        setup = Setup()

        async def handle(_event: ControllerEvent) -> None:
            setup.clock.advance(7)

        setup.processor.handle = handle
        setup.clock.advance(10)
        setup.manager.put(BrokerModifications(1))
        setup.clock.advance(25)
        size = setup.metrics.get(
            MetricName("kafka.controller", "ControllerEventManager", "EventQueueSize")
        )
        assert size is not None
        assert size.read() == 1  # type: ignore[union-attr]  # it is a gauge
        histogram = setup.manager._queue_time
        await setup.drain()
        assert histogram.snapshot().max == 25
        timer = setup.manager._stats.timers[ControllerActivity.BROKER_CHANGE]
        assert (timer.events.count, timer.durations.snapshot().max) == (1, 7)

    asyncio.run(main())


def test_nothing_slips_between_preemption_and_put() -> None:
    """03b:T1.8: a hundred tasks put while another one clears."""

    async def main() -> None:
        setup = Setup()
        draining = asyncio.ensure_future(setup.manager.run())

        async def put() -> None:
            for _ in range(10):
                setup.manager.put(A)
                await asyncio.sleep(0)

        async def clear() -> None:
            for _ in range(50):
                setup.manager.clear_and_put(X)
                await asyncio.sleep(0)

        await asyncio.gather(clear(), *(put() for _ in range(100)))
        setup.manager.close()
        await draining
        processor = setup.processor
        assert len(processor.processed) + len(processor.preempted) == 100 * 10 + 50
        setup.manager.put(A)  # After the end: whoever waits is answered.
        assert processor.preempted[-1] is A

    asyncio.run(main())


def test_the_end_is_not_an_event_for_the_controller() -> None:
    async def main() -> None:
        setup = Setup()
        setup.manager.put(ShutdownEventThread())
        await setup.manager.run()
        assert setup.processor.processed == []

    asyncio.run(main())


def test_states_have_values_and_metric_names() -> None:
    """03a:E-5, 03b §1.6"""
    names = {state.value: state.metric_name for state in ControllerActivity}
    assert list(names) == list(range(17))
    assert names[0] is None
    assert names[16] is None
    assert names[2] == "LeaderElectionRateAndTimeMs"
    assert names[5] == "PartitionReassignmentRateAndTimeMs"
    assert names[9] == "IsrChangeRateAndTimeMs"
    assert names[14] == "TopicUncleanLeaderElectionEnableRateAndTimeMs"
