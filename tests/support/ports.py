"""Ports for servers that must know theirs before they start."""

import itertools
import os
import random
import socket

# Below the range that Linux takes for port 0 and outgoing connections: nobody else gets a port of
# these between our look and the server's bind. Every process begins somewhere else.
_FIRST, _LAST = 10_240, 32_000
_NEXT = itertools.count(random.Random(os.getpid()).randrange(_LAST - _FIRST))


def free_ports(count: int) -> list[int]:
    """So many different ports of 127.0.0.1 that nothing listens on, none handed out before."""
    found: list[int] = []
    while len(found) < count:
        port = _FIRST + next(_NEXT) % (_LAST - _FIRST)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]
