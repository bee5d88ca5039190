"""Consumer groups: commits and heartbeats a second, a large group settling, memory per group.

Every group has one member, and every request is answered on its own: a commit of one partition, in
the log before its answer, or a heartbeat. The same frames go to every server, and each answer is
compared byte for byte. Both servers keep their groups in one partition of the offsets topic, or in
fifty of them, and neither waits before a group's first generation.
"""

import contextlib
import itertools
import selectors
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks import load_clients
from benchmarks.load_clients import Figures
from benchmarks.servers import Run, Server, start_odradek
from benchmarks.table import Row, server_benchmark
from benchmarks.turns import (
    WARM_UP_REQUESTS,
    CommitBar,
    Samples,
    Slice,
    compare,
    per_request,
    take_turns,
)
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message
from odradek.protocol.envelope import encode_request
from odradek.protocol.headers import RequestHeader, encode_response_header
from odradek.protocol.messages import (
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
)
from odradek.protocol.schema import Message
from tests.conformance.clients.raw import RawConnection
from tests.support.group_members import GroupMember, wait_for_coordinator

_TOPIC = "measured"
_CONNECTIONS = 50
_GROUP_COUNTS = (1, 100, 1_000)
_BAR = 0.75
_SLICE = 60_000
_COMMIT_VERSION = 8
_HEARTBEAT_VERSION = 4
_SESSION_TIMEOUT_MS = 300_000
_SETTLING_MEMBERS = 100
_SETTLING_WARM_UP = 30  # Groups that settle before: a few milliseconds each, too short to agree.
_STALL_S = 60
_GROUPS_IN_MEMORY = 10_000
_SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
_SPREAD = {**_SETTINGS, "offsets.topic.num.partitions": "50"}
_SPREAD_GROUPS = 1_000
_COMMITS = 1_000_000
_SEGMENT_MB = 4
_COMPACTED_SOON = {
    **_SETTINGS,
    "offsets.topic.segment.bytes": str(_SEGMENT_MB << 20),
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
_LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

# (request, its answer)
Exchange = tuple[ApiKey, int, Message, Message]


# The most a request may cost, as a ratio to another commit.
_COMMIT_BARS = {"commits": CommitBar(0.72, 0.72), "heartbeats": CommitBar(0.75, 0.75)}


@server_benchmark("groups", is_of_commits=True)
def groups(run: Run) -> Iterator[Row]:
    """Commits and heartbeats."""
    yield from _compare_servers(
        run,
        _SETTINGS,
        {count: f"{count:,} group{'s' if count > 1 else ''}" for count in _GROUP_COUNTS},
    )


@server_benchmark("groups-spread")
def spread(run: Run) -> Iterator[Row]:
    """The same with as many partitions of the offsets topic as there are by default."""
    label = f"{_SPREAD_GROUPS:,} groups in 50 partitions"
    yield from _compare_servers(run, _SPREAD, {_SPREAD_GROUPS: label})


@server_benchmark("groups-million")
def million(run: Run) -> Iterator[Row]:
    """The size of the offsets topic after a million commits, while it is compacted."""
    with start_odradek(_COMPACTED_SOON) as server, tempfile.TemporaryDirectory() as directory:
        port = _prepare(server)
        member_ids = _join_all(port, 1_000)
        exchanges = [_member_commit(f"g{i}", name) for i, name in enumerate(member_ids)]
        frames = _write(Path(directory) / "commits", exchanges)
        count = run.scaled(_COMMITS)
        with _Watch(server.data / "__consumer_offsets-0") as watch:
            figures = load_clients.replay_frames(
                server.bootstrap, frames, connections=_CONNECTIONS, depth=4, count=count
            )
    name = f"{count:,} commits"
    yield Row(name=name, measured=count / (figures["elapsed_ns"] / 1e9), unit="/s")
    bar = 4.0 * _SEGMENT_MB
    yield Row(
        name=f"  offsets topic at its largest, {_SEGMENT_MB} MB segments",
        measured=watch.largest / 2**20, unit="MB", bar=bar, raw={"at_the_end": watch.last},
    )  # fmt: skip


class _Watch:
    """Measures the size of a directory repeatedly until it is stopped."""

    def __init__(self, directory: Path) -> None:
        self.largest = self.last = 0
        self._directory = directory
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.1):
            size = 0
            for path in self._directory.glob("*.log*"):
                with contextlib.suppress(FileNotFoundError):
                    # Space that is preallocated for later appends does not count.
                    size += path.stat().st_size
            self.largest, self.last = max(self.largest, size), size


def _compare_servers(run: Run, settings: dict[str, str], labels: dict[int, str]) -> Iterator[Row]:
    """Commits and heartbeats of so many groups."""
    for group_count, label in labels.items():
        for kind, make in (("commits", _member_commit), ("heartbeats", _heartbeat)):
            samples = _measure(run, settings, group_count, make)
            yield compare(f"{kind}, {label}", samples, "per_second", "/s", _BAR)
            yield compare(
                f"  server CPU for each, {kind}, {label}", samples, "cpu_us", "us",
                is_bar_lowest=False, commit_bar=_COMMIT_BARS[kind],
            )  # fmt: skip


@server_benchmark("groups-settle")
def settle(run: Run) -> Iterator[Row]:
    """A hundred members that join at once."""
    members = run.scaled(_SETTLING_MEMBERS) if run.is_quick else _SETTLING_MEMBERS

    def prepare(server: Server) -> Slice:
        port = _prepare(server)
        names = (f"settling-{number}" for number in itertools.count())
        return lambda: {"settled_s": _measure_settling(port, next(names), members)}

    samples = take_turns(
        run, prepare, slices_at_least=_SETTLING_WARM_UP, settings=_SETTINGS, settles_by=()
    )
    yield compare(
        f"{members} members in one generation", samples, "settled_s", "s", 1.0, is_bar_lowest=False
    )


@server_benchmark("groups-memory")
def memory(run: Run) -> Iterator[Row]:
    """Memory of a group with one committed offset."""
    with start_odradek(_SETTINGS) as server:
        count = run.scaled(_GROUPS_IN_MEMORY)
        _prepare(server)
        with tempfile.TemporaryDirectory() as directory:
            warm_up = _write(Path(directory) / "warm-up", [_commit(f"w{i}") for i in range(100)])
            load_clients.replay_frames(
                server.bootstrap, warm_up, connections=10, depth=1, count=1_000
            )
            before_mb = server.resident_mb()
            frames = _write(Path(directory) / "frames", [_commit(f"m{i}") for i in range(count)])
            # Each connection sends its share once.
            load_clients.replay_frames(
                server.bootstrap, frames, connections=10, depth=1, count=count
            )
            per_group = (server.resident_mb() - before_mb) * 1e6 / count
    yield Row(name="memory per group with one offset", measured=per_group, unit="B")


def _prepare(server: Server) -> int:
    load_clients.create_topic(server.bootstrap, _TOPIC, 1)
    port = int(server.bootstrap.rpartition(":")[2])
    wait_for_coordinator(port, "g0")
    return port


def _measure(
    run: Run,
    settings: dict[str, str],
    group_count: int,
    make: Callable[[str, str], Exchange],
) -> Samples:
    count = run.scaled(_SLICE)
    with tempfile.TemporaryDirectory() as directory:

        def prepare(server: Server) -> Slice:
            member_ids = _join_all(_prepare(server), group_count)
            exchanges = [make(f"g{i}", name) for i, name in enumerate(member_ids)]
            frames = _write(Path(directory) / str(server.pid), exchanges)

            def replay() -> Figures:
                return load_clients.replay_frames(
                    server.bootstrap, frames, connections=_CONNECTIONS, depth=1, count=count
                )

            return lambda: per_request(server, count, replay)

        return take_turns(
            run, prepare, slices_at_least=WARM_UP_REQUESTS // _SLICE, settings=settings
        )


def _join_all(port: int, group_count: int) -> list[str]:
    """Makes groups of one member each; returns the members' ids."""
    member_ids = []
    with RawConnection(port) as connection:
        for number in range(group_count):
            joined = _join(connection, f"g{number}")
            assert (joined.error_code, joined.generation_id) == (0, 1)
            synced: Any = connection.call(
                ApiKey.SYNC_GROUP,
                2,
                sync_group.SyncGroupRequest(
                    group_id=f"g{number}",
                    generation_id=1,
                    member_id=joined.member_id,
                    assignments=[
                        sync_group.SyncGroupRequestAssignment(
                            member_id=joined.member_id, assignment=b""
                        )
                    ],
                ),
            )
            assert synced.error_code == 0
            member_ids.append(joined.member_id)
    return member_ids


def _join(connection: RawConnection, group_id: str) -> Any:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_group.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=_SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=_SESSION_TIMEOUT_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    deadline = time.monotonic() + _STALL_S
    while True:
        # The last version that joins in one step.
        joined: Any = connection.call(ApiKey.JOIN_GROUP, 3, request)
        if joined.error_code not in _LOADING or time.monotonic() > deadline:
            return joined
        time.sleep(0.05)


def _member_commit(group_id: str, member_id: str) -> Exchange:
    return _commit(group_id, member_id, 1)


def _commit(group_id: str, member_id: str = "", generation_id: int = -1) -> Exchange:
    row = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = offset_commit.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        topics=[offset_commit.OffsetCommitRequestTopic(name=_TOPIC, partitions=[row])],
    )
    result = offset_commit.OffsetCommitResponsePartition(partition_index=0, error_code=0)
    answer = offset_commit.OffsetCommitResponse(
        topics=[offset_commit.OffsetCommitResponseTopic(name=_TOPIC, partitions=[result])]
    )
    return ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, request, answer


def _heartbeat(group_id: str, member_id: str) -> Exchange:
    request = heartbeat.HeartbeatRequest(group_id=group_id, generation_id=1, member_id=member_id)
    answer = heartbeat.HeartbeatResponse(error_code=0)
    return ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, request, answer


def _write(path: Path, exchanges: Sequence[Exchange]) -> Path:
    with path.open("wb") as file:
        for number, (key, version, request, answer) in enumerate(exchanges):
            sent = encode_request(RequestHeader(key, version, number, "groups"), request)
            head = encode_response_header(key, version, number)
            received = head + encode_message(answer, version)
            for frame in (sent, received):
                file.write(struct.pack(">i", len(frame)) + frame)
    return path


def _measure_settling(port: int, group_id: str, member_count: int) -> float:
    """Seconds from the first JoinGroup until every member has its assignment in one generation."""
    members = [
        GroupMember(port, group_id, session_timeout_ms=_SESSION_TIMEOUT_MS, version=3)
        for _ in range(member_count)
    ]
    try:
        with selectors.DefaultSelector() as selector:
            for member in members:
                selector.register(member._connection._socket, selectors.EVENT_READ, member)
            started = time.perf_counter()
            for member in members:
                member.send_join()
            settled: set[GroupMember] = set()
            while len(settled) < member_count:
                for key, _ in selector.select(_STALL_S):
                    if _take_turn(key.data, member_count):
                        settled.add(key.data)
            return time.perf_counter() - started
    finally:
        for member in members:
            member.close()


def _take_turn(member: GroupMember, member_count: int) -> bool:
    """Handles an answer as a client does; returns whether the member has its assignment."""
    assert member._sent is not None
    is_join = member._sent[0] is ApiKey.JOIN_GROUP
    answer = member._receive()
    if not is_join:
        if answer.error_code == ErrorCode.NONE:
            return True
        assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        member.send_join()
        return False
    assert answer.error_code == ErrorCode.NONE
    member.member_id, member.generation_id = answer.member_id, answer.generation_id
    if answer.leader != member.member_id:
        member.send_sync()
    elif len(answer.members) < member_count:
        member.send_join()  # A leader that joins again begins a new generation.
    else:
        member.send_sync({row.member_id: b"x" for row in answer.members})
    return False
