"""Tests of the client are coroutines; each runs on a loop of its own."""

import asyncio
import inspect

import pytest

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
