"""Tasks that have an owner."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from odradek.tasks import OwnedTasks, TaskSet


def test_leaving_cancels_the_tasks_that_still_run_and_waits_for_them() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def scenario() -> None:
        async with OwnedTasks() as tasks:
            tasks.spawn(wait("a"))
            tasks.spawn(wait("b"))
            await tasks.sleep(0)
            assert ended == []
        assert sorted(ended) == ["a", "b"]

    asyncio.run(scenario())


def test_a_task_that_fails_ends_its_owner() -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    async def scenario() -> None:
        async with OwnedTasks() as tasks:
            tasks.spawn(fail())
            await asyncio.get_running_loop().create_future()

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(scenario())
    assert [str(error) for error in failed.value.exceptions] == ["a bug"]


def test_tasks_sleep_as_their_owner_says() -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    async def scenario() -> None:
        async with OwnedTasks(sleep) as tasks:
            await tasks.sleep(7.5)

    asyncio.run(scenario())
    assert slept == [7.5]


def test_a_stopped_set_has_cancelled_its_tasks_and_waited_for_them() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    async def scenario() -> None:
        tasks = TaskSet()
        tasks.start(wait("a"))
        tasks.start(wait("b"))
        await asyncio.sleep(0)
        await asyncio.create_task(tasks.stop())  # Any task may do it.
        assert sorted(ended) == ["a", "b"]
        await tasks.stop()

    asyncio.run(scenario())


def test_a_task_of_a_set_has_its_result_and_its_failure_for_the_caller_alone() -> None:
    async def work(result: int) -> int:
        if result < 0:
            raise ValueError("a bug")
        return result

    async def scenario() -> None:
        tasks = TaskSet()
        good, bad = tasks.start(work(7)), tasks.start(work(-1))
        assert await good == 7
        with pytest.raises(ValueError, match="a bug"):
            await bad
        await tasks.stop()

    asyncio.run(scenario())


def test_a_set_waits_for_its_tasks_until_the_time_is_over() -> None:
    async def scenario() -> None:
        tasks = TaskSet()
        await tasks.wait(60)  # There are none.
        held = asyncio.get_running_loop().create_future()
        done = tasks.start(asyncio.wait_for(held, None))
        await tasks.wait(0)
        assert not done.done()
        held.set_result(7)
        await tasks.wait(60)
        assert done.result() == 7

    asyncio.run(scenario())


def test_a_generator_that_is_closed_by_another_task_ends_its_set() -> None:
    async def numbers(held: "asyncio.Future[int]") -> AsyncGenerator[int, None]:
        tasks = TaskSet()
        tasks.start(asyncio.wait_for(held, None))
        try:
            yield 1
        finally:
            await tasks.stop()

    async def scenario() -> None:
        held: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        generator = numbers(held)
        assert await anext(generator) == 1
        await asyncio.sleep(0)
        await asyncio.create_task(generator.aclose())
        assert held.cancelled()

    asyncio.run(scenario())
