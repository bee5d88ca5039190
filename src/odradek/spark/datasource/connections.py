"""Connections to clusters that the tasks of one process share, and that close when unused.

Spark keeps its Python workers for the next tasks: connecting again would take longer than many of
them. A connection is kept for `IDLE_MS` after its last use; then a thread closes it and ends, so
that a stopped query leaves nothing behind. A child process starts without connections.
"""

import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from odradek.client.blocking import LoopThread
from odradek.client.client import Client
from odradek.client.config import ClientConfig, read_settings
from odradek.client.consumer.config import CONSUMER_DEFINITION, ConsumerConfig
from odradek.client.options import client_options
from odradek.clock import Clock, SystemClock

__all__ = ["CONNECTIONS", "IDLE_MS", "ClusterConnection", "ConnectionCache"]

T = TypeVar("T")

# Below the minute within which nothing of a stopped query may be left (SP-45).
IDLE_MS: Final = 30_000


class ClusterConnection:
    """A client of one cluster, on an event loop in a thread of its own."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Makes the client and starts its thread.

        Raises:
            ConfigError: A setting cannot be used.
        """
        told = read_settings(CONSUMER_DEFINITION, settings, {})
        self.config = told.build(ConsumerConfig)
        options = client_options(told.build(ClientConfig))
        self._thread = LoopThread("odradek-spark")
        # Made in the thread: a client belongs to the loop it is made on.
        self.client = self._thread.run(_made(options))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for it."""
        return self._thread.run(work)

    def close(self) -> None:
        """Ends the connections and the thread."""
        self._thread.run(_closed(self.client))
        self._thread.stop()


async def _made(options: Any) -> Client:
    return Client(options)


async def _closed(client: Client) -> None:
    client.close()


@dataclass(slots=True)
class _Entry:
    connection: ClusterConnection
    use_count: int = 0
    last_used_ms: int = 0


@dataclass(slots=True)
class ConnectionCache:
    """See the module's docstring. May be used by several threads."""

    connect: Callable[[Mapping[str, str]], ClusterConnection] = ClusterConnection
    clock: Clock = field(default_factory=SystemClock)
    idle_ms: int = IDLE_MS
    _entries: dict[tuple[tuple[str, str], ...], _Entry] = field(default_factory=dict)
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _closer: threading.Thread | None = None

    @contextmanager
    def lease(self, settings: Mapping[str, str]) -> Iterator[ClusterConnection]:
        """Lends a connection for the block.

        Raises:
            ConfigError: A setting cannot be used.
        """
        key = tuple(sorted(settings.items()))
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(self.connect(settings))
            entry.use_count += 1
        try:
            yield entry.connection
        finally:
            with self._lock:
                entry.use_count -= 1
                entry.last_used_ms = self.clock.monotonic_ms()
                self._start_closer()

    def close_idle(self) -> int | None:
        """Closes connections unused for `idle_ms`; returns the ms to the next check, if any."""
        now_ms = self.clock.monotonic_ms()
        waits = []
        with self._lock:
            for key, entry in list(self._entries.items()):
                left_ms = entry.last_used_ms + self.idle_ms - now_ms
                if entry.use_count:
                    waits.append(self.idle_ms)
                elif left_ms > 0:
                    waits.append(left_ms)
                else:
                    del self._entries[key]
                    entry.connection.close()
            if not waits:
                self._closer = None
        return min(waits, default=None)

    def close_unused(self) -> None:
        """Closes the connections that no task uses now."""
        with self._lock:
            for key, entry in list(self._entries.items()):
                if not entry.use_count:
                    del self._entries[key]
                    entry.connection.close()
            self._lock.notify_all()

    def forget(self) -> None:
        """Drops all entries in a child process, which must not touch its parent's sockets."""
        self._entries = {}
        self._lock = threading.Condition()
        self._closer = None

    @property
    def count(self) -> int:
        """The number of open connections."""
        return len(self._entries)

    def _start_closer(self) -> None:
        if self._closer is None:
            self._closer = threading.Thread(
                target=self._close_when_idle, name="odradek-spark-idle", daemon=True
            )
            self._closer.start()

    def _close_when_idle(self) -> None:
        while (wait_ms := self.close_idle()) is not None:
            with self._lock:
                self._lock.wait(wait_ms / 1000)


CONNECTIONS: Final = ConnectionCache()
os.register_at_fork(after_in_child=CONNECTIONS.forget)
