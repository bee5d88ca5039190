"""The connections of a client: one per broker, opened when needed, again if it ended."""

import asyncio
from collections.abc import Iterable
from random import Random

from odradek.client.cluster import Node
from odradek.client.options import ClientOptions
from odradek.client.retry import Deadline
from odradek.errors import ApiError, DisconnectedError, RequestTimedOutError
from odradek.network.outbound import OutboundConnection

__all__ = ["Connections"]


class Connections:
    """Owns every socket of a client; `close` ends them all."""

    def __init__(self, options: ClientOptions, rng: Random) -> None:
        self._options = options
        self._rng = rng
        self._by_address: dict[tuple[str, int], OutboundConnection] = {}
        # Held while a connection is opened, so that concurrent callers share one.
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._is_closed = False

    async def to(self, host: str, port: int, deadline: Deadline) -> OutboundConnection:
        """The open connection to an address.

        Raises:
            DisconnectedError: nobody answers there.
            RequestTimedOutError: not before the deadline.
        """
        address = (host, port)
        connection = self._by_address.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        lock = self._opening.setdefault(address, asyncio.Lock())
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000), lock:
                return await self._open(host, port)
        except TimeoutError:
            raise RequestTimedOutError(
                f"no connection to {host}:{port} within {deadline.timeout_ms} ms"
            ) from None

    async def to_any(self, nodes: Iterable[Node], deadline: Deadline) -> OutboundConnection:
        """A connection to whichever broker: one that is open, a known one, one to begin with.

        Raises:
            DisconnectedError: none of them answers; the message tells what each said.
            RequestTimedOutError: as `to`.
        """
        for connection in self._by_address.values():
            if not connection.is_closed:
                return connection
        known = [(node.host, node.port) for node in nodes]
        self._rng.shuffle(known)
        failures = []
        for host, port in dict.fromkeys([*known, *self._options.bootstrap]):
            try:
                return await self.to(host, port, deadline)
            except ApiError as error:
                if not deadline.left_ms():
                    raise
                failures.append(str(error))
        raise DisconnectedError("; ".join(failures))

    def close(self) -> None:
        """End every connection; who waits for an answer gets `DisconnectedError`.

        Nobody may be opening one meanwhile: a client is closed by the task that uses it.
        """
        self._is_closed = True
        for connection in self._by_address.values():
            connection.close("the client is closed")
        self._by_address.clear()

    async def _open(self, host: str, port: int) -> OutboundConnection:
        if self._is_closed:
            raise RuntimeError("the client is closed")
        present = self._by_address.get((host, port))
        if present is not None and not present.is_closed:
            return present  # Somebody else opened it while we waited.
        connection = await OutboundConnection.open(host, port, self._options.outbound())
        self._by_address[host, port] = connection
        return connection
