"""Background work of logs on an event loop."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from odradek.broker.background import LoopTasks, yield_to_requests


def run(test: Callable[[LoopTasks], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            tasks = LoopTasks(asyncio.get_running_loop(), executor)
            await test(tasks)
            await tasks.stop()

    asyncio.run(main())


def test_work_is_done_elsewhere_and_told_here() -> None:
    threads: dict[str, int] = {}

    async def test(tasks: LoopTasks) -> None:
        told = asyncio.Event()

        def done(error: BaseException | None) -> None:
            assert error is None
            threads["done"] = threading.get_ident()
            told.set()

        tasks.submit(lambda: threads.update(work=threading.get_ident()), done)
        await told.wait()

    run(test)
    assert threads["done"] == threading.get_ident() != threads["work"]


def test_errors_are_told() -> None:
    errors: list[BaseException | None] = []

    async def test(tasks: LoopTasks) -> None:
        def work() -> None:
            raise OSError(5, "input/output error")

        tasks.submit(work, errors.append)

    run(test)
    [error] = errors
    assert isinstance(error, OSError)


def test_what_nobody_reckons_with_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[BaseException | None] = []

    async def test(tasks: LoopTasks) -> None:
        def work() -> None:
            raise ValueError("a bug")

        tasks.submit(work, errors.append)

    with caplog.at_level(logging.ERROR):
        run(test)
    assert isinstance(errors[0], ValueError)
    assert "a bug" in caplog.text


def test_work_that_is_cancelled_is_told_so() -> None:
    errors: list[BaseException | None] = []

    async def test(tasks: LoopTasks) -> None:
        tasks.submit(lambda: None, errors.append)
        for future in set(tasks._pending):
            future.cancel()

    run(test)
    assert isinstance(errors[0], asyncio.CancelledError)


def test_stopping_waits_for_work_and_for_what_it_submits() -> None:
    order: list[str] = []

    async def test(tasks: LoopTasks) -> None:
        def more(_error: BaseException | None) -> None:
            order.append("first")
            tasks.submit(lambda: None, lambda _error: order.append("second"))

        tasks.submit(lambda: None, more)
        await tasks.stop()
        assert order == ["first", "second"]

    run(test)


def test_postponed_work_runs_unless_stopped_before(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    async def test(tasks: LoopTasks) -> None:
        soon = asyncio.Event()

        def fail() -> None:
            raise ValueError("a bug")

        tasks.call_later(0, fail)
        tasks.call_later(1, soon.set)
        tasks.call_later(3_600_000, lambda: ran.append("late"))
        await soon.wait()
        await tasks.stop()
        tasks.call_later(0, lambda: ran.append("after the stop"))
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        run(test)
    assert ran == []
    assert "postponed work failed" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="niceness is the whole process's elsewhere")
def test_a_thread_that_yields_takes_nobody_else_along() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = niceness()
    with ThreadPoolExecutor(1, initializer=yield_to_requests) as executor:
        assert executor.submit(niceness).result() == max(before, 10)
    assert niceness() == before
