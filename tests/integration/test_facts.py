"""Facts about a broker that only a whole one shows (08 part B)."""

import asyncio
import os
import ssl
from pathlib import Path

import pytest

from odradek.client import Client, ClientOptions, parse_addresses
from odradek.network import send_queue
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.versions import VersionRange
from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands
from tests.support.network import make_certificate

pytestmark = pytest.mark.slow

# Several times what would be read and sent, since that is cheaper for little.
VALUES = b"".join(b"%0999d\n" % number for number in range(100))


def fetch_raw(bootstrap: str, tls: ssl.SSLContext | None = None) -> bytes:
    """The records of t-0 as they come over the wire."""

    async def fetch() -> bytes:
        options = ClientOptions(bootstrap=parse_addresses(bootstrap), tls=tls)
        async with Client(options) as client:
            deadline = client.deadline()
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=1000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
            )
            connection = await client.any_connection(deadline)
            answer = await client.ask(
                connection,
                ApiKey.FETCH,
                request,
                FetchResponse,
                deadline,
                within=VersionRange(4, 12),
            )
            [topic] = answer.responses
            [partition] = topic.partitions
            assert partition.error_code == 0
            assert partition.records is not None
            return bytes(partition.records)

    return asyncio.run(fetch())


def mapped_files(folder: Path) -> set[str]:
    """Names of files of a folder that are mapped into the memory of this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = [Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/")]
    return {path.name for path in paths if path.parent == folder}


def test_zero_copy_in_exactly_two_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """08:F-19: indexes are mapped, logs are not; logs go out by sendfile, but not through TLS."""
    sent_from: list[str] = []
    sendfile = os.sendfile

    def noting(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        sent_from.append(os.readlink(f"/proc/self/fd/{in_fd}"))
        return sendfile(out_fd, in_fd, offset, count)

    monkeypatch.setattr(os, "sendfile", noting)
    data = (tmp_path / "data").resolve()
    log = data / "t-0" / "00000000000000000000.log"
    with EmbeddedBroker(data_dir=data) as broker:
        for _ in range(2):  # The second batch gives the indexes their first entries.
            Commands(broker.bootstrap_servers).ok("produce", "t", stdin=VALUES)
        plain = fetch_raw(broker.bootstrap_servers)
        mapped = mapped_files(data / "t-0")
    assert set(sent_from) == {str(log)}
    assert mapped == {"00000000000000000000.index", "00000000000000000000.timeindex"}
    assert len(plain) > len(VALUES) > send_queue.INLINE_FILE_BYTES
    assert plain == log.read_bytes()

    sent_from.clear()
    certificate, key = make_certificate(tmp_path)
    pem = tmp_path / "keystore.pem"
    pem.write_bytes(key.read_bytes() + certificate.read_bytes())
    settings = {
        "listeners": "SSL://localhost:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
    }
    with EmbeddedBroker(settings, data_dir=data) as broker:
        tls = ssl.create_default_context(cafile=str(certificate))
        encrypted = fetch_raw(broker.bootstrap_servers, tls)
    assert sent_from == []
    assert encrypted == plain
