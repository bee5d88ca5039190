"""The HTTP face of metrics and health, over real sockets on this machine."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import pytest

from odradek.broker import observability
from odradek.broker.observability import ObservabilityServer
from odradek.metrics import CONTENT_TYPE, MetricRegistry, render_prometheus
from odradek.testing import ManualClock


def registry() -> MetricRegistry:
    metrics = MetricRegistry(ManualClock(), Random(1))
    group = metrics.group("kafka.server", "BrokerTopicMetrics")
    for index in range(500):
        group.meter("BytesInPerSec", topic=f"t{index}").mark(index)
    return metrics


async def ask(port: int, data: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        answer = await reader.read()
    finally:
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def unchunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    while True:
        length, _, body = body.partition(b"\r\n")
        size = int(length, 16)
        if size == 0:
            assert body == b"\r\n"
            return b"".join(parts)
        parts.append(body[:size])
        assert body[size : size + 2] == b"\r\n"
        body = body[size + 2 :]


def serve(
    talk: Callable[[int], Awaitable[None]],
    *,
    metrics: MetricRegistry | None = None,
    why_unhealthy: Callable[[], str | None] = lambda: None,
) -> None:
    async def run() -> None:
        server = ObservabilityServer(metrics or registry(), why_unhealthy)
        _, port = await server.start()
        try:
            await talk(port)
        finally:
            await server.stop()

    asyncio.run(run())


def test_metrics_come_in_chunks() -> None:
    metrics = registry()

    async def talk(port: int) -> None:
        head, body = await ask(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert f"Content-Type: {CONTENT_TYPE}".encode() in head
        assert b"Transfer-Encoding: chunked" in head
        assert unchunked(body).decode() == render_prometheus(metrics)

    serve(talk, metrics=metrics)


def test_an_old_peer_gets_no_chunks() -> None:
    metrics = registry()

    async def talk(port: int) -> None:
        head, body = await ask(port, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n")
        assert b"chunked" not in head
        assert body.decode() == render_prometheus(metrics)

    serve(talk, metrics=metrics)


@pytest.mark.parametrize(
    ("why", "status", "body"),
    [(None, b"200 OK", b"ok\n"), ("starting", b"503 Service Unavailable", b"starting\n")],
)
def test_health(why: str | None, status: bytes, body: bytes) -> None:
    async def talk(port: int) -> None:
        head, found = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        assert b"Content-Length: %d" % len(body) in head
        assert found == body

    serve(talk, why_unhealthy=lambda: why)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"GET /other HTTP/1.1\r\n\r\n", b"404", id="path"),
        pytest.param(b"POST /metrics HTTP/1.1\r\n\r\n", b"405", id="method"),
        pytest.param(b"GET /metrics\r\n\r\n", b"400", id="no-version"),
        pytest.param(b"\x00\x00\x00\x10\xff\xff\r\n\r\n", b"400", id="another-protocol"),
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"a" * 9_000, b"431", id="too-much"),
    ],
)
def test_what_is_not_served(data: bytes, status: bytes) -> None:
    async def talk(port: int) -> None:
        head, _ = await ask(port, data)
        assert head.startswith(b"HTTP/1.1 " + status)

    serve(talk)


def test_a_failing_health_check_closes_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str | None:
        raise ValueError("broken")

    async def talk(port: int) -> None:
        assert await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n") == (b"", b"")
        head, _ = await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"200" in head

    serve(talk, why_unhealthy=fail)
    assert "broken" in caplog.text


@contextmanager
def limit(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(observability, name, value)
        yield


def test_a_peer_that_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(port: int) -> None:
        assert await ask(port, b"GET /metr") == (b"", b"")

    with limit(monkeypatch, "HEAD_TIMEOUT_S", 0.02):
        serve(talk)


def test_too_many_peers_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(port: int) -> None:
        _, idle = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionResetError):  # Or an end, if the peer saw that first.
            assert await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n") == (b"", b"")
        idle.close()
        await idle.wait_closed()

    with limit(monkeypatch, "MAX_CONNECTIONS", 1):
        serve(talk)


def test_stopping_drops_idle_peers() -> None:
    async def run() -> None:
        server = ObservabilityServer(registry(), lambda: None)
        host, port = await server.start()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /")
        await asyncio.sleep(0.01)

        await server.stop()

        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()

    asyncio.run(run())
