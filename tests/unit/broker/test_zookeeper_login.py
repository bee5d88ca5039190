"""The login to ZooKeeper: Kafka's keys and its JAAS file, and what is refused."""

from pathlib import Path

import pytest

from odradek.broker.config import load_broker_settings
from odradek.broker.config.zookeeper_login import zookeeper_login
from odradek.errors import ConfigError
from odradek.security.digest_md5 import Login

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
JAAS = f'Client {{ {MODULE} required username="kafka" password="s3cret"; }};'
KERBEROS = "Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };"
CONNECT = {"zookeeper.connect": "zk1:2181"}


def login(given: dict[str, str], environment: dict[str, str] | None = None) -> Login | None:
    settings = load_broker_settings(None, {**CONNECT, **given}, environment or {})
    return zookeeper_login(settings.zookeeper)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jaas.conf"
    path.write_text(JAAS)
    return path


def test_the_login_is_that_of_the_section(file: Path) -> None:
    named = {"java.security.auth.login.config": str(file)}
    assert login({}) is None
    assert login(named) == Login("kafka", "s3cret")
    assert login({**named, "zookeeper.sasl.client": "true"}) == Login("kafka", "s3cret")
    file.write_text(JAAS + JAAS.replace("Client", "Zk").replace("kafka", "other"))
    section = {**named, "zookeeper.sasl.clientconfig": "Zk"}
    assert login(section) == Login("other", "s3cret")
    file.write_text("KafkaServer { x required; };")
    assert login({**named, "zookeeper.sasl.client": "false"}) is None
    assert load_broker_settings(None, {**CONNECT, **named, "zookeeper.set.acl": "true"}, {})


def test_properties_of_java_count(file: Path) -> None:
    java = f"-Xmx1g -Djava.security.auth.login.config={file} -Dfoo=1 -Dzookeeper.sasl.client=true"
    assert login({}, {"KAFKA_OPTS": java}) == Login("kafka", "s3cret")
    named = {"java.security.auth.login.config": str(file)}
    absent = {"KAFKA_OPTS": "-Djava.security.auth.login.config=/none"}
    assert login(named, absent) == Login("kafka", "s3cret"), "the command line is stronger"
    variable = {"ODRADEK_JAVA_SECURITY_AUTH_LOGIN_CONFIG": str(file)}
    assert login({}, {**absent, **variable}) == Login("kafka", "s3cret")
    with pytest.raises(ConfigError, match="Kerberos is not spoken"):
        login({}, {"KAFKA_OPTS": "-Dzookeeper.sasl.client.username=zk1"})
    assert login({}, {"KAFKA_OPTS": "-Djava.security.auth.login.conf=/none -D"}) is None


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (None, {}, "cannot be used: No such file"),
        ("Client {", {}, "cannot be used: line 1: expected the class"),
        ("", {}, "has no section Client; add Client { .*DigestLoginModule"),
        (JAAS, {"zookeeper.sasl.clientconfig": "Zk"}, "has no section Zk; add Zk"),
        (JAAS, {"zookeeper.sasl.client": "false"}, "that would not be used; remove one"),
        (KERBEROS, {}, "found com.sun.security.auth.module.Krb5LoginModule; only DIGEST-MD5"),
        ("Client { };", {}, "found none"),
        (f"Client {{ {MODULE} required; }};", {}, "has no username; write it as"),
        (f"Client {{ {MODULE} required username=k; }};", {}, "has no password; write it as"),
        ("x" * (1 << 20) + " ", {}, "expected at most 1048576"),
        ("Client { \udcff", {}, "cannot be used: expected UTF-8$"),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, text: str | None, more: dict[str, str], message: str
) -> None:
    path = tmp_path / "jaas.conf"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=message) as refusal:
        login({"java.security.auth.login.config": str(path), **more})
    assert "s3cret" not in str(refusal.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a regular file"):
        login({"java.security.auth.login.config": str(tmp_path)})
