"""Settings of the way to ZooKeeper: Kafka's names and defaults, and what is refused."""

from pathlib import Path

import pytest

from odradek.broker.config import BrokerSettings, load_broker_settings
from odradek.broker.tls import zookeeper_context
from odradek.errors import ConfigError
from tests.support.network import make_certificate

CONNECT = {"zookeeper.connect": "zk1:2181,zk2/kafka"}
TLS = {**CONNECT, "zookeeper.ssl.client.enable": "true"}


def load(given: dict[str, str]) -> BrokerSettings:
    return load_broker_settings(None, given, {})


def test_defaults_are_those_of_kafka() -> None:
    zookeeper = load(CONNECT).zookeeper

    assert (zookeeper.session_timeout_ms, zookeeper.first_link_timeout_ms) == (18_000, 18_000)
    assert (zookeeper.max_in_flight, zookeeper.set_acl, zookeeper.tls_enabled) == (10, False, False)
    assert load({}).zookeeper.connect is None
    slow = {**CONNECT, "zookeeper.connection.timeout.ms": "40000"}
    assert load(slow).zookeeper.first_link_timeout_ms == 40_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"zookeeper.connect": ""}, "expected host:port"),
        ({"zookeeper.connect": "a:2181,"}, "expected host:port"),
        ({"zookeeper.connect": "a:x"}, "expected a port from 1 to 65535"),
        ({"zookeeper.connect": "a:70000"}, "expected a port from 1 to 65535"),
        ({"zookeeper.connect": "fe80::1:2181"}, r"write an IPv6 address as \[address\]:port"),
        ({"zookeeper.connect": "a:1,a:1"}, "names a server twice"),
        ({"zookeeper.connect": "a:1/x//y"}, "the path after the servers"),
        ({"zookeeper.ssl.client.enable": "true"}, "zookeeper.connect is not set.*remove it"),
        ({"zookeeper.set.acl": "true"}, "zookeeper.connect is not set.*remove it"),
        ({**CONNECT, "zookeeper.set.acl": "true"}, "does not authenticate to ZooKeeper"),
        ({**TLS, "zookeeper.set.acl": "true"}, "does not authenticate to ZooKeeper"),
        ({**CONNECT, "zookeeper.ssl.keystore.location": "/k.pem"}, "without TLS; set"),
        ({**TLS, "zookeeper.ssl.keystore.location": "/k.jks"}, "keytool .*-srckeystore /k.jks"),
        ({**TLS, "zookeeper.ssl.truststore.type": "PKCS12"}, "openssl pkcs12"),
        ({**TLS, "zookeeper.ssl.truststore.password": "x"}, "PEM has none"),
        (
            {**TLS, "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"},
            "does not speak TLS",
        ),
        ({**CONNECT, "zookeeper.clientCnxnSocket": "my.Socket"}, "must be one of"),
        ({**CONNECT, "zookeeper.ssl.crl.enable": "true"}, "revoked is not checked; remove it"),
        ({**CONNECT, "zookeeper.sasl.client": "true"}, "name the JAAS file in java.security"),
        ({**CONNECT, "zookeeper.sasl.clientconfig": "Zk"}, "name the JAAS file in java.security"),
        ({**CONNECT, "zookeeper.sasl.client.username": "zk1"}, "Kerberos is not spoken"),
        ({**CONNECT, "zookeeper.sasl.client2": "true"}, "unknown key, did you mean"),
        ({"java.security.auth.login.config": "/j"}, "zookeeper.connect is not set.*remove it"),
        ({"zookeeper.sasl.client": "true"}, "zookeeper.connect is not set.*remove it"),
        (
            {
                **CONNECT,
                "zookeeper.set.acl": "true",
                "zookeeper.sasl.client": "false",
                "java.security.auth.login.config": "/j",
            },
            "does not authenticate to ZooKeeper",
        ),
        ({**CONNECT, "zookeeper.ssl.keystore.locaton": "/k"}, "unknown key, did you mean"),
        ({**CONNECT, "zookeeper.max.in.flight.requests": "0"}, "must be at least 1"),
        ({**CONNECT, "broker.id": "1001"}, "above reserved.broker.max.id = 1000"),
        ({**CONNECT, "broker.id.generation.enable": "false"}, "give the broker an id from 0 on"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(given)


def test_a_drawn_id_stays_when_settings_change() -> None:
    settings = load(CONNECT).with_id(1007)

    assert settings.node.id == 1007
    assert load({**CONNECT, "broker.id": "3"}).with_id(3).node.id == 3


def test_an_id_may_be_large_where_none_is_drawn() -> None:
    given = {**CONNECT, "broker.id": "5000", "broker.id.generation.enable": "false"}
    assert load(given).node.id == 5000
    assert load({"broker.id": "5000"}).node.id == 5000


def test_tls_takes_key_and_trust_from_pem(tmp_path: Path) -> None:
    certificate, private_key = make_certificate(tmp_path)
    material = tmp_path / "both.pem"
    material.write_bytes(private_key.read_bytes() + certificate.read_bytes())
    given = {
        **TLS,
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.keystore.location": str(material),
        "zookeeper.ssl.truststore.location": str(material),
        "zookeeper.ssl.endpoint.identification.algorithm": "",
        "zookeeper.ssl.enabled.protocols": "TLSv1.3",
    }
    context = zookeeper_context(load(given).zookeeper)

    assert context is not None
    assert not context.check_hostname
    assert context.minimum_version == context.maximum_version
    assert zookeeper_context(load(CONNECT).zookeeper) is None
    named = zookeeper_context(load(TLS).zookeeper)
    assert named is not None
    assert named.check_hostname


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    given = {**TLS, "zookeeper.ssl.keystore.location": str(tmp_path / "none.pem")}
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.keystore\.location=.*cannot be used"):
        zookeeper_context(load(given).zookeeper)
