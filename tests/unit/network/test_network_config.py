"""Settings of the network layer."""

import pytest

from odradek.config import Definition
from odradek.errors import ConfigError
from odradek.network.config import NetworkConfig, check_resize, parse_ip_overrides


def test_the_defaults_are_kafkas_except_for_the_address() -> None:
    config = NetworkConfig()

    assert config.endpoints[0].connection_string == "PLAINTEXT://127.0.0.1:9092"
    assert config.advertised_endpoints == config.endpoints
    assert config.planes.control is None
    assert (config.network_threads, config.io_threads) == (3, 8)
    assert (config.queued_max_requests, config.queued_max_request_bytes) == (500, -1)
    # Left to the system, unlike Kafka's 102400.
    assert (config.send_buffer_bytes, config.receive_buffer_bytes) == (-1, -1)
    assert config.request_max_bytes == 104_857_600
    assert config.max_idle_ms == 600_000


def test_the_key_of_the_handlers_is_spelled_as_kafka_spells_it() -> None:
    """02:D-7: num.io.threads."""
    keys = Definition(NetworkConfig).keys

    assert "num.io.threads" in keys
    assert "nums.io.threads" not in keys


def test_exactly_these_limits_of_connections_are_dynamic() -> None:
    keys = Definition(NetworkConfig).keys
    dynamic = {name for name, key in keys.items() if key.update.value == "cluster-wide"}

    assert dynamic == {
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connections",
        "max.connection.creation.rate",
        "num.network.threads",
        "num.io.threads",
    }


@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        pytest.param(8, 4, True, id="02:D-5-half"),
        pytest.param(8, 3, False, id="02:D-5-below-half"),
        pytest.param(3, 6, True, id="double"),
        pytest.param(3, 7, False, id="above-double"),
        pytest.param(3, 1, True, id="half-rounded-down"),
        pytest.param(1, 0, False, id="none"),
    ],
)
def test_threads_change_by_half_or_double_at_most(old: int, new: int, allowed: bool) -> None:
    if allowed:
        check_resize("num.network.threads", old, new)
    else:
        with pytest.raises(ConfigError, match=r"num\.network\.threads"):
            check_resize("num.network.threads", old, new)


@pytest.mark.parametrize(
    ("key", "make"),
    [
        (
            "queued.max.request.bytes",
            lambda: NetworkConfig(queued_max_request_bytes=10, request_max_bytes=11),
        ),
        ("max.connections.per.ip", lambda: NetworkConfig(max_connections_per_ip=0)),
        (
            "connection.failed.authentication.delay.ms",
            lambda: NetworkConfig(max_idle_ms=100, failed_authentication_delay_ms=100),
        ),
    ],
)
def test_values_that_do_not_fit_together_are_refused_by_key(key: str, make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        make()


def test_overrides_of_addresses() -> None:
    assert parse_ip_overrides("10.0.0.1:5, [::1]:7") == {"10.0.0.1": 5, "::1": 7}
    assert parse_ip_overrides("") == {}
    with pytest.raises(ConfigError, match="nonsense"):
        parse_ip_overrides("nonsense")


def test_the_inter_broker_listener_has_two_names() -> None:
    by_protocol = NetworkConfig(inter_broker_protocol="SSL", listeners=("SSL://:1",))
    by_name = NetworkConfig(
        inter_broker_listener_name="internal",
        protocol_map="INTERNAL:PLAINTEXT",
        listeners=("internal://:1",),
    )

    assert by_protocol.inter_broker_listener == "SSL"
    assert by_name.inter_broker_listener == "INTERNAL"
    assert by_name.planes.data[0].listener == "INTERNAL"
