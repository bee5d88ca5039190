"""Settings of brokers in tests: a mistyped name is an error, TLS is a few of them."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.broker.config import unknown_settings
from odradek.config import HIDDEN
from odradek.errors import ConfigError

if TYPE_CHECKING:
    from odradek.testing.certificates import Certificates

__all__ = ["check_known", "tls_settings"]


def check_known(settings: Mapping[str, object]) -> None:
    """Refuses a name that neither Odradek nor Kafka has: a test would try something else.

    Raises:
        ConfigError: There is one; the message has the nearest name.
    """
    for name, nearest in unknown_settings(settings).items():
        hint = f", did you mean {nearest}?" if nearest else ""
        # The value may be a secret under a misspelt name.
        raise ConfigError(name, HIDDEN, f"unknown setting{hint}")


def tls_settings(certificates: "Certificates", *, is_mutual: bool) -> dict[str, object]:
    """The settings of a broker whose clients speak TLS."""
    return {
        "listeners": "SSL://localhost:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": os.fspath(certificates.broker_keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.fspath(certificates.client_certificate),
        "ssl.client.auth": "required" if is_mutual else "none",
    }
