"""Local connections are not paced."""

import socket

import pytest

from odradek.network.sockets import is_local, send_unpaced


@pytest.mark.parametrize(
    ("own", "peer", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("::ffff:10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.8", False),
        ("10.0.0.7", "127.0.0.1", False),
        ("fe80::1", "fe80::2", False),
    ],
)
def test_both_ends_on_one_host(own: str, peer: str, expected: bool) -> None:
    assert is_local(own, peer) is expected


def test_the_plainest_control_is_chosen() -> None:
    with socket.socket() as sock:
        send_unpaced(sock)
        chosen = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)

    assert chosen.rstrip(b"\0") == b"reno"


def test_a_system_that_refuses_keeps_its_own_way() -> None:
    left, right = socket.socketpair()  # No TCP, so there is nothing to choose.
    with left, right:
        send_unpaced(left)
