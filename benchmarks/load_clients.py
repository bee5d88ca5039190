"""The load programs of `benchmarks/load`, compiled when needed, and how they are called.

They are in C so that the client does not limit the figures; the same ones load every server.
"""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

__all__ = [
    "Figures",
    "Load",
    "build",
    "consume",
    "create_topic",
    "fill",
    "latency",
    "latency_beside",
    "produce",
    "replay_frames",
    "replay_requests",
    "transact",
    "wake",
]

Figures = dict[str, float]

_ROOT = Path(__file__).resolve().parent.parent
_SOURCES = _ROOT / "benchmarks" / "load"
_BUILT = _ROOT / "build" / "benchmarks"
_PACKAGES = ("gcc", "libc6-dev", "librdkafka-dev")
_LIBRARIES = {
    "producer_consumer": ("-lrdkafka", "-lpthread"),
    "request_replayer": (),
    "frame_replayer": (),
    "waker": (),
}
_TIMEOUT_S = 600
_STALL_TIMEOUT_S = 90


def build() -> None:
    """Compiles programs that are missing or older than their source; installs their libraries."""
    subprocess.run([_ROOT / "scripts" / "debian-packages", *_PACKAGES], check=True)
    _BUILT.mkdir(parents=True, exist_ok=True)
    for name, libraries in _LIBRARIES.items():
        source, program = _SOURCES / f"{name}.c", _BUILT / name
        if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
            continue
        subprocess.run(
            ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source, *libraries],
            check=True,
        )


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Creates a topic and writes an empty message to each partition, to see that it works."""
    _run("producer_consumer", "create", bootstrap, topic, partitions)


def produce(bootstrap: str, topic: str, *, size: int, count: int, acks: str = "all") -> Figures:
    """Produces as fast as possible with librdkafka's default batching."""
    return _run("producer_consumer", "produce", bootstrap, topic, size, count, acks)


def fill(bootstrap: str, topic: str, *, size: int, count: int, partitions: int) -> Figures:
    """Produces the same number of messages to each partition."""
    return _run("producer_consumer", "fill", bootstrap, topic, size, count, partitions)


def consume(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    count: int,
    isolation: str = "read_committed",
) -> Figures:
    """Consumes that many messages from the beginning; the isolation is librdkafka's default."""
    return _run("producer_consumer", "consume", bootstrap, topic, partitions, count, isolation)


def transact(
    bootstrap: str,
    topic: str,
    *,
    size: int,
    records: int,
    count: int,
    producers: int,
    partitions: int,
    aborted: int = 0,
) -> Figures:
    """Ends transactions, every so many of a producer by an abort; p50 and p99 of the commits."""
    shape = (size, records, count, producers, partitions, aborted)
    return _run("producer_consumer", "transact", bootstrap, topic, *shape)


def latency(bootstrap: str, topic: str, *, size: int, count: int, per_second: int) -> Figures:
    """Produces at a fixed rate without lingering; p50 and p99 of the time to the answer."""
    return _run("producer_consumer", "latency", bootstrap, topic, size, count, per_second)


class Load:
    """Messages that are sent at a fixed rate beside something else."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def wait_until_delivering(self) -> None:
        """Until some messages were answered."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "delivering\n":
            raise RuntimeError("the load beside it did not start")

    def begin(self) -> None:
        """Messages count from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> Figures:
        """Ends the load and waits for all answers; returns as `latency`."""
        output, _ = self._process.communicate(timeout=_STALL_TIMEOUT_S)
        if self._process.returncode != 0:
            raise RuntimeError(f"the load beside it ended with {self._process.returncode}")
        return cast("Figures", json.loads(output))


@contextlib.contextmanager
def latency_beside(bootstrap: str, topic: str, *, size: int, per_second: int) -> Iterator[Load]:
    """Produces at a fixed rate without lingering, until it is told to end or the block ends."""
    arguments = ("beside", bootstrap, topic, size, per_second * _TIMEOUT_S, per_second)
    process = subprocess.Popen(
        [_program("producer_consumer"), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Load(process)
        finally:
            process.kill()


def replay_requests(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    connections: int,
    depth: int,
    records: int,
    size: int,
    count: int,
    version: int = 7,
    is_idempotent: bool = False,
) -> Figures:
    """Sends Produce requests of one batch each, `depth` in flight on each connection."""
    host, _, port = bootstrap.rpartition(":")
    arguments = (partitions, connections, depth, records, size, count, version)
    kind = "idempotent" if is_idempotent else "plain"
    return _run("request_replayer", host, port, topic, *arguments, kind)


def wake(bootstrap: str, topic: str, *, consumers: int, size: int, rounds: int) -> Figures:
    """Writes a record that so many consumers wait for, again and again."""
    host, _, port = bootstrap.rpartition(":")
    return _run("waker", host, port, topic, consumers, size, rounds)


def replay_frames(
    bootstrap: str, frames: Path, *, connections: int, depth: int, count: int
) -> Figures:
    """Sends requests of a file round and round, and compares each answer with that of the file."""
    host, _, port = bootstrap.rpartition(":")
    return _run("frame_replayer", host, port, str(frames), connections, depth, count)


@cache
def _program(name: str) -> Path:
    build()
    return _BUILT / name


def _run(name: str, *arguments: str | int) -> Figures:
    done = subprocess.run(
        [_program(name), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
    )
    return cast("Figures", json.loads(done.stdout))
