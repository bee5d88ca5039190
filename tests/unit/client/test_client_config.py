"""Settings of clients: Kafka's names, either way of giving them, and what is refused."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from odradek.aio import Admin
from odradek.client.config import ClientConfig, read_settings
from odradek.client.options import client_options
from odradek.client.producer.config import ProducerOptions, read_producer_settings
from odradek.config import Definition
from odradek.errors import ConfigError
from odradek.records.compression import Codec
from tests.support.network import make_certificate

SERVERS = {"bootstrap.servers": "a:1"}


def read(config: dict[str, object] | None = None, **keywords: object) -> ProducerOptions:
    return read_producer_settings({**SERVERS, **(config or {})}, keywords)[1]


@pytest.mark.parametrize(
    "given",
    [
        {"config": {"linger.ms": "7", "enable.idempotence": "false", "acks": "1"}},
        {"config": {"linger.ms": 7, "enable.idempotence": False, "acks": 1}},
        {"linger_ms": 7, "enable_idempotence": False, "acks": 1},
        {"linger_ms": "7", "enable_idempotence": "False", "acks": "1"},
    ],
)
def test_a_setting_may_be_given_in_every_form(given: Any) -> None:
    """09:CL-1."""
    options = read(**given)
    assert (options.linger_ms, options.is_idempotent, options.acks) == (7, False, 1)


@pytest.mark.parametrize("servers", ["a:1,b:2", ["a:1", "b:2"], ("a:1", "b:2"), " a:1 , b:2 "])
def test_lists_may_be_lists_or_text(servers: object) -> None:
    """09:CL-1."""
    settings = read_settings(Definition(ClientConfig), {}, {"bootstrap_servers": servers})
    options = client_options(settings.build(ClientConfig))
    assert options.bootstrap == (("a", 1), ("b", 2))


@pytest.mark.parametrize(
    ("config", "keywords", "message"),
    [
        ({"linger.mss": 5}, {}, r"linger\.mss.*did you mean linger\.ms\?"),
        ({}, {"batch_sizes": 5}, r"batch\.sizes.*did you mean batch\.size\?"),
        ({"nothing.like.it": 5}, {}, r"nothing\.like\.it.*unknown setting$"),
        ({"linger.ms": 5}, {"linger_ms": 5}, r"linger\.ms.*given twice"),
        ({"linger.ms": "soon"}, {}, r"linger\.ms='soon'.*whole number"),
        ({"key.serializer": "Some"}, {}, r"key\.serializer.*Producer\(key_serializer="),
        ({"interceptor.classes": "A"}, {}, r"interceptor\.classes.*interceptors="),
        ({"transactional.id": "t", "acks": "1"}, {}, r"acks.*transactional\.id needs all"),
        ({"compression.type": "brotli"}, {}, r"compression\.type='brotli'.*one of none, gzip"),
    ],
)
def test_what_cannot_be_used_is_an_error_that_helps(
    config: dict[str, object], keywords: dict[str, object], message: str
) -> None:
    """09:CL-1."""
    with pytest.raises(ConfigError, match=message):
        read(config, **keywords)


def test_servers_are_required_and_must_be_addresses() -> None:
    """09:CL-2."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers.*required"):
        Admin()
    with pytest.raises(ConfigError, match=r"bootstrap\.servers.*HOST:PORT"):
        Admin(bootstrap_servers="nowhere")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        Admin(
            bootstrap_servers="a:1",
            security_protocol="SSL",
            ssl_truststore_location="/nowhere.pem",
        )
    with pytest.raises(ConfigError, match="only PEM"):
        Admin(bootstrap_servers="a:1", security_protocol="SSL", ssl_keystore_type="JKS")


@pytest.fixture(scope="module")
def keystore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its private key, which the password `secret` opens."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = make_certificate(folder)
    command = "openssl pkcs8 -topk8 -v2 aes-256-cbc -passout pass:secret -in"
    encrypted = subprocess.run([*command.split(), str(key)], check=True, capture_output=True)
    store = folder / "store.pem"
    store.write_bytes(encrypted.stdout + certificate.read_bytes())
    return store


@pytest.mark.parametrize(
    ("password", "message"),
    [
        (None, r"the private key is encrypted, set ssl\.key\.password"),
        ("wrong", r"the private key is encrypted, check ssl\.key\.password"),
        ("long" * 1_000, r"longer than 1024 bytes; .* check ssl\.key\.password"),
    ],
    ids=["none", "wrong", "too long"],
)
def test_a_key_that_does_not_open_is_told_and_nobody_is_asked(
    password: str | None, message: str, keystore: Path
) -> None:
    """09:CL-2: OpenSSL would wait for a password at the terminal."""
    given = {} if password is None else {"ssl.key.password": password}
    with pytest.raises(ConfigError, match=rf"ssl\.keystore\.location.*{message}") as error:
        Admin(
            {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
            | {"ssl.keystore.location": str(keystore)}
            | given
        )
    assert password is None or password not in str(error.value)


def test_a_key_with_its_password_and_a_file_without_a_key(keystore: Path, tmp_path: Path) -> None:
    """09:CL-2."""
    settings = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    Admin(settings | {"ssl.keystore.location": str(keystore), "ssl.key.password": "secret"})
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(ConfigError, match="expected a private key and its certificate chain"):
        Admin(settings | {"ssl.keystore.location": str(empty)})


def test_defaults_are_kafkas() -> None:
    """09:CL-2, 09:CL-7, 09:CL-8, 09:CL-9."""
    common, options = read_producer_settings(SERVERS, {})
    assert {
        "client.id": common.client_id,
        "request.timeout.ms": common.request_timeout_ms,
        "default.api.timeout.ms": common.default_api_timeout_ms,
        "metadata.max.age.ms": common.metadata_max_age_ms,
        "metadata.recovery.strategy": common.metadata_recovery_strategy,
        "connections.max.idle.ms": common.connections_max_idle_ms,
        "reconnect.backoff.ms": common.reconnect_backoff_ms,
        "reconnect.backoff.max.ms": common.reconnect_backoff_max_ms,
        "retry.backoff.ms": common.retry_backoff_ms,
        "retry.backoff.max.ms": common.retry_backoff_max_ms,
        "socket.connection.setup.timeout.ms": common.socket_connection_setup_timeout_ms,
        "socket.connection.setup.timeout.max.ms": common.socket_connection_setup_timeout_max_ms,
    } == {
        "client.id": "",
        "request.timeout.ms": 30_000,
        "default.api.timeout.ms": 60_000,
        "metadata.max.age.ms": 300_000,
        "metadata.recovery.strategy": "rebootstrap",
        "connections.max.idle.ms": 540_000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 10_000,
        "socket.connection.setup.timeout.max.ms": 30_000,
    }
    assert (options.acks, options.is_idempotent, options.retries) == (-1, True, 2147483647)
    assert (options.max_in_flight, options.delivery_timeout_ms) == (5, 120_000)
    assert (options.max_block_ms, options.batch_size, options.linger_ms) == (60_000, 16_384, 5)
    assert (options.buffer_memory, options.max_request_size) == (33_554_432, 1_048_576)
    assert (options.codec, options.ignores_keys) == (Codec.NONE, False)
    assert (options.is_adaptive, options.availability_timeout_ms) == (True, 0)


@pytest.mark.parametrize(
    "obstacle",
    [{"acks": 1}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}],
)
def test_idempotence_yields_unless_it_was_asked_for(obstacle: dict[str, Any]) -> None:
    """09:CL-7."""
    assert not read(**obstacle).is_idempotent
    with pytest.raises(ConfigError, match=r"enable\.idempotence=true needs"):
        read(enable_idempotence=True, **obstacle)


def test_a_delivery_takes_at_least_a_request_and_the_linger() -> None:
    """09:CL-7."""
    assert read(request_timeout_ms=200_000).delivery_timeout_ms == 200_005
    with pytest.raises(ConfigError, match=r"at least linger\.ms \+ request\.timeout\.ms = 30005"):
        read(delivery_timeout_ms=1_000)


def test_a_level_of_compression_is_taken_if_it_was_chosen() -> None:
    assert read(compression_type="zstd").level is None
    assert read(compression_type="zstd", compression_zstd_level=9).level == 9
    assert read(compression_type="gzip", compression_zstd_level=9).level is None
    assert read(compression_type="gzip", compression_gzip_level=-1).level is None


def test_keys_and_certificates_as_text(tmp_path: Path) -> None:
    """09:CL-2: Kafka's settings for PEM without files."""
    certificate, key = make_certificate(tmp_path)
    texts = {
        "ssl.truststore.certificates": certificate.read_text(),
        "ssl.keystore.certificate.chain": certificate.read_text(),
        "ssl.keystore.key": key.read_text(),
    }
    base: dict[str, object] = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    Admin({**base, **texts})
    for missing, given in (
        ("ssl.keystore.key", "ssl.keystore.certificate.chain"),
        ("ssl.keystore.certificate.chain", "ssl.keystore.key"),
    ):
        rest = {name: text for name, text in texts.items() if name != missing}
        with pytest.raises(ConfigError, match=f"{missing}.*required, since {given} is set"):
            Admin({**base, **rest})
    both: dict[str, object] = {**base, **texts, "ssl.keystore.location": "/store.pem"}
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location.*ssl\.keystore\.key is set"):
        Admin(both)
    both = {**base, **texts, "ssl.truststore.location": str(certificate)}
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location is set"):
        Admin(both)
    for name in texts:
        with pytest.raises(ConfigError) as caught:
            Admin({**base, **texts, name: "not PEM"})
        assert "not PEM" not in str(caught.value)
