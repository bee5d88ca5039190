"""Tests of the client are coroutines; each runs on a loop of its own."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from odradek.records.gathering import IS_ATOMIC, Gathering
from odradek.records.gathering_pure import GatheringPure

# No answer of a scripted broker takes so long.
_TIMEOUT_S = 30


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def run() -> None:
        async with asyncio.timeout(_TIMEOUT_S):
            await test(**arguments)

    asyncio.run(run())
    return True


@pytest.fixture
def use_gathering(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Any]], None]:
    """Has producers gather records with another class, as where nothing is compiled."""

    def use(made: type[Any]) -> None:
        for module in ("accumulator", "batch"):
            monkeypatch.setattr(f"odradek.client.producer.{module}.Gathering", made)
        is_atomic = IS_ATOMIC and made is Gathering
        monkeypatch.setattr("odradek.client.producer.accumulator.IS_ATOMIC", is_atomic)

    return use


@pytest.fixture(params=[Gathering, GatheringPure], ids=["built", "pure"])
def gathering(
    request: pytest.FixtureRequest, use_gathering: Callable[[type[Any]], None]
) -> type[Any]:
    """Each twin in its turn: the one that was built, and the one that needs the producer's lock."""
    use_gathering(request.param)
    made: type[Any] = request.param
    return made
