"""The surroundings of a connection as protocols: a loop, and the processor that owns it.

Connections do not know asyncio: `EventLoop` is the part of a loop that they need.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.metrics import Meter
from odradek.network.memory_pool import MemoryPool
from odradek.network.page_cache import ReadAhead
from odradek.network.poller import Poller
from odradek.network.request import ClientInformation
from odradek.network.request_channel import RequestChannel
from odradek.network.streams import ByteStream
from odradek.network.transport import Transport
from odradek.purgatory import Timer

if TYPE_CHECKING:
    from odradek.network.connection import Connection

__all__ = ["ConnectionHost", "EventLoop", "ServerLoop"]


class EventLoop(Protocol):
    """The part of an event loop that sockets need."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None: ...

    def remove_reader(self, fd: int, /) -> bool: ...

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> None: ...

    def remove_writer(self, fd: int, /) -> bool: ...

    def call_soon(self, callback: Callable[[], object], /) -> Any: ...


class ServerLoop(EventLoop, Protocol):
    """The part of an event loop that a server with threads beside it needs."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> Any: ...


class ConnectionHost(Protocol):
    """The part of a processor that its connections need."""

    id: int
    busy: Meter
    channel: RequestChannel
    loop: Poller
    timer: Timer
    pool: MemoryPool
    read_ahead: ReadAhead
    now_ns: Callable[[], int]
    failed_authentication_delay_ms: int
    # While answers to many connections leave: the connections whose answers are to be counted.
    sent: "list[Connection] | None"
    # Moves bytes through a stream that is not encrypted.
    plain_transport: Callable[[ByteStream], Transport]

    def touch(self, connection: "Connection", now_ns: int) -> None:
        """Notes that the connection received or sent bytes."""
        ...

    def flush_later(self, connection: "Connection") -> None:
        """Calls its `flush` when all connections of this wake-up have been served."""
        ...

    def forget(self, connection: "Connection") -> None:
        """Removes a connection that is closed."""
        ...

    def count_client(self, before: ClientInformation, after: ClientInformation) -> None:
        """Counts a connection under the software that its peer has named."""
        ...

    def may_log(self, cause: str, now_ns: int) -> bool:
        """Whether another line of this cause may be logged."""
        ...
