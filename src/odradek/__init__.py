"""Odradek: a distributed commit log that speaks the Kafka wire protocol.

The clients of this package block, for plain scripts; those of `odradek.aio` are awaited. They are
imported when they are asked for.
"""

from odradek.lazy import __getattr__

__version__ = "0.1.0"

__all__ = ["Admin", "Consumer", "Producer", "SimpleConsumer", "__getattr__", "__version__"]
