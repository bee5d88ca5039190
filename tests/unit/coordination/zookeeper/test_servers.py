"""Which servers `zookeeper.connect` names, and in which order they are tried."""

from random import Random

import pytest

from odradek.coordination.zookeeper.servers import (
    Ensemble,
    Server,
    ServerTurns,
    parse_connect_string,
)
from odradek.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("zk", Ensemble((Server("zk", 2181),), "")),
        ("zk:1", Ensemble((Server("zk", 1),), "")),
        ("a:1, b:65535/x/y", Ensemble((Server("a", 1), Server("b", 65535)), "/x/y")),
        ("a:1/", Ensemble((Server("a", 1),), "")),
        ("a:1/x/", Ensemble((Server("a", 1),), "/x")),
        ("[::1]:2182,[fe80::2]", Ensemble((Server("::1", 2182), Server("fe80::2", 2181)), "")),
    ],
)
def test_connect_strings(text: str, expected: Ensemble) -> None:
    assert parse_connect_string(text) == expected
    assert parse_connect_string(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "/x", ",a:1", "a:", "a:0", "a:65536", "a:-1", "a b:1", "::1", "a:1/./x", "a,a:2181"],
)
def test_bad_connect_strings_name_the_key(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_connect_string(text)
    assert (refusal.value.key, refusal.value.value) == ("zookeeper.connect", text)


def test_every_server_is_tried_before_a_pause() -> None:
    servers = tuple(Server("zk", port) for port in range(1, 5))
    turns = ServerTurns(servers, Random(3))
    taken = [turns.take() for _ in range(12)]

    order = [server for server, _ in taken[:4]]
    assert sorted(order) == list(servers)
    assert [server for server, _ in taken] == order * 3
    pauses = [pause for _, pause in taken]
    assert [index for index, pause in enumerate(pauses) if pause] == [4, 8]
    assert 0 < pauses[4] <= pauses[8] * 2 <= 2_000


def test_pauses_grow_to_a_second_and_end_with_a_link() -> None:
    turns = ServerTurns((Server("zk", 1),), Random(3))
    pauses = [turns.take()[1] for _ in range(100)]

    assert pauses[0] == 0
    assert min(pauses[50:]) >= 500
    assert max(pauses) <= 1_000
    turns.connected()
    assert turns.take()[1] == 0


def test_brokers_spread_over_the_servers() -> None:
    servers = tuple(Server("zk", port) for port in range(3))
    firsts = {ServerTurns(servers, Random(seed)).take()[0] for seed in range(30)}
    assert firsts == set(servers)
