"""The library over TLS: settings of Producer, Consumer and Admin, against a broker's listener."""

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek import Admin, Consumer, Producer, aio
from odradek.client.admin import NewTopic
from odradek.errors import ApiError
from odradek.testing import EmbeddedBroker
from tests.support.network import make_certificate

pytestmark = pytest.mark.slow

WAIT_S = 60
# How long clients try who will not succeed; long enough for one handshake on two slow cores.
PATIENCE_MS = 3_000


class Identity(NamedTuple):
    """Whose certificate it is, and the same with its private key."""

    certificate: Path
    keystore: Path


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    """A broker, a client that it knows, and somebody whom neither does."""
    made = {}
    for name in ("broker", "client", "stranger"):
        folder = tmp_path_factory.mktemp(name)
        certificate, key = make_certificate(folder)
        keystore = folder / "keystore.pem"
        keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
        made[name] = Identity(certificate, keystore)
    return made


@pytest.fixture(scope="module")
def bootstrap(identities: dict[str, Identity]) -> Iterator[str]:
    """A broker that speaks TLS only, and only with the client."""
    settings = {
        "listeners": "SSL://localhost:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identities["broker"].keystore),
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(identities["client"].certificate),
    }
    with EmbeddedBroker(settings) as broker:
        yield broker.bootstrap_servers


def settings_of(
    bootstrap: str, *, trusts: Identity, is_: Identity | None, **more: object
) -> dict[str, object]:
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.location": str(trusts.certificate),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    if is_ is not None:
        settings["ssl.keystore.location"] = str(is_.keystore)
    return settings


def test_records_go_there_and_back(bootstrap: str, identities: dict[str, Identity]) -> None:
    """09:CL-2: `security.protocol`, a truststore and a keystore are all that is needed."""
    settings = settings_of(bootstrap, trusts=identities["broker"], is_=identities["client"])
    values = [b"%d" % number * 1_000 for number in range(200)]
    with Admin(settings) as admin:
        created = admin.create_topics([NewTopic(name="t", partition_count=2)])
        assert not isinstance(created["t"], ApiError), created
        assert "t" in admin.list_topics()
    with Producer(settings) as producer:
        sent = [producer.send("t", value, partition=0) for value in values]
        assert [one.result(WAIT_S).offset for one in sent] == list(range(200))
    with Consumer(settings, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        read: list[bytes | None] = []
        while len(read) < len(values):
            read += [record.value for record in consumer.poll(1.0)]
    assert read == values


def failures(*every: dict[str, object]) -> list[str]:
    """What each of the three clients says, with each of the settings."""

    async def ask(settings: dict[str, object]) -> list[object]:
        limits: dict[str, object] = {"default.api.timeout.ms": PATIENCE_MS}
        async with (
            aio.Producer({**settings, "max.block.ms": PATIENCE_MS}) as producer,
            aio.Consumer({**settings, **limits}) as consumer,
            aio.Admin({**settings, **limits}) as admin,
        ):
            calls: list[Awaitable[object]] = [
                producer.send("t", b"v"),
                consumer.partitions_for("t"),
                admin.list_topics(),
            ]
            return await asyncio.gather(*calls, return_exceptions=True)

    async def ask_all() -> list[list[object]]:
        return await asyncio.gather(*(ask(settings) for settings in every))

    told = [one for some in asyncio.run(ask_all()) for one in some]
    assert all(isinstance(one, ApiError) for one in told), told
    return [str(one) for one in told]


def test_a_broker_that_is_not_trusted_is_told_so(
    bootstrap: str, identities: dict[str, Identity]
) -> None:
    """09:CL-5: the error has the address, and that its certificate could not be verified."""
    stranger = identities["stranger"]
    settings = settings_of(bootstrap, trusts=stranger, is_=identities["client"])
    for message in failures(settings):
        assert bootstrap in message
        assert "CERTIFICATE_VERIFY_FAILED" in message


def test_a_client_that_is_not_trusted_is_told_so(
    bootstrap: str, identities: dict[str, Identity]
) -> None:
    """09:CL-5: whatever OpenSSL calls it, the error has the address."""
    every = [
        settings_of(bootstrap, trusts=identities["broker"], is_=identity)
        for identity in (identities["stranger"], None)
    ]
    for message in failures(*every):
        assert bootstrap in message


def test_a_certificate_must_name_the_host_unless_that_is_switched_off(
    bootstrap: str, identities: dict[str, Identity]
) -> None:
    """09:CL-2: the broker's is for localhost, and 127.0.0.1 is another name."""
    other = bootstrap.replace("localhost", "127.0.0.1")
    broker, client = identities["broker"], identities["client"]
    for message in failures(settings_of(other, trusts=broker, is_=client)):
        assert "IP address mismatch" in message
    settings = settings_of(
        other, trusts=broker, is_=client, ssl_endpoint_identification_algorithm=""
    )
    with Admin(settings) as admin:
        admin.list_topics()
