"""Connections within one host need no congestion control.

Where the system paces what it sends (`net.ipv4.tcp_congestion_control = bbr`), it does so towards a
client on the same host, too: timers between packets that only pass through memory. Fetching from
the page cache was half as fast again without. So local connections get the plainest control there
is; it sends what the peer has room for, and every Linux has it. Nothing changes for remote peers:
their paths may be congested, and the operator has chosen how to behave then.
"""

from contextlib import suppress
from socket import IPPROTO_TCP, TCP_CONGESTION
from typing import Final

from odradek.network.streams import ByteStream

__all__ = ["is_local", "send_unpaced"]

_PLAINEST: Final = b"reno"


def is_local(own_address: str, peer_address: str) -> bool:
    """Whether both ends of a connection are on this host, by their addresses."""
    own, peer = (address.removeprefix("::ffff:") for address in (own_address, peer_address))
    return own == peer or (own.startswith("127.") and peer.startswith("127."))


def send_unpaced(sock: ByteStream) -> None:
    """Send as fast as the peer receives. A system that refuses keeps its own way."""
    with suppress(OSError):
        sock.setsockopt(IPPROTO_TCP, TCP_CONGESTION, _PLAINEST)
