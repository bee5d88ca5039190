"""Certificates for tests of TLS, made when they are needed; they are worth nothing elsewhere."""

import subprocess
from pathlib import Path
from typing import NamedTuple

__all__ = ["Certificates", "make_certificates"]

_COMMAND = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
    "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
)


class Certificates(NamedTuple):
    """Files of a broker and of a client that know each other, as PEM."""

    # What clients trust: the broker's own certificate.
    ca: Path
    # What shows the client to brokers that require it.
    client_certificate: Path
    client_key: Path
    # The client's key and certificate in one file, and the broker's.
    client_keystore: Path
    broker_keystore: Path


def make_certificates(folder: Path) -> Certificates:
    """Makes keys and self-signed certificates for `localhost`.

    Raises:
        RuntimeError: There is no `openssl` command, or it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stores = {}
    for name in ("broker", "client"):
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        words = [*_COMMAND.split(), "-keyout", str(key), "-out", str(certificate)]
        try:
            subprocess.run(words, check=True, capture_output=True)  # noqa: S603 - a fixed command
        except FileNotFoundError:
            raise RuntimeError(
                "certificates are made with `openssl`, which is not installed here"
            ) from None
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"openssl failed: {error.stderr.decode()}") from None
        stores[name] = folder / f"{name}.pem"
        stores[name].write_bytes(key.read_bytes() + certificate.read_bytes())
    return Certificates(
        ca=folder / "broker.crt",
        client_certificate=folder / "client.crt",
        client_key=folder / "client.key",
        client_keystore=stores["client"],
        broker_keystore=stores["broker"],
    )
