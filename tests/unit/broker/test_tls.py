"""TLS of a listener: which settings fit together, and that a handshake comes of them."""

import ssl
from pathlib import Path

import pytest

from odradek.broker.config import TlsSettings, load_broker_settings
from odradek.broker.tls import server_context
from odradek.config import Password
from odradek.errors import ConfigError
from tests.support.network import make_certificate


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def handshake(server: ssl.SSLContext, certificate: Path) -> str | None:
    """The version client and server agree on, without any socket."""
    client = ssl.create_default_context(cafile=str(certificate))
    client.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0].version()


def test_key_and_chain_in_a_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = files
    store = tmp_path / "store.pem"
    store.write_bytes(key.read_bytes() + certificate.read_bytes())

    context = server_context(TlsSettings(keystore_location=str(store)))

    assert handshake(context, certificate) == "TLSv1.3"


def test_key_and_chain_in_the_settings(files: tuple[Path, Path]) -> None:
    certificate, key = files
    settings = TlsSettings(
        keystore_key=Password(key.read_text()),
        keystore_certificate_chain=Password(certificate.read_text()),
        enabled_protocols=("TLSv1.2",),
    )

    assert handshake(server_context(settings), certificate) == "TLSv1.2"


def test_client_certificates(files: tuple[Path, Path]) -> None:
    certificate, key = files
    settings = TlsSettings(
        keystore_key=Password(key.read_text()),
        keystore_certificate_chain=Password(certificate.read_text()),
        truststore_location=str(certificate),
        client_auth="required",
    )

    assert server_context(settings).verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            TlsSettings(keystore_location="/no/such.pem"),
            "ssl.keystore.location='/no/such.pem': cannot be used: .*No such file",
            id="no-file",
        ),
        pytest.param(
            TlsSettings(
                keystore_key=Password("xyzzy"), keystore_certificate_chain=Password("xyzzy")
            ),
            "ssl.keystore.key=None: cannot be used",
            id="no-pem",
        ),
    ],
)
def test_material_that_cannot_be_used(settings: TlsSettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        server_context(settings)

    assert "xyzzy" not in str(refusal.value)


def test_unknown_ciphers(files: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites='NONSUCH'"):
        server_context(TlsSettings(cipher_suites=("NONSUCH",)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            {"ssl.keystore.type": "JKS", "ssl.keystore.location": "k.jks"},
            "only PEM is read; convert it: keytool .*k.jks",
            id="jks",
        ),
        pytest.param({"ssl.truststore.type": "PKCS12"}, "openssl pkcs12", id="pkcs12"),
        pytest.param({"ssl.keystore.key": "xyzzy"}, "either is useless alone", id="no-chain"),
        pytest.param({"ssl.keystore.password": "xyzzy"}, "PEM has none", id="store-password"),
        pytest.param(
            {
                "ssl.keystore.location": "k.pem",
                "ssl.keystore.key": "xyzzy",
                "ssl.keystore.certificate.chain": "xyzzy",
            },
            "ssl.keystore.key is set, too",
            id="two-keys",
        ),
        pytest.param(
            {"ssl.keystore.location": "k.pem", "ssl.client.auth": "required"},
            "ssl.truststore.location=None: required",
            id="nobody-trusted",
        ),
        pytest.param({"ssl.enabled.protocols": "TLSv1.1"}, "each must be one of", id="old"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, str], message: str) -> None:
    listeners = {"listeners": "PLAINTEXT://h:1,SSL://h:2"}

    with pytest.raises(ConfigError, match=message) as refusal:
        load_broker_settings(None, listeners | given, {})

    assert "xyzzy" not in str(refusal.value)
