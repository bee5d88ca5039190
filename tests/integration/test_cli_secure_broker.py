"""Commands against a broker that wants client certificates, in every way to give them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import EmbeddedBroker
from odradek.testing.certificates import Certificates, make_certificates
from tests.support.commands import run_command

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """It takes TLS only, and only from its own client."""
    with EmbeddedBroker(tls="mutual") as started:
        yield started


@pytest.fixture(scope="module")
def files(broker: EmbeddedBroker) -> Certificates:
    return broker.certificates


@pytest.fixture(autouse=True)
def _own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("ODRADEK_BOOTSTRAP_SERVERS", "ODRADEK_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def test_options(broker: EmbeddedBroker, files: Certificates) -> None:
    """Key and certificate in two files or in one, for commands of every kind of client."""
    where = ("-b", broker.bootstrap_servers, "--tls-ca", files.ca)
    two = (*where, "--tls-cert", files.client_certificate, "--tls-key", files.client_key)
    one = (*where, "--tls-cert", files.client_keystore)
    assert run_command("topics", "create", "t-options", *two).code == 0
    sent = run_command("produce", "t-options", *two, stdin=b"hello\n")
    assert (sent.code, sent.err) == (0, "")
    read = ("consume", "t-options", "--from-beginning", "--max-messages", 1)
    assert run_command(*read, *one).lines == ["hello"]
    grouped = run_command(*read, "--group", "g", *one)
    assert grouped.lines == ["hello"], grouped
    assert run_command("groups", "describe", "g", *one).rows[0][:6] == [
        "g", "t-options", "0", "1", "1", "0",
    ]  # fmt: skip


def test_a_file_of_kafkas_clients(
    broker: EmbeddedBroker, files: Certificates, tmp_path: Path
) -> None:
    """As Kafka's own tools take it with the same option: files, or the PEM texts themselves."""
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={files.ca}\nssl.keystore.location={files.client_keystore}\n"
    )
    words = ("topics", "list", "-b", broker.bootstrap_servers, "--command-config", file)
    assert (found := run_command(*words)).code == 0, found

    def text(path: Path) -> str:
        return path.read_text().replace("\n", "\\n")

    file.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.certificates={text(files.ca)}\n"
        f"ssl.keystore.certificate.chain={text(files.client_certificate)}\n"
        f"ssl.keystore.key={text(files.client_key)}\n"
    )
    assert (found := run_command(*words)).code == 0, found


def test_single_settings(broker: EmbeddedBroker, files: Certificates) -> None:
    found = run_command(
        *("topics", "list", "-b", broker.bootstrap_servers, "-X", "security.protocol=SSL"),
        *("-X", f"ssl.truststore.location={files.ca}"),
        *("-X", f"ssl.keystore.location={files.client_keystore}"),
    )
    assert found.code == 0, found


def test_a_profile(broker: EmbeddedBroker, files: Certificates) -> None:
    added = run_command(
        *("profile", "add", "live", "-b", broker.bootstrap_servers, "--tls-ca", files.ca, "--use"),
        *("--tls-cert", files.client_certificate, "--tls-key", files.client_key),
    )
    assert added.code == 0, added
    assert (
        run_command("topics", "create", "t-profile").out == "created t-profile with 1 partition\n"
    )
    assert "t-profile" in run_command("topics", "list", "--profile", "live").out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("--tls-ca", "{ca}"), "if brokers require a certificate, give --tls-cert FILE"),
        (("--tls-ca", "{ca}", "--tls-cert", "{other}"), "trust the certificate of --tls-cert?"),
        (("--tls",), "--tls-ca FILE names the certificates to trust"),
        ((), "if that listener speaks TLS, give --tls, and --tls-ca FILE"),
    ],
    ids=["no certificate", "a stranger's", "an unknown authority", "no TLS"],
)
def test_a_broker_that_refuses_is_one_line(
    typed: tuple[str, ...],
    expected: str,
    broker: EmbeddedBroker,
    files: Certificates,
    tmp_path: Path,
) -> None:
    stranger = make_certificates(tmp_path / "other").client_keystore
    words = [word.format(ca=files.ca, other=stranger) for word in typed]
    found = run_command(
        "topics", "list", "-b", broker.bootstrap_servers, "--request-timeout", 3, *words
    )
    assert (found.code, found.out, found.err.count("\n")) == (1, "", 1)
    assert f"{broker.bootstrap_servers} (from --bootstrap-server): " in found.err
    assert expected in found.err


def test_a_key_that_belongs_to_another_certificate(
    broker: EmbeddedBroker, files: Certificates, tmp_path: Path
) -> None:
    other = make_certificates(tmp_path / "other")
    found = run_command(
        *("topics", "list", "-b", broker.bootstrap_servers, "--tls-ca", files.ca),
        *("--tls-cert", files.client_certificate, "--tls-key", other.client_key),
    )
    assert found.code == 1
    assert found.err.startswith(
        f"odradek topics list: --tls-key {other.client_key}: cannot be used"
    )
    assert "PRIVATE" not in found.err
