"""The clients under `odradek`, imported when one of them is first used.

``from odradek import Producer`` must not make every ``import odradek`` pay for asyncio and ssl: the
command line and the pytest plugin import this package each time they start.
"""

import importlib
from typing import Final

__all__ = ["__getattr__"]

_HOMES: Final = {
    "Admin": "odradek.client.admin.blocking",
    "Consumer": "odradek.client.consumer.blocking",
    "Producer": "odradek.client.producer.blocking",
    "SimpleConsumer": "odradek.client.simple_consumer_blocking",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'odradek' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
