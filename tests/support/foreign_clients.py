"""Which tests run Python clients of others in their own process.

Such a client may forget a connection, most likely one that a kill of its broker met while it was
being opened. The collector finds it at any later time, and pytest blames the test that runs then.
`tests/conftest.py` collects the garbage of these tests within them, and forgives what they forgot.
"""

import sys
from types import ModuleType
from typing import Final

__all__ = ["FORGIVEN", "runs_foreign_client"]

_PACKAGES: Final = frozenset({"aiokafka", "kafka"})

# What the clients forget: no file, and nothing that Odradek's own connections consist of but the
# bare socket.
FORGIVEN: Final = (
    "ignore:Unclosed AIOKafka:ResourceWarning",
    "ignore:unclosed transport:ResourceWarning",
    "ignore:unclosed <asyncio.streams:ResourceWarning",
    "ignore:unclosed <StreamWriter:ResourceWarning",
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:loop is closed:ResourceWarning",
)

_known: dict[str, bool] = {}


def runs_foreign_client(module: ModuleType) -> bool:
    """Whether a module of tests has a foreign client, or what uses one in another module of tests.

    What a function imports when it is called does not count: programs that run alone do that.
    """
    name = module.__name__
    if name not in _known:
        _known[name] = False  # Modules that name each other.
        _known[name] = any(
            _is_foreign(origin) or (origin.startswith("tests.") and _runs_one(origin))
            for origin in _origins(module)
        )
    return _known[name]


def _runs_one(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and runs_foreign_client(module)


def _is_foreign(name: str) -> bool:
    return name.partition(".")[0] in _PACKAGES


def _origins(module: ModuleType) -> set[str]:
    """The modules that define what a module names."""
    named = vars(module).values()
    return {
        one.__name__ if isinstance(one, ModuleType) else str(getattr(one, "__module__", ""))
        for one in tuple(named)
        if isinstance(one, ModuleType) or callable(one)
    }
