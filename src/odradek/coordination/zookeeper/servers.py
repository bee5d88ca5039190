"""The servers of an ensemble: parsed from `zookeeper.connect`, and which one is tried next. Pure.

The list is shuffled once, so that the brokers of a cluster spread over the servers, and is then
used in turn: a server whose link broke is the last to be tried again. Each round that ends without
a link is followed by a pause, which grows to a second and is drawn at random, so that the brokers
do not return to an ensemble all at once.
"""

from typing import Final, NamedTuple, Protocol

from odradek.coordination.tree import check_path
from odradek.errors import BadArguments, ConfigError
from odradek.lazy_dataclass import dataclass

__all__ = ["DEFAULT_PORT", "Ensemble", "Server", "ServerTurns", "parse_connect_string"]

DEFAULT_PORT: Final = 2181
_KEY: Final = "zookeeper.connect"
_FIRST_PAUSE_MS: Final = 50
_LONGEST_PAUSE_MS: Final = 1000


class Server(NamedTuple):
    """The address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The servers, and the node below which all nodes of the cluster are."""

    servers: tuple[Server, ...]
    chroot: str  # Empty: the root.

    def __str__(self) -> str:
        return ",".join(map(str, self.servers)) + self.chroot


def parse_connect_string(text: str) -> Ensemble:
    """Parses ``host1:port1,host2:port2/chroot``; the port may be left out.

    Raises:
        ConfigError: Naming the part that is wrong.
    """
    addresses, slash, rest = text.strip().partition("/")
    chroot = (slash + rest).rstrip("/")
    if chroot:
        try:
            check_path(chroot)
        except BadArguments as error:
            raise ConfigError(_KEY, text, f"the path after the servers: {error}") from None
    servers = tuple(_parse_server(text, part.strip()) for part in addresses.split(","))
    if len(set(servers)) < len(servers):
        raise ConfigError(_KEY, text, "names a server twice")
    return Ensemble(servers, chroot)


def _parse_server(text: str, part: str) -> Server:
    host, colon, port = part.rpartition(":")
    if part.startswith("[") and part.endswith("]"):
        host, colon, port = part, "", ""
    elif not colon:
        host, port = part, ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(_KEY, text, f"{part!r}: write an IPv6 address as [address]:port")
    if not host or any(character.isspace() for character in host):
        raise ConfigError(
            _KEY, text, f"{part!r}: expected host:port, several separated by commas, then /chroot"
        )
    if not colon:
        return Server(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigError(_KEY, text, f"{part!r}: expected a port from 1 to 65535")
    return Server(host, int(port))


class _Random(Protocol):
    def shuffle(self, x: "list[Server]", /) -> None: ...

    def uniform(self, a: float, b: float, /) -> float: ...


class ServerTurns:
    """Decides which server is tried next, and after which pause.

    Args:
        servers: At least one.
        random: Shuffles them, and draws pauses.
    """

    def __init__(self, servers: tuple[Server, ...], random: _Random) -> None:
        self._servers = list(servers)
        self._random = random
        random.shuffle(self._servers)
        self._next = 0
        self._failed_count = 0  # Attempts since the last link.

    def take(self) -> tuple[Server, float]:
        """The next server, and the milliseconds to wait before it is tried."""
        server = self._servers[self._next]
        self._next = (self._next + 1) % len(self._servers)
        rounds, rest = divmod(self._failed_count, len(self._servers))
        self._failed_count += 1
        if rest or not rounds:
            return server, 0.0
        longest = min(_LONGEST_PAUSE_MS, _FIRST_PAUSE_MS << min(rounds, 10))
        return server, self._random.uniform(longest / 2, longest)

    def connected(self) -> None:
        """The server taken last has accepted the session."""
        self._failed_count = 0
