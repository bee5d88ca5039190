"""Hosts in namespaces reach each other until a link is cut, in the direction that is cut."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.network import Network, open_network, why_no_namespaces
from tests.chaos.nodes import Node, wait_until

pytestmark = pytest.mark.slow

HOSTS = ("one", "two", "three")
# Notes each datagram that comes, by the name in it.
NOTE = """
import pathlib, socket, sys
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.bind((sys.argv[1], 7000))
print("ready", flush=True)
while True:
    print(link.recv(100).decode(), flush=True)
"""
SEND = """
import socket, sys
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.sendto(sys.argv[2].encode(), (sys.argv[1], 7000))
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    if reason := why_no_namespaces():
        pytest.skip(reason)
    with open_network(HOSTS) as network:
        yield network


@pytest.fixture
def notes(network: Network, tmp_path: Path) -> Iterator[dict[str, Node]]:
    """On each host a process that notes what comes."""
    nodes = {}
    for host in HOSTS:
        command = [sys.executable, "-c", NOTE, network.address(host)]
        nodes[host] = Node(host, network, tmp_path / host, command)
        nodes[host].start()
    try:
        for node in nodes.values():
            node.wait_until_ready(lambda node=node: "ready" in node.log(), 60)  # type: ignore[misc]  # no default wanted
        yield nodes
    finally:
        network.join_all()
        for node in nodes.values():
            node.kill()


def send(network: Network, source: str, target: str, text: str) -> None:
    command = [sys.executable, "-c", SEND, network.address(target), text]
    subprocess.run(network.command(source, command), check=True)


def comes(network: Network, notes: dict[str, Node], source: str, target: str, text: str) -> bool:
    """Whether a datagram arrives, judged by one that is sent after it by a third host."""
    (third,) = set(HOSTS) - {source, target}
    send(network, source, target, text)
    send(network, third, target, f"after {text}")
    assert wait_until(lambda: f"after {text}" in notes[target].log(), 30)
    return f"\n{text}\n" in notes[target].log()


def test_a_cut_drops_one_direction_until_it_ends(network: Network, notes: dict[str, Node]) -> None:
    """15:4, partition: one-way and both ways."""
    assert comes(network, notes, "one", "two", "a")

    network.cut([("one", "two")])
    assert not comes(network, notes, "one", "two", "b")
    assert comes(network, notes, "two", "one", "c")
    assert comes(network, notes, "one", "three", "d")

    network.cut([("two", "one")])
    assert not comes(network, notes, "two", "one", "e")

    network.join_all()
    assert comes(network, notes, "one", "two", "f")
    assert comes(network, notes, "two", "one", "g")


def test_a_node_is_killed_paused_and_started_again(
    network: Network, notes: dict[str, Node]
) -> None:
    node = notes["one"]
    node.pause()
    send(network, "two", "one", "while it is paused")
    node.resume()
    assert wait_until(lambda: "while it is paused" in node.log(), 30)

    node.kill()
    assert not node.is_running
    node.start()
    node.wait_until_ready(lambda: "ready" in node.log(), 60)
    assert node.lives == 2


def test_without_namespaces_hosts_are_addresses_of_this_machine() -> None:
    network = Network(HOSTS, can_cut=False)

    assert network.address("two") == "127.0.0.12"
    assert network.command("two", ["true"]) == ["true"]
    with pytest.raises(AssertionError, match="cannot be cut"):
        network.cut([("one", "two")])
