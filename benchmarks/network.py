"""The cost of the bare network layer per request: a trivial handler, a client that pipelines.

    python -m benchmarks.network [requests per row]

The server runs in a process of its own on one core if there are two, the client on the other. Each
row has C connections with D requests in flight on each; the figure to watch is the server's CPU
time per request, which moves far less than the rate.
"""

import asyncio
import gc
import os
import random
import resource
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from odradek.clock import SystemClock
from odradek.metrics import MetricRegistry
from odradek.network import NetworkConfig, Request, Response, SendResponse, SocketServer
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.headers import RequestHeader, encode_request_header
from odradek.purgatory import SystemTimer

DEFAULT_REQUESTS = 100_000
CORRELATION_ID = struct.Struct(">i")


class Region(NamedTuple):
    fd: int
    position: int
    length: int
    is_recent: bool = False


class Row(NamedTuple):
    name: str
    connections: int
    depth: int
    request_bytes: int
    response_bytes: int
    from_file: bool = False


ROWS = (
    Row("100 B, one connection x 1", 1, 1, 100, 30),
    Row("100 B, one connection x 5", 1, 5, 100, 30),
    Row("100 B, 50 connections x 1", 50, 1, 100, 30),
    Row("100 B, 50 connections x 5", 50, 5, 100, 30),
    Row("16 KB, 10 connections x 2", 10, 2, 16_500, 30),
    Row("1 MB, 4 connections x 2", 4, 2, 1 << 20, 30),
    Row("answer of 4 KB from a file, 10 x 1", 10, 1, 100, 4 << 10, True),
    Row("answer of 64 KB from a file, 10 x 1", 10, 1, 100, 64 << 10, True),
    Row("answer of 1 MB from a file, 4 x 1", 4, 1, 100, 1 << 20, True),
)


def make_handler(row: Row, fd: int) -> Callable[[Request], Response]:
    body = bytes(row.response_bytes)
    region = Region(fd, 0, row.response_bytes)

    def answer(request: Request) -> Response:
        header = CORRELATION_ID.pack(request.header.correlation_id)
        return SendResponse(request, [header, region] if row.from_file else [header + body])

    return answer


async def serve(row: Row, pipe: Pipe) -> None:
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    timer = SystemTimer("network", loop=loop, clock=clock)
    timer.drive_with(lambda: timer.advance_clock(0))
    config = NetworkConfig(listeners=("PLAINTEXT://127.0.0.1:0",))
    with tempfile.TemporaryFile() as file:
        file.write(bytes(row.response_bytes))
        file.flush()
        server = SocketServer(
            config,
            make_handler(row, file.fileno()),
            broker_id=0,
            loop=loop,
            timer=timer,
            clock=clock,
            metrics=MetricRegistry(clock, random.Random(0)),
        )
        async with server:
            server.bind()
            server.start_processing()
            stopped = asyncio.Event()
            loop.add_reader(pipe.fileno(), stopped.set)
            gc.freeze()
            pipe.send(server.bound_port("PLAINTEXT"))
            started = resource.getrusage(resource.RUSAGE_SELF)
            await stopped.wait()
            loop.remove_reader(pipe.fileno())
            ended = resource.getrusage(resource.RUSAGE_SELF)
            pipe.send(
                (
                    ended.ru_utime - started.ru_utime,
                    ended.ru_stime - started.ru_stime,
                    ended.ru_maxrss,
                )
            )
            await server.shut_down()
        timer.shutdown()


def run_server(row: Row, pipe: Pipe) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    asyncio.run(serve(row, pipe))


def drive(row: Row, port: int, requests: int) -> float:
    """Keeps every connection's requests in flight until enough are answered; returns seconds."""
    header = encode_request_header(RequestHeader(ApiKey.PRODUCE, 7, 1, "bench"))
    payload = header + bytes(max(row.request_bytes - len(header), 0))
    burst = (struct.pack(">i", len(payload)) + payload) * row.depth
    burst_bytes = (row.response_bytes + 8) * row.depth
    sockets: dict[int, socket.socket] = {}
    poller = select.epoll()
    for _ in range(row.connections):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[sock.fileno()] = sock
        poller.register(sock.fileno(), select.EPOLLIN)
    buffer = bytearray(1 << 20)
    missing = dict.fromkeys(sockets, burst_bytes)
    started = time.perf_counter()
    for sock in sockets.values():
        sock.sendall(burst)
    left = requests - row.depth * row.connections
    open_bursts = row.connections
    while open_bursts:
        for fd, _ in poller.poll():
            sock = sockets[fd]
            missing[fd] -= sock.recv_into(buffer)
            if missing[fd] > 0:
                continue
            if left > 0:
                left -= row.depth
                missing[fd] = burst_bytes
                sock.sendall(burst)
            else:
                open_bursts -= 1
    elapsed = time.perf_counter() - started
    for sock in sockets.values():
        sock.close()
    poller.close()
    return elapsed


def measure(row: Row, requests: int) -> str:
    if row.request_bytes + row.response_bytes > 8 << 10:
        requests = max(requests * (8 << 10) // (row.request_bytes + row.response_bytes), 400)
    requests -= requests % (row.depth * row.connections)
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=run_server, args=(row, theirs))
    server.start()
    try:
        port = ours.recv()
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-1:])
        elapsed = drive(row, port, requests)
        os.sched_setaffinity(0, cores)
        ours.send(None)
        user_s, system_s, rss_kb = ours.recv()
    finally:
        server.join(10)
    us = 1e6 / requests
    return (
        f"{row.name:38} {requests / elapsed:10,.0f}/s {(user_s + system_s) * us:8.1f} us"
        f" ({user_s * us:.1f} user, {system_s * us:.1f} system) {rss_kb / 1024:6.0f} MB"
    )


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_REQUESTS
    print(f"{'row':38} {'requests':>12} {'server CPU per request':>11} and its peak memory")
    for row in ROWS:
        print(measure(row, requests), flush=True)


if __name__ == "__main__":
    main()
