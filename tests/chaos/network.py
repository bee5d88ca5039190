"""Hosts on one machine: a network namespace for each, and a router between them that drops packets.

Each host has one interface and one address, 10.99.N.2, and reaches the others through the router,
a namespace as well. A link is cut by a routing rule there: packets from one address to another are
dropped without a word, in one direction or in both. Nothing outside of these namespaces is reached:
the router has no other interface.

Where namespaces are not permitted, hosts are addresses 127.0.0.N of this machine, and no link can
be cut: `Network.can_cut` says so.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Link", "Network", "open_network", "why_no_namespaces"]

_CLONE_NEWNET = 0x40000000
_IP_TIMEOUT_S = 30

# From one host to another; a cut in both directions is two of them.
Link = tuple[str, str]


def why_no_namespaces() -> str | None:
    """The reason why this process cannot make network namespaces; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2's ip"
    name = f"chaos{os.getpid()}-try"
    made = _try_ip("netns", "add", name)
    if made is not None:
        return f"no network namespaces here: {made}"
    try:
        if failed := _try_ip("-n", name, "rule", "add", "from", "10.99.0.1", "blackhole"):
            return f"no routing rules here: {failed}"
        veth = ("link", "add", "v0", "type", "veth", "peer", "name", "v1")
        if failed := _try_ip("-n", name, *veth):
            return f"no pairs of interfaces here: {failed}"
    finally:
        _ip("netns", "del", name)
    return None


@dataclass(slots=True)
class Network:
    """The hosts by name, in order of their numbers, which begin with 1."""

    hosts: tuple[str, ...]
    can_cut: bool
    _prefix: str = ""
    _cut: set[tuple[str, str, int | None]] = field(default_factory=set)

    def address(self, host: str) -> str:
        number = self.hosts.index(host) + 1
        return f"10.99.{number}.2" if self.can_cut else f"127.0.0.{number + 10}"

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """The command that runs another one on a host."""
        if not self.can_cut:
            return list(command)
        return ["nsenter", f"--net=/run/netns/{self._namespace(host)}", "--", *command]

    def enter(self, host: str) -> None:
        """Moves this thread, and what it starts from now on, to a host."""
        if not self.can_cut:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(f"/run/netns/{self._namespace(host)}", os.O_RDONLY)
        try:
            if libc.setns(descriptor, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns to {host}")
        finally:
            os.close(descriptor)

    def cut(self, links: Sequence[Link], port: int | None = None) -> None:
        """Drops all packets from one host to another from now on, or those to a port alone."""
        for source, target in links:
            if (source, target, port) not in self._cut:
                self._cut.add((source, target, port))
                self._rule("add", source, target, port)

    def join(self, links: Sequence[Link], port: int | None = None) -> None:
        """Ends a cut."""
        for source, target in links:
            if (source, target, port) in self._cut:
                self._cut.discard((source, target, port))
                self._rule("del", source, target, port)

    def join_all(self) -> None:
        for source, target, port in sorted(self._cut, key=str):
            self.join([(source, target)], port)

    def make(self) -> None:
        """Makes the namespaces."""
        if not self.can_cut:
            return
        router = self._namespace("router")
        _ip("netns", "add", router)
        _ip("-n", router, "link", "set", "lo", "up")
        for number, host in enumerate(self.hosts, 1):
            name = self._namespace(host)
            _ip("netns", "add", name)
            _ip(
                "link", "add", "eth0", "netns", name,
                "type", "veth", "peer", "name", f"port{number}", "netns", router,
            )  # fmt: skip
            _ip("-n", name, "addr", "add", f"10.99.{number}.2/24", "dev", "eth0")
            _ip("-n", router, "addr", "add", f"10.99.{number}.1/24", "dev", f"port{number}")
            for namespace, device in ((name, "lo"), (name, "eth0"), (router, f"port{number}")):
                _ip("-n", namespace, "link", "set", device, "up")
            _ip("-n", name, "route", "add", "default", "via", f"10.99.{number}.1")
        _ip("netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def remove(self) -> None:
        """Removes the namespaces; interfaces and rules go with them."""
        if self.can_cut:
            for host in (*self.hosts, "router"):
                _try_ip("netns", "del", self._namespace(host))

    def _namespace(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def _rule(self, verb: str, source: str, target: str, port: int | None) -> None:
        assert self.can_cut, "links between addresses of one machine cannot be cut"
        match = ["from", self.address(source), "to", self.address(target)]
        if port is not None:
            match += ["ipproto", "tcp", "dport", str(port)]
        _ip("-n", self._namespace("router"), "rule", verb, *match, "blackhole")


@contextmanager
def open_network(hosts: Sequence[str]) -> Iterator[Network]:
    """A network of hosts for the time of a block."""
    network = Network(
        tuple(hosts), can_cut=why_no_namespaces() is None, _prefix=f"chaos{os.getpid()}"
    )
    try:
        network.make()
        yield network
    finally:
        network.remove()


def _try_ip(*arguments: str) -> str | None:
    """Runs ip; the reason if it fails."""
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=_IP_TIMEOUT_S, check=False
    )
    return None if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"


def _ip(*arguments: str) -> None:
    if (failed := _try_ip(*arguments)) is not None:
        raise OSError(f"ip {' '.join(arguments)}: {failed}")
