"""The offsets topic of a running broker stays as large as its groups, however much is committed."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_request, parse_response
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages import offset_commit, offset_fetch
from odradek.testing import EmbeddedBroker
from tests.conformance.clients.raw import RawConnection
from tests.support.commands import Commands
from tests.support.group_members import wait_for_coordinator

pytestmark = pytest.mark.slow

SEGMENT_BYTES = 128 << 10
SETTINGS = {
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
    "log.cleaner.backoff.ms": "50",
    "log.segment.delete.delay.ms": "0",
}
GROUPS = 10
PARTITIONS = 50
ROUNDS = 80
COMMITS = GROUPS * PARTITIONS * ROUNDS  # In requests of one group, all its partitions.
COMMIT_VERSION = 8


def commit_frame(group: str, offset: int) -> bytes:
    rows = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset + number, committed_metadata=""
        )
        for number in range(PARTITIONS)
    ]
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[offset_commit.OffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    header = RequestHeader(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 0, "raw")
    frame = encode_request(header, request)
    return struct.pack(">i", len(frame)) + frame


def committed(connection: RawConnection, group: str) -> list[int]:
    topic = offset_fetch.OffsetFetchRequestTopic(
        name="t", partition_indexes=list(range(PARTITIONS))
    )
    answer = connection.call(
        ApiKey.OFFSET_FETCH, 5, offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
    )
    assert isinstance(answer, offset_fetch.OffsetFetchResponse)
    assert answer.error_code == 0
    rows = sorted(answer.topics[0].partitions, key=lambda row: row.partition_index)
    return [row.committed_offset for row in rows]


def sizes(directory: Path) -> Iterator[int]:
    """Of the segments; files may go while they are looked at."""
    for path in directory.glob("*.log"):
        try:
            yield path.stat().st_size
        except FileNotFoundError:
            continue


def test_many_commits_leave_little_behind_and_nothing_is_lost(tmp_path: Path) -> None:
    """08:P-7."""
    directory = tmp_path / "__consumer_offsets-0"
    groups = [f"g{number}" for number in range(GROUPS)]
    with EmbeddedBroker(SETTINGS, data_dir=tmp_path) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        Commands(broker.bootstrap_servers).ok("topics", "create", "t", "--partitions", PARTITIONS)
        wait_for_coordinator(port, groups[0])
        with RawConnection(port) as connection:
            for number in range(ROUNDS):
                connection.send(b"".join(commit_frame(group, number) for group in groups))
                for _ in groups:
                    _, answer = parse_response(
                        connection.receive_frame(), ApiKey.OFFSET_COMMIT, COMMIT_VERSION
                    )
                    assert isinstance(answer, offset_commit.OffsetCommitResponse)
                    results = answer.topics[0].partitions
                    assert [row.error_code for row in results] == [0] * PARTITIONS
            # The active segment, one that waits for its pass, and what is live.
            bound = 3 * SEGMENT_BYTES
            deadline = time.monotonic() + 120
            while (size := sum(sizes(directory))) > bound:
                assert time.monotonic() < deadline, f"{size} bytes are left, expected {bound}"
                time.sleep(0.05)
            expected = list(range(ROUNDS - 1, ROUNDS - 1 + PARTITIONS))
            assert all(committed(connection, group) == expected for group in groups)
    last = max(int(path.stem) for path in directory.glob("*.log"))
    assert last > COMMITS / 2, "all of them went through the log"
    with EmbeddedBroker(SETTINGS, data_dir=tmp_path) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        wait_for_coordinator(port, groups[0])
        with RawConnection(port) as connection:
            assert all(committed(connection, group) == expected for group in groups)
