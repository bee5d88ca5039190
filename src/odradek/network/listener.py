"""A listening socket: binds, accepts, and distributes connections to its processors.

A connection is counted first (`odradek.network.connection_quotas`), then offered to each processor
once, round-robin. While there is no slot, no room with any processor, or the rate is too high, the
listening socket is not watched, and new connections wait in the kernel. This time is counted in
AcceptorBlockedPercent.
"""

import errno
import logging
import socket
from typing import Final

from odradek.clock import PreciseClock
from odradek.errors import ConfigError, InvariantViolation
from odradek.metrics import MetricRegistry
from odradek.model import Endpoint
from odradek.network.connection_host import EventLoop
from odradek.network.connection_quotas import ConnectionQuotas, TooManyConnectionsError
from odradek.network.processor import Processor
from odradek.network.sockets import SYSTEM_STREAMS, ByteStreams, is_local, send_unpaced
from odradek.network.streams import ByteStream, ListeningStream
from odradek.purgatory import Timer
from odradek.purgatory.timer import TimerCall

__all__ = ["Listener"]

logger = logging.getLogger(__name__)

# Accepted per wake-up, so that the existing connections get their turn.
_ACCEPTS_PER_TURN: Final = 20
# Out of descriptors or memory: that ends when connections close, so an immediate retry is useless.
_RETRY_MS: Final = 100
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """One listener of the broker.

    Args:
        receive_buffer_bytes, send_buffer_bytes: -1 leaves the choice to the system.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        quotas: ConnectionQuotas,
        loop: EventLoop,
        timer: Timer,
        clock: PreciseClock,
        metrics: MetricRegistry,
        receive_buffer_bytes: int = -1,
        send_buffer_bytes: int = -1,
        backlog: int = 50,
        streams: ByteStreams = SYSTEM_STREAMS,
        metric_prefix: str = "",
    ) -> None:
        self.endpoint = endpoint
        self._streams = streams
        self._quotas = quotas
        self._loop = loop
        self._timer = timer
        self._now_ns = clock.monotonic_ns
        self._receive_buffer_bytes = receive_buffer_bytes
        self._send_buffer_bytes = send_buffer_bytes
        self._backlog = backlog
        self._socket: ListeningStream | None = None
        self.processors: list[Processor] = []
        self._next_processor = 0
        self._is_watched = False
        self._is_started = False
        self._blocked_since_ns: int | None = None
        self._retry: TimerCall | None = None
        # Accepted over the rate of their address: unread until they are closed.
        self._delayed: dict[ByteStream, tuple[str, TimerCall]] = {}
        # Counted, but no processor had room. Invariant: not watched while it is set.
        self._waiting: tuple[ByteStream, str] | None = None
        self._metrics = metrics.group("kafka.network", "Acceptor", listener=endpoint.listener)
        self._blocked = self._metrics.meter(f"{metric_prefix}AcceptorBlockedPercent")

    @property
    def name(self) -> str:
        return self.endpoint.listener

    @property
    def bound_port(self) -> int:
        """The port, once bound.

        Raises:
            InvariantViolation: It is not bound.
        """
        if self._socket is None:
            raise InvariantViolation(f"listener {self.name} is not bound")
        port: int = self._socket.getsockname()[1]
        return port

    def bind(self) -> None:
        """Binds and listens; connections wait in the kernel until `start`.

        Raises:
            ConfigError: The address cannot be bound.
        """
        host, port = self.endpoint.host, self.endpoint.port
        try:
            self._socket = self._streams.listen(
                host,
                port,
                backlog=self._backlog,
                receive_buffer_bytes=self._receive_buffer_bytes,
            )
        except OSError as error:
            raise ConfigError(
                "listeners", self.endpoint.connection_string, f"cannot listen there: {error}"
            ) from error

    def start(self) -> None:
        """Begins to accept. There must be a processor."""
        assert self.processors, "a listener without processors cannot serve what it accepts"
        self._is_started = True
        self._resume()

    def remove_processors(self, count: int) -> list[Processor]:
        """Takes the last `count` processors off the list: they get no new connections."""
        removed = self.processors[-count:]
        del self.processors[-count:]
        return removed

    def close(self) -> None:
        """Stops accepting, for good. The processors close existing connections."""
        self._is_started = False
        self._unwatch()
        if self._retry is not None:
            self._retry.cancel()
        if self._waiting is not None:
            (sock, address), self._waiting = self._waiting, None
            self._close_counted(sock, address)
        for sock, (address, task) in tuple(self._delayed.items()):
            task.cancel()
            self._close_delayed(sock, address)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._metrics.remove()

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._quotas.has_slot(self.name):
                self._block()
                self._quotas.when_slot_is_free(self.name, self._resume)
                return
            try:
                assert self._socket is not None, "a closed listener is not watched"
                sock, remote = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            if not self._admit(sock, _plain_address(remote[0])):
                return

    def _admit(self, sock: ByteStream, address: str) -> bool:
        """Counts, configures and assigns a connection. Returns whether to accept another now."""
        try:
            self._quotas.increment(self.name, address)
            self._configure(sock, address)
        except TooManyConnectionsError as error:
            logger.info(
                "Listener %s refused a connection: %s",
                self.name,
                error,
                extra={"listener": self.name, "client_address": address, "reason": str(error)},
            )
            self._close_counted(sock, address)
            return True
        except OSError as error:
            logger.info("A connection of %s broke at once: %s", address, error)
            self._close_counted(sock, address)
            return True
        delay_ms = self._quotas.ip_throttle_ms(address)
        if delay_ms:
            task = TimerCall(delay_ms, lambda: self._close_delayed(sock, address))
            self._delayed[sock] = address, task
            self._timer.add(task)
            return True
        pause_ms = self._quotas.accept_throttle_ms(self.name)
        if not self._deal(sock, address):
            return False
        if pause_ms:
            self._block_for(pause_ms)
            return False
        return True

    def _configure(self, sock: ByteStream, address: str) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if is_local(sock.getsockname()[0], address):
            send_unpaced(sock)

    def _deal(self, sock: ByteStream, address: str) -> bool:
        """Offers a connection to each processor once; if none has room, waits for the last one."""
        processors = self.processors
        for _ in range(len(processors)):
            # The list may have become shorter since the last time.
            self._next_processor %= len(processors)
            processor = processors[self._next_processor]
            self._next_processor += 1
            if processor.try_accept(sock, address):
                return True
        self._waiting = sock, address
        self._block()
        processor.when_room(self._deal_waiting)
        return False

    def _deal_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and self._deal(*waiting):
            self._resume()

    def _accept_failed(self, error: OSError) -> None:
        if error.errno in _OUT_OF_RESOURCES:
            logger.warning("Listener %s cannot accept for now: %s", self.name, error)
            self._block_for(_RETRY_MS)
        else:
            logger.info("Listener %s: a peer was gone before it was accepted: %s", self.name, error)

    def _close_counted(self, sock: ByteStream, address: str) -> None:
        sock.close()
        self._quotas.decrement(self.name, address)

    def _close_delayed(self, sock: ByteStream, address: str) -> None:
        if self._delayed.pop(sock, None) is not None:
            self._close_counted(sock, address)

    def _block(self) -> None:
        self._unwatch()
        if self._blocked_since_ns is None:
            self._blocked_since_ns = self._now_ns()

    def _block_for(self, delay_ms: int) -> None:
        self._block()
        self._retry = TimerCall(delay_ms, self._resume)
        self._timer.add(self._retry)

    def _resume(self) -> None:
        if self._blocked_since_ns is not None:
            self._blocked.count += self._now_ns() - self._blocked_since_ns
            self._blocked_since_ns = None
        if self._is_started and self._waiting is None and not self._is_watched:
            assert self._socket is not None, "only a bound listener is started"
            self._is_watched = True
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _unwatch(self) -> None:
        if self._is_watched:
            assert self._socket is not None, "only a bound listener is watched"
            self._is_watched = False
            self._loop.remove_reader(self._socket.fileno())


def _plain_address(host: str) -> str:
    """The address without its scope; that of an IPv4 peer of a dual-stack socket as IPv4."""
    return host.partition("%")[0].removeprefix("::ffff:")
