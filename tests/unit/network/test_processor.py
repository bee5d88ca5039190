"""The owner of connections: the failure of one is not that of its neighbours."""

import contextlib
import errno
import logging
import os
import random
from collections.abc import Iterator
from functools import partial
from socket import create_connection, create_server, socket
from typing import cast

import pytest

from odradek.metrics import MetricRegistry
from odradek.network.authentication import ListenerSecurity
from odradek.network.config import NetworkConfig
from odradek.network.connection_quotas import ConnectionQuotas
from odradek.network.memory_pool import MemoryPool
from odradek.network.page_cache import PageCache, ReadAhead
from odradek.network.poller import Poller
from odradek.network.processor import Processor
from odradek.network.request import NoOpResponse, Request, Response, SendResponse
from odradek.network.transport import Transport
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.headers import RequestHeader, encode_request_header
from odradek.testing import ManualClock
from tests.unit.network.network_fakes import Bench, FakeConnection, make_request
from tests.unit.network.test_poller import Loop


class Answered(FakeConnection):
    """Notes its answers, or fails with them."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.answers: list[Response] = []

    def complete(self, response: Response) -> None:
        if self.fails:
            raise RuntimeError("cannot be answered")
        self.answers.append(response)


class Surroundings:
    """A processor, with a loop and a channel in the hands of the test."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.poller = Poller(self.loop)
        self.parked: list[Request] = []
        self.bench = Bench(self.parked.append)
        clock = ManualClock()
        config = NetworkConfig(listeners=("PLAINTEXT://127.0.0.1:0",))
        self.quotas = ConnectionQuotas(clock)
        self.quotas.add_listener("PLAINTEXT")
        metrics = MetricRegistry(clock, random.Random(1))
        self.processor = Processor(
            0,
            "processor-0",
            endpoint=config.endpoints[0],
            channel=self.bench.channel,
            security=ListenerSecurity(),
            quotas=self.quotas,
            pool=MemoryPool(),
            read_ahead=ReadAhead(PageCache(), self.loop.call_soon),
            loop=self.poller,
            timer=self.bench.timer,
            clock=clock,
            metrics=metrics,
            request_turn=lambda: None,
            max_frame_bytes=1 << 20,
            max_idle_ms=-1,
            failed_authentication_delay_ms=100,
        )


class Handshake:
    """A handshake without end, that has something to say at first."""

    has_pending = False

    def __init__(self) -> None:
        self.wants_write = True

    def handshake(self) -> bool:
        return False

    def shut_down(self) -> None:
        pass


@contextlib.contextmanager
def pairs(count: int) -> Iterator[list[tuple[socket, socket]]]:
    """Connected sockets, ours first; whoever takes ours closes it."""
    with contextlib.ExitStack() as cleanup:
        server = cleanup.enter_context(create_server(("127.0.0.1", 0)))
        made = []
        for _ in range(count):
            peer = cleanup.enter_context(create_connection(server.getsockname()))
            peer.settimeout(60)
            ours, _ = server.accept()
            ours.setblocking(False)
            made.append((ours, peer))
        yield made


@pytest.fixture
def around() -> Iterator[Surroundings]:
    made = Surroundings()
    yield made
    made.processor.shut_down()
    made.poller.close()


def test_an_answer_that_fails_does_not_keep_the_next_ones(
    around: Surroundings, caplog: pytest.LogCaptureFixture
) -> None:
    connections = [Answered(), Answered(fails=True), Answered()]
    for connection in connections:
        around.processor.enqueue_response(NoOpResponse(make_request(connection)))
    with caplog.at_level(logging.ERROR):
        around.processor.run_turn()

    assert [len(connection.answers) for connection in connections] == [1, 0, 1]
    assert around.processor.response_queue_size == 0
    assert len(caplog.records) == 1
    assert "could not be given" in caplog.text


def test_a_parked_request_that_cannot_be_let_go_does_not_keep_others(
    around: Surroundings, caplog: pytest.LogCaptureFixture
) -> None:
    let_go: list[int] = []

    def fail(number: int) -> None:
        let_go.append(number)
        raise RuntimeError("of a test")

    payload = encode_request_header(RequestHeader(ApiKey.HEARTBEAT, 0, 1, "test"))
    with contextlib.ExitStack() as cleanup:
        server = cleanup.enter_context(create_server(("127.0.0.1", 0)))
        peers = []
        for number in range(2):
            peers.append(cleanup.enter_context(create_connection(server.getsockname())))
            ours, _ = server.accept()
            ours.setblocking(False)
            around.quotas.increment("PLAINTEXT", "127.0.0.1")
            assert around.processor.try_accept(ours, "127.0.0.1")
            around.processor.run_turn()
            peers[number].sendall(len(payload).to_bytes(4, "big") + payload)
            while len(around.parked) == number:
                around.loop.wake()
            around.parked[number].on_abandoned = partial(fail, number)
        with caplog.at_level(logging.ERROR):
            around.processor.shut_down()

        assert let_go == [0, 1]
        assert around.processor.connection_count == 0
        assert caplog.text.count("callback for the abandoned request") == 2
        for peer in peers:
            peer.settimeout(60)
            assert peer.recv(1) == b""


def test_all_answers_of_a_turn_have_left_before_one_of_them_is_counted(
    around: Surroundings,
) -> None:
    """Fifty consumers wait for one record: none waits for the metrics of the others."""
    payload = encode_request_header(RequestHeader(ApiKey.HEARTBEAT, 0, 1, "test"))
    received: list[list[bytes]] = []
    with pairs(3) as made:
        for ours, peer in made:
            around.quotas.increment("PLAINTEXT", "127.0.0.1")
            assert around.processor.try_accept(ours, "127.0.0.1")
            peer.sendall(len(payload).to_bytes(4) + payload)
        around.processor.run_turn()
        while len(around.parked) < 3:
            around.loop.wake()

        def note() -> None:
            if not received:
                received.append([peer.recv(100) for _, peer in made])

        for request in around.parked:
            around.processor.enqueue_response(SendResponse(request, [b"answer"], note))
        around.processor.run_turn()

        assert received == [[b"\0\0\0\6answer"] * 3]


def test_a_processor_that_goes_tells_whoever_waits_for_room(around: Surroundings) -> None:
    """It never has room again; a listener that heard nothing would wait for ever."""
    told: list[bool] = []
    around.processor.when_room(lambda: told.append(True))
    around.processor.shut_down()

    assert told == [True]


def test_a_socket_that_cannot_be_watched_is_closed_and_the_next_one_served(
    around: Surroundings, caplog: pytest.LogCaptureFixture
) -> None:
    with pairs(2) as ((refused, refused_peer), (served, served_peer)):
        # The kernel refuses a socket that it watches already.
        around.poller.add_reader(served_peer.fileno(), lambda: None)
        assert around.poller._epoll is not None
        around.poller._epoll.register(refused.fileno(), 0)
        for ours in (refused, served):
            around.quotas.increment("PLAINTEXT", "127.0.0.1")
            assert around.processor.try_accept(ours, "127.0.0.1")
        around.processor.run_turn()

        assert around.processor.connection_count == around.quotas.total == 1
        assert refused_peer.recv(1) == b""
        assert refused.fileno() == -1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert os.strerror(errno.EEXIST) in caplog.text


def test_a_handshake_that_has_said_all_waits_for_the_peer_only(around: Surroundings) -> None:
    """A socket that takes bytes, watched for nothing, would keep the loop awake."""
    with pairs(1) as ((ours, peer),):
        around.quotas.increment("PLAINTEXT", "127.0.0.1")
        assert around.processor.try_accept(ours, "127.0.0.1")
        around.processor.run_turn()
        (connection,) = around.processor.connections
        shaking = Handshake()
        connection._transport = cast("Transport", shaking)
        connection._is_handshaking = True
        peer.sendall(b"hello")
        while not around.poller._writers:
            around.loop.wake()
        shaking.wants_write = False
        around.loop.wake()

        assert not around.poller._writers
        assert ours.fileno() in around.poller._readers
