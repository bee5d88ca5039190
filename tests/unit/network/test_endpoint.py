"""Listeners as text, and the planes they belong to."""

import pytest

from odradek.errors import ConfigError
from odradek.model import Endpoint, SecurityProtocol
from odradek.network.endpoint import (
    DEFAULT_PROTOCOL_MAP,
    parse_endpoints,
    parse_protocol_map,
    published_endpoints,
    select_planes,
    unreachable_endpoints,
)

PLAINTEXT = SecurityProtocol.PLAINTEXT
MAP = parse_protocol_map("CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,EXTERNAL:SSL")
ENTRIES = (
    "CONTROLLER://192.1.1.8:9091",
    "INTERNAL://192.1.1.8:9092",
    "EXTERNAL://10.1.1.5:9093",
)


def test_mapped_names_give_their_protocols_and_no_control_plane() -> None:
    """02:N-3."""
    endpoints = parse_endpoints(ENTRIES, MAP)
    planes = select_planes(endpoints, endpoints, MAP, inter_broker_name="INTERNAL")

    assert [endpoint.security_protocol.name for endpoint in endpoints] == [
        "PLAINTEXT",
        "PLAINTEXT",
        "SSL",
    ]
    assert planes.control is None
    assert planes.data == endpoints


@pytest.mark.parametrize("name", ["CONTROLLER", "controller"])
def test_the_control_plane_takes_its_listener_away_from_the_data_plane(name: str) -> None:
    """02:N-4, however the name is written."""
    endpoints = parse_endpoints(ENTRIES, MAP)
    planes = select_planes(
        endpoints, endpoints, MAP, inter_broker_name="INTERNAL", control_plane_name=name
    )

    assert planes.control == Endpoint("192.1.1.8", 9091, "CONTROLLER", PLAINTEXT)
    assert planes.control.connection_string == "CONTROLLER://192.1.1.8:9091"
    assert [endpoint.listener for endpoint in planes.data] == ["INTERNAL", "EXTERNAL"]


def test_a_control_plane_nobody_knows_names_both_keys() -> None:
    """02:N-5."""
    endpoints = parse_endpoints(ENTRIES, MAP)
    with pytest.raises(ConfigError) as raised:
        select_planes(
            endpoints, endpoints, MAP, inter_broker_name="INTERNAL", control_plane_name="FOO"
        )

    assert "FOO" in str(raised.value)
    assert "control.plane.listener.name" in str(raised.value)
    assert "listener.security.protocol.map" in str(raised.value)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        pytest.param("kafka-host", "PLAINTEXT://kafka-host:9092", id="02:N-6-host"),
        pytest.param("", "PLAINTEXT://:9092", id="02:N-6-no-host"),
        pytest.param("::1", "PLAINTEXT://[::1]:9092", id="ipv6"),
    ],
)
def test_an_endpoint_is_written_as_it_is_read(host: str, text: str) -> None:
    endpoint = Endpoint(host, 9092, "PLAINTEXT", PLAINTEXT)

    assert endpoint.connection_string == text
    assert parse_endpoints([f" {text} "], DEFAULT_PROTOCOL_MAP) == (endpoint,)


@pytest.mark.parametrize(
    "entry",
    [
        "localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:x",
        "PLAINTEXT://localhost:-1",
        "PLAINTEXT://localhost:65536",
        "PLAINTEXT://::1:9092",
        "://localhost:1",
        "UNKNOWN://localhost:9092",
    ],
)
def test_what_is_no_listener_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_endpoints([entry], DEFAULT_PROTOCOL_MAP)

    assert entry in str(raised.value)


@pytest.mark.parametrize(
    "entries",
    [
        ("PLAINTEXT://a:1", "plaintext://b:2"),
        ("PLAINTEXT://a:1", "SSL://a:1"),
        ("PLAINTEXT://:1", "SSL://a:1"),
    ],
)
def test_names_and_sockets_come_once(entries: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        parse_endpoints(entries, DEFAULT_PROTOCOL_MAP)


def test_free_ports_and_other_hosts_may_repeat() -> None:
    assert len(parse_endpoints(("PLAINTEXT://a:0", "SSL://a:0"), DEFAULT_PROTOCOL_MAP)) == 2
    assert len(parse_endpoints(("PLAINTEXT://a:1", "SSL://b:1"), DEFAULT_PROTOCOL_MAP)) == 2


@pytest.mark.parametrize("text", ["A", "A:B", ":SSL", "A:SSL,a:SSL"])
def test_a_bad_protocol_map_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        parse_protocol_map(text)


@pytest.mark.parametrize(
    ("advertised", "inter_broker", "control"),
    [
        (("OTHER://h:1",), "INTERNAL", None),
        (("INTERNAL://0.0.0.0:1",), "INTERNAL", None),
        (ENTRIES, "MISSING", None),
        (("INTERNAL://h:1",), "EXTERNAL", None),
        (ENTRIES, "INTERNAL", "INTERNAL"),
        (("INTERNAL://h:1",), "INTERNAL", "CONTROLLER"),
    ],
)
def test_names_that_do_not_fit_together_are_refused(
    advertised: tuple[str, ...], inter_broker: str, control: str | None
) -> None:
    protocols = {**MAP, "OTHER": PLAINTEXT}
    with pytest.raises(ConfigError):
        select_planes(
            parse_endpoints(ENTRIES, protocols),
            parse_endpoints(advertised, protocols, key="advertised.listeners"),
            protocols,
            inter_broker_name=inter_broker,
            control_plane_name=control,
        )


def test_what_is_published_has_a_host_and_a_port() -> None:
    advertised = parse_endpoints(("PLAINTEXT://:0", "SSL://h:5"), DEFAULT_PROTOCOL_MAP)

    published = published_endpoints(advertised, {"PLAINTEXT": 4711, "SSL": 1}, "me.example")

    assert [endpoint.connection_string for endpoint in published] == [
        "PLAINTEXT://me.example:4711",
        "SSL://h:5",
    ]


def test_protocols_know_what_they_need() -> None:
    assert [p.name for p in SecurityProtocol if p.uses_tls] == ["SSL", "SASL_SSL"]
    assert [p.name for p in SecurityProtocol if p.uses_sasl] == ["SASL_PLAINTEXT", "SASL_SSL"]


@pytest.mark.parametrize(
    ("bound", "published", "is_found"),
    [
        ("0.0.0.0", "localhost", True),
        ("::", "127.0.1.1", True),
        ("", "LOCALHOST.localdomain", True),
        ("", "[::1]", True),
        ("", "broker.localhost", True),
        ("", "broker.example.org", False),
        ("", "10.0.0.1", False),
        ("127.0.0.1", "localhost", False),
    ],
)
def test_loopback_names_of_listeners_on_every_interface(
    bound: str, published: str, is_found: bool
) -> None:
    host = f"[{bound}]" if ":" in bound else bound
    told = parse_endpoints((f"PLAINTEXT://{published}:1",), DEFAULT_PROTOCOL_MAP)
    endpoints = parse_endpoints((f"PLAINTEXT://{host}:1",), DEFAULT_PROTOCOL_MAP)
    assert unreachable_endpoints(endpoints, told) == (told if is_found else ())


def test_one_port_on_every_interface_is_taken_for_all_hosts() -> None:
    for host in ("", "0.0.0.0", "[::]"):
        with pytest.raises(ConfigError, match="has the same port"):
            parse_endpoints((f"PLAINTEXT://{host}:1", "SSL://a:1"), DEFAULT_PROTOCOL_MAP)
