"""A loop whose time is a number."""

import asyncio
from random import Random

import pytest

from odradek.testing.virtual_loop import Process, SimExecutor, VirtualClock, VirtualLoop


def make_loop() -> VirtualLoop:
    return VirtualLoop(Random(1))


def test_time_jumps_to_what_is_due_and_ties_keep_their_order() -> None:
    loop = make_loop()
    clock = VirtualClock(loop)
    began_ms = clock.monotonic_ms()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic_ms() - began_ms))

    at_s = loop.time() + 3_600
    loop.call_at(at_s, note, "a")
    loop.call_at(at_s, note, "b")
    loop.call_later(1, note, "first")
    loop.call_soon(note, "now")
    loop.run_forever()
    assert seen == [("now", 0), ("first", 1_000), ("a", 3_600_000), ("b", 3_600_000)]


def test_timeouts_and_tasks_work_as_on_any_loop() -> None:
    async def scenario() -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(delay, delay)) for delay in (3, 1, 2)]
        return "".join(str(task.result()) for task in tasks)

    assert make_loop().run_until_complete(scenario()) == "312"


def test_who_waits_for_ever_is_told() -> None:
    async def scenario() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="still waits"):
        make_loop().run_until_complete(scenario())


def test_work_on_threads_is_a_step_of_the_loop() -> None:
    seen: list[str] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(SimExecutor(), seen.append, "work")
        seen.append("begun")
        await work
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    make_loop().run_until_complete(scenario())
    assert seen == ["begun", "work"]


def test_nothing_of_a_killed_process_runs_not_even_its_cleaning_up() -> None:
    loop = make_loop()
    seen: list[str] = []

    async def live(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append(name)
        finally:
            seen.append(f"{name} cleans up")

    async def scenario() -> None:
        await asyncio.sleep(1.5)
        loop.kill(doomed)
        await asyncio.sleep(1)

    doomed, other = Process("doomed"), Process("other")
    for process in (doomed, other):
        loop.run_in(process, lambda: loop.create_task(live(loop.running_process.name)))  # type: ignore[union-attr]
    loop.run_until_complete(scenario())
    assert seen == ["doomed", "other", "other"]


def test_a_process_that_is_killed_by_its_own_step_ends_there() -> None:
    loop = make_loop()
    process = Process("own")
    seen: list[str] = []

    def act() -> None:
        try:
            loop.kill(process)
        except Exception:
            seen.append("handled")
        seen.append("went on")

    loop.run_in(process, loop.call_soon, act)
    loop.run_forever()
    assert seen == []


class Ready:
    """A descriptor that is readable so many times."""

    def __init__(self, count: int) -> None:
        self.count = count

    def is_readable(self) -> bool:
        return self.count > 0

    def is_writable(self) -> bool:
        return False


def test_a_reader_is_called_as_long_as_there_is_something() -> None:
    loop = make_loop()
    ready = Ready(3)
    fd = loop.add_descriptor(ready)
    calls: list[int] = []

    def read() -> None:
        calls.append(ready.count)
        ready.count -= 1

    loop.add_reader(fd, read)
    loop.run_forever()
    assert calls == [3, 2, 1]
    ready.count = 1
    loop.poke(fd)
    loop.run_forever()
    assert calls == [3, 2, 1, 1]
    assert loop.remove_reader(fd)
    ready.count = 1
    loop.poke(fd)
    loop.run_forever()
    assert calls == [3, 2, 1, 1]
