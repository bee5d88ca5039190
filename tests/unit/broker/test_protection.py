"""A key that promises protection and is not served refuses the start, by name (13:SEC)."""

import logging
from pathlib import Path

import pytest

from odradek.broker.config import BROKER_DEFINITION, KAFKA_KEYS, load_broker_settings
from odradek.broker.config.protection import HARMLESS, PROTECTED_NAMESPACES, UNSERVED
from odradek.broker.settings.live_settings import check_certificates
from odradek.config import SettingSource
from odradek.config.declaration import environment_name
from odradek.errors import ConfigError
from tests.support.network import make_certificate

# Of what else Kafka has for it, outside the namespaces.
_ELSEWHERE = {
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "config.providers",
    "connections.max.reauth.ms",
    "create.topic.policy.class.name",
}


def test_every_key_of_kafkas_that_promises_protection_is_decided_on() -> None:
    protecting = {name for name in KAFKA_KEYS if name.startswith(PROTECTED_NAMESPACES)}
    decided = set(UNSERVED) | HARMLESS
    assert protecting - decided == protecting & set(BROKER_DEFINITION.keys)
    # Kafka's list does not hold these of its authorizer and of ZooKeeper's client.
    assert decided - protecting - _ELSEWHERE == {
        "allow.everyone.if.no.acl.found",
        "super.users",
        "zookeeper.sasl.client.username",
    }
    assert not set(UNSERVED) & HARMLESS
    assert not decided & set(BROKER_DEFINITION.keys)


@pytest.mark.parametrize("name", sorted(UNSERVED))
def test_set_but_not_served_refuses_the_start(name: str) -> None:
    for given, environment in (
        ({name: "xyzzy"}, {}),
        ({}, {environment_name(name): "xyzzy"}),
        ({f"listener.name.plaintext.{name}": "xyzzy"}, {}),
        ({f"listener.name.plaintext.scram-sha-256.{name}": "xyzzy"}, {}),
        ({f"Listener.name.PLAINTEXT.{name}".upper(): "xyzzy"}, {}),
        ({}, {environment_name(f"listener.name.plaintext.{name}"): "xyzzy"}),
        ({}, {environment_name(f"listener.name.out_side.scram-sha-256.{name}"): "xyzzy"}),
    ):
        with pytest.raises(ConfigError, match="remove it") as refusal:
            load_broker_settings(None, given, environment)
        assert refusal.value.key in {**given, **environment}
        assert "xyzzy" not in str(refusal.value)


@pytest.mark.parametrize("name", ["ssl.client.auth", "ssl.keystore.location", "ssl.client.auht"])
def test_tls_of_one_listener_in_a_variable_refuses_the_start(name: str) -> None:
    """Such a variable is not read, and its listener would not ask for certificates."""
    variable = environment_name(f"listener.name.out_side.{name}")
    with pytest.raises(ConfigError, match=r"no variable, and .* in the configuration file") as why:
        load_broker_settings(None, {}, {variable: "required"})
    assert why.value.key == variable


def test_other_settings_of_one_listener_in_a_variable_are_a_warning() -> None:
    variable = environment_name("listener.name.plaintext.max.connections")
    assert load_broker_settings(None, {}, {variable: "5"}).warnings


@pytest.mark.parametrize("name", sorted(UNSERVED))
def test_a_value_that_promises_nothing_is_a_warning(name: str) -> None:
    for value in UNSERVED[name].harmless:
        settings = load_broker_settings(None, {name: value}, {})
        assert settings.warnings


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_what_only_tunes_is_a_warning(name: str) -> None:
    variable = environment_name(name)
    settings = load_broker_settings(None, {name: "1"}, {variable: "1"})
    assert set(settings.warnings) == {
        f"{name}: has no effect here",
        f"{variable}: has no effect here",
    }


@pytest.mark.parametrize(
    ("given", "environment"),
    [
        pytest.param({"ssl.client.authentication": "required"}, {}, id="tls"),
        pytest.param({"super.user": "User:a"}, {}, id="super-user"),
        pytest.param({"authorizer.class": "x"}, {}, id="authorizer"),
        pytest.param({"listener.name.a.ssl.client.authn": "required"}, {}, id="listener"),
        pytest.param({}, {"ODRADEK_SASL_MECHANISMS": "PLAIN"}, id="variable"),
    ],
)
def test_a_misspelt_promise_refuses_the_start(
    given: dict[str, str], environment: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"unknown key.*correct or remove it"):
        load_broker_settings(None, given, environment)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"ssl.client.auth": "required"}, id="client-auth"),
        pytest.param({"ssl.keystore.location": "/k.pem"}, id="keystore"),
        pytest.param({"listener.name.plaintext.ssl.client.auth": "required"}, id="of-a-listener"),
        pytest.param(
            {
                "listeners": "PLAINTEXT://h:1,SSL://h:2",
                "ssl.keystore.location": "/k.pem",
                "listener.name.plaintext.ssl.client.auth": "required",
            },
            id="of-another-listener",
        ),
        pytest.param(
            {
                "listeners": "PLAINTEXT://h:1,SSL://h:2",
                "ssl.keystore.location": "/k.pem",
                "listener.name.elsewhere.ssl.client.auth": "required",
            },
            id="of-no-listener",
        ),
    ],
)
def test_tls_that_no_listener_speaks_refuses_the_start(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="no listener that speaks TLS would use it"):
        load_broker_settings(None, given, {})


def test_defaults_of_tls_promise_nothing() -> None:
    given = {"ssl.client.auth": "none", "ssl.keystore.type": "PEM"}
    assert load_broker_settings(None, given, {}).warnings == ()


class TestDynamicKeystores:
    """What a client may have stored: only what loads, and only where a listener speaks TLS."""

    @pytest.fixture
    def pem(self, tmp_path: Path) -> Path:
        certificate, key = make_certificate(tmp_path)
        made = tmp_path / "store.pem"
        made.write_bytes(key.read_bytes() + certificate.read_bytes())
        return made

    def check(self, given: dict[str, str], changed: dict[str, str]) -> None:
        before = load_broker_settings(None, given, {})
        after = before.with_dynamic(SettingSource.DYNAMIC_BROKER, changed)
        check_certificates(before, after, changed)

    @pytest.mark.parametrize(
        "name", ["ssl.keystore.location", "listener.name.plaintext.ssl.keystore.location"]
    )
    def test_without_tls_none_is_taken(self, pem: Path, name: str) -> None:
        for path in (str(pem), "/etc/passwd"):
            with pytest.raises(ConfigError, match="no listener that speaks TLS would use it"):
                self.check({}, {name: path})

    @pytest.mark.parametrize("store", ["keystore", "truststore"])
    @pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
    def test_one_that_does_not_load_is_refused_and_no_file_is_told_of(
        self,
        pem: Path,
        store: str,
        prefix: str,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        given = {
            "listeners": "PLAINTEXT://h:1,SSL://h:2",
            # With an override of its own the listener does not use the plain key, now.
            "listener.name.ssl.ssl.keystore.location": str(pem),
            "listener.name.ssl.ssl.truststore.location": str(pem),
        }
        name = f"{prefix}ssl.{store}.location"
        empty = tmp_path / "empty"
        empty.touch()
        answers = set()
        with caplog.at_level(logging.WARNING):
            for path in ("/etc/passwd", "/no/such.pem", "/dev/zero", "/etc", str(empty)):
                with pytest.raises(ConfigError) as refusal:
                    self.check(given, {name: path})
                answers.add(str(refusal.value).replace(path, "PATH"))
        assert len(answers) == 1, answers
        assert "No such file" in caplog.text
        self.check(given, {name: str(pem)})

    def test_stored_ones_of_a_listener_that_went_do_not_keep_others_from_changing(
        self, pem: Path
    ) -> None:
        stored = {"ssl.keystore.location": str(pem)}
        before = load_broker_settings(None, {}, {}).with_dynamic(
            SettingSource.DYNAMIC_BROKER, stored
        )
        changed = {"log.retention.ms": "5"}
        after = before.with_dynamic(SettingSource.DYNAMIC_BROKER, {**stored, **changed})
        check_certificates(before, after, changed)
