"""Tasks that have an owner."""

import asyncio

import pytest

from odradek.tasks import OwnedTasks


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
