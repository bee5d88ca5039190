"""Metrics and health over HTTP, for operators and monitors.

| GET        | answer                                                                   |
|------------|--------------------------------------------------------------------------|
| `/metrics` | 200, Prometheus text                                                     |
| `/healthz` | 200 `ok`, or 503 and the reason why the broker should get no clients now |

One request per connection, GET only, without login: it listens on ``odradek.metrics.host``, by
default for this machine alone. A large page is made and sent in pieces, and other tasks run in
between. A peer that is slow or sends too much is disconnected, so a faulty scraper costs a few
connections and no memory.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

from odradek.metrics import CONTENT_TYPE, MetricRegistry, iter_prometheus

__all__ = ["ObservabilityServer"]

# Prometheus sends some 300 bytes; proxies add their own.
MAX_HEAD_BYTES: Final = 8_192
# Scrapers are few; further connections are closed.
MAX_CONNECTIONS: Final = 32
HEAD_TIMEOUT_S: Final = 10.0
# For the peer to read one piece of an answer.
SEND_TIMEOUT_S: Final = 10.0

_PLAIN: Final = "text/plain; charset=utf-8"
_HEAD_END: Final = b"\r\n\r\n"

logger = logging.getLogger(__name__)


class _Refusal(Exception):  # noqa: N818 - an answer, not a failure of ours
    """The answer to a request that is not served."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class ObservabilityServer:
    """Serves `/metrics` and `/healthz` from `start` to `stop`.

    Args:
        metrics: The metrics to serve.
        why_unhealthy: The reason why the broker should get no clients; None if it is healthy.
        port: The port; 0 for any free one.
    """

    def __init__(
        self,
        metrics: MetricRegistry,
        why_unhealthy: Callable[[], str | None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._metrics = metrics
        self._why_unhealthy = why_unhealthy
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> tuple[str, int]:
        """Listens; returns host and port.

        Raises:
            OSError: The address cannot be used.
        """
        self._server = await asyncio.start_server(
            self._serve, self._host, self._port, limit=MAX_HEAD_BYTES
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        logger.info("/metrics and /healthz on http://%s:%d", shown, port)
        return host, port

    async def stop(self) -> None:
        """Stops listening and closes all connections."""
        if self._server is None:
            return
        self._server.close()
        # The task of a connection notices that it is closed, and ends.
        tasks = tuple(self._connections)
        for writer in self._connections.values():
            writer.transport.abort()
        await asyncio.gather(*tasks)
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs a connection as a task"
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections[task] = writer
        try:
            await self._answer(reader, writer)
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            pass  # The peer disconnected or is too slow: no answer is possible.
        except Exception:  # the border of a connection, logged
            logger.exception("A request for metrics or health failed")
        finally:
            await _close(writer)
            del self._connections[task]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, is_chunked = await self._read_head(reader)
        except _Refusal as refusal:
            await _send_text(writer, refusal.status, str(refusal))
            return
        match path:
            case "/metrics":
                await _send_pieces(writer, iter_prometheus(self._metrics), is_chunked=is_chunked)
            case "/healthz":
                why = self._why_unhealthy()
                status = HTTPStatus.OK if why is None else HTTPStatus.SERVICE_UNAVAILABLE
                await _send_text(writer, status, why or "ok")
            case _:
                await _send_text(writer, HTTPStatus.NOT_FOUND, "/metrics and /healthz are here")

    @staticmethod
    async def _read_head(reader: asyncio.StreamReader) -> tuple[str, bool]:
        """The requested path, and whether the answer may be sent in chunks."""
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                head = await reader.readuntil(_HEAD_END)
        except asyncio.LimitOverrunError:
            raise _Refusal(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes"
            ) from None
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise _Refusal(HTTPStatus.BAD_REQUEST, "expected: GET path HTTP/1.1")
        method, target, version = words
        if method != "GET":
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is served")
        return target.partition("?")[0], version != "HTTP/1.0"


async def _send_text(writer: asyncio.StreamWriter, status: HTTPStatus, text: str) -> None:
    body = f"{text}\n".encode()
    writer.write(_head(status, _PLAIN, f"Content-Length: {len(body)}") + body)
    await _drain(writer)


async def _send_pieces(
    writer: asyncio.StreamWriter, pieces: Iterable[str], *, is_chunked: bool
) -> None:
    """Sends a page of unknown length; with chunks the peer can tell whether it is complete."""
    writer.write(
        _head(HTTPStatus.OK, CONTENT_TYPE, *(["Transfer-Encoding: chunked"] if is_chunked else []))
    )
    for piece in filter(None, pieces):
        data = piece.encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data) if is_chunked else data)
        await _drain(writer)
        await asyncio.sleep(0)  # Lets other tasks run: draining waits only if the peer is slow.
    if is_chunked:
        writer.write(b"0\r\n\r\n")
    await _drain(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except ConnectionError:
        pass  # It was closed already, by the peer.


async def _drain(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await writer.drain()


def _head(status: HTTPStatus, content_type: str, *fields: str) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        *fields,
        *(["Allow: GET"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
