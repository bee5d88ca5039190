"""The connections of a client: one per broker, opened when needed, again if it ended.

Rules:

1. Callers that want the same connection at once share it, and the wait for it.
2. An address that failed is left alone for a while (`reconnect.backoff.ms`, doubled up to
   `reconnect.backoff.max.ms`); each failure also gives the next attempt more time
   (`socket.connection.setup.timeout.ms`, up to its `.max`).
3. A connection that was not asked for during `connections.max.idle.ms`, and that waits for no
   answer, is closed.
4. A broker answers the requests of a connection in turn. A request that must not wait behind a
   long poll uses another `lane`: a second connection to the same broker.
"""

import asyncio
from collections.abc import Iterable, Iterator
from random import Random
from typing import TypeAlias

from odradek.client.cluster import Node
from odradek.client.errors import CallTimeoutError, ClosedError
from odradek.client.forks import ForkGuard
from odradek.client.options import ClientOptions
from odradek.client.retry import Deadline, backoff_ms
from odradek.errors import ApiError, DisconnectedError, RequestTimedOutError
from odradek.network.outbound import OutboundConnection

__all__ = ["Connections"]

_Address: TypeAlias = tuple[str, int]
_Key: TypeAlias = tuple[str, int, str]


class _Way:
    """The connection to an address on a lane, and its history."""

    __slots__ = ("connection", "failure_count", "free_at_s", "is_wanted_at_s", "lock", "pauses")

    def __init__(self, pauses: Iterator[int]) -> None:
        self.connection: OutboundConnection | None = None
        # Held while a connection is opened, so that concurrent callers share one.
        self.lock = asyncio.Lock()
        self.pauses = pauses
        self.failure_count = 0  # In a row.
        # In the loop's time: when it may be tried again; when it was last asked for.
        self.free_at_s = 0.0
        self.is_wanted_at_s = 0.0


async def wait_for_place(connection: OutboundConnection, deadline: Deadline) -> None:
    """Waits until a request may be sent, at most until the caller's deadline.

    Raises:
        DisconnectedError: The connection ended.
        RequestTimedOutError: Too many requests are unanswered.
    """
    if connection.can_send:
        return
    try:
        async with asyncio.timeout(deadline.left_ms() / 1000):
            await connection.wait_for_place()
    except TimeoutError as error:
        if isinstance(error, RequestTimedOutError):
            raise
        raise CallTimeoutError(
            f"{connection}: earlier requests were not answered within {deadline.timeout_ms} ms"
        ) from None


class Connections:
    """Owns every socket of a client; `close` ends them all."""

    def __init__(self, options: ClientOptions, rng: Random) -> None:
        self._options = options
        self._rng = rng
        self._ways: dict[_Key, _Way] = {}
        self._reaper: asyncio.TimerHandle | None = None
        # The cluster's features as the newest answer of any broker has them.
        self.features: dict[str, int] = {}
        self._features_epoch = -1
        self._is_closed = False
        self._fork_guard = ForkGuard()

    def opened(self, host: str, port: int, lane: str = "") -> OutboundConnection | None:
        """The connection to an address if there is one; asking keeps it from being idle."""
        way = self._ways.get((host, port, lane))
        if way is None or way.connection is None or way.connection.is_closed:
            return None
        way.is_wanted_at_s = asyncio.get_running_loop().time()
        return way.connection

    async def to(
        self, host: str, port: int, deadline: Deadline, *, lane: str = ""
    ) -> OutboundConnection:
        """The open connection to an address.

        Raises:
            DisconnectedError: The address does not answer.
            RequestTimedOutError: Not before the deadline.
            ClosedError: The client is closed.
            ForkedError: The client belongs to a parent process.
        """
        self._check()
        connection = self.opened(host, port, lane)
        if connection is not None:
            return connection
        way = self._ways.get((host, port, lane))
        if way is None:
            way = self._ways[host, port, lane] = _Way(self._pauses())
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000), way.lock:
                return await self._open(way, host, port)
        except TimeoutError as error:
            if isinstance(error, RequestTimedOutError):
                raise
            raise CallTimeoutError(
                f"no connection to {host}:{port} within {deadline.timeout_ms} ms"
            ) from None

    async def to_any(self, nodes: Iterable[Node], deadline: Deadline) -> OutboundConnection:
        """A connection to any broker: an open one, or to a known broker, or to a bootstrap address.

        Raises:
            DisconnectedError: None of them answers; the message has the error of each.
            RequestTimedOutError: As `to`.
            ClosedError: As `to`.
        """
        self._check()
        for host, port, lane in list(self._ways):
            if not lane and (connection := self.opened(host, port)) is not None:
                return connection
        failures = []
        for host, port in self._candidates(nodes):
            try:
                return await self.to(host, port, deadline)
            except ApiError as error:
                if not deadline.left_ms():
                    raise
                failures.append(str(error))
        raise DisconnectedError("; ".join(failures))

    def close(self) -> None:
        """Ends every connection; requests without an answer fail with `DisconnectedError`."""
        self._is_closed = True
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for way in self._ways.values():
            if way.connection is not None:
                way.connection.close("the client is closed")

    def _check(self) -> None:
        self._fork_guard.check()
        if self._is_closed:
            raise ClosedError

    def _candidates(self, nodes: Iterable[Node]) -> Iterable[_Address]:
        """Known brokers in any order, then the bootstrap addresses; those that failed come last."""
        known = [(node.host, node.port) for node in nodes]
        self._rng.shuffle(known)
        if known and not self._options.is_rebootstrapping:
            return known
        every = list(dict.fromkeys([*known, *self._options.bootstrap]))
        return sorted(every, key=self._free_at_s)

    def _free_at_s(self, address: _Address) -> float:
        way = self._ways.get((*address, ""))
        return way.free_at_s if way is not None and way.failure_count else 0.0

    async def _open(self, way: _Way, host: str, port: int) -> OutboundConnection:
        self._check()
        if way.connection is not None and not way.connection.is_closed:
            return way.connection  # Another caller opened it while this one waited.
        loop = asyncio.get_running_loop()
        if way.failure_count and way.free_at_s > loop.time():
            await asyncio.sleep(way.free_at_s - loop.time())
            self._check()
        timeout_ms = self._options.connect_timeout_ms << min(way.failure_count, 16)
        timeout_ms = min(timeout_ms, self._options.connect_timeout_max_ms)
        try:
            connection = await OutboundConnection.open(
                host, port, self._options.outbound(timeout_ms)
            )
        except ApiError:
            way.failure_count += 1
            way.free_at_s = loop.time() + next(way.pauses) / 1000
            raise
        if self._is_closed:
            connection.close("the client is closed")
            raise ClosedError
        if connection.features_epoch >= self._features_epoch:
            self._features_epoch = connection.features_epoch
            self.features = connection.features
        way.failure_count = 0
        way.pauses = self._pauses()
        way.connection = connection
        way.is_wanted_at_s = loop.time()
        self._watch_idle(loop)
        return connection

    def _pauses(self) -> Iterator[int]:
        options = self._options
        return backoff_ms(options.reconnect_backoff_ms, options.reconnect_backoff_max_ms, self._rng)

    def _watch_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        idle_ms = self._options.connections_max_idle_ms
        if idle_ms >= 0 and self._reaper is None:
            self._reaper = loop.call_later(idle_ms / 1000, self._reap, loop)

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        self._reaper = None
        idle_s = self._options.connections_max_idle_ms / 1000
        due_s = []
        for key, way in list(self._ways.items()):
            if way.connection is None or way.connection.is_closed:
                if not way.lock.locked() and not way.failure_count:
                    del self._ways[key]
                continue
            if way.connection.in_flight_count:
                way.is_wanted_at_s = loop.time()
            if loop.time() - way.is_wanted_at_s >= idle_s:
                way.connection.close("it was idle")
            else:
                due_s.append(way.is_wanted_at_s + idle_s)
        if due_s:
            self._reaper = loop.call_at(min(due_s), self._reap, loop)
