"""Start times of broker and commands, and the memory of an idle broker."""

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

from benchmarks.servers import COMMAND, Run, start_odradek, with_bytecode
from benchmarks.table import Row, at_most, server_benchmark

_REPEATS = 7
_HELP_REPEATS = 15

# Metadata version 1, correlation id 1, no client id, all topics.
_METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 1, -1, -1)


@server_benchmark("start")
def start(run: Run) -> Iterator[Row]:
    """From nothing to the first Metadata answer."""
    repeats = 1 if run.is_quick else _REPEATS
    served, idle_mb = [], []
    with start_odradek():
        pass  # Its modules are compiled now.
    for _ in range(repeats):
        begun = time.perf_counter()
        with start_odradek() as server:
            ask_for_metadata(server.bootstrap)
            served.append(time.perf_counter() - begun)
            time.sleep(0.5)  # Until parts that start late have started.
            idle_mb.append(server.resident_mb())
    yield at_most("`odradek serve` to first Metadata answer", served, "s", 0.5)
    embedded = [_measure_embedded() for _ in range(repeats)]
    first, again = ([times[i] for times in embedded] for i in range(2))
    yield at_most("test fixture, warm interpreter, first use", first, "s", 0.3)
    yield at_most("test fixture, warm interpreter, second use", again, "s", 0.3)
    yield at_most("memory of an idle broker", idle_mb, "MB", 60)


def ask_for_metadata(bootstrap: str) -> None:
    """Asks for the metadata of all topics and waits for the answer."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(_METADATA_REQUEST)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            (correlation_id,) = struct.unpack(">i", answers.read(size)[:4])
            assert correlation_id == 1, f"an answer to {correlation_id} came, not to 1"


# The fixture's modules are not loaded yet, pytest is.
_EMBEDDED = """
import json, time
import pytest
from benchmarks.starting import ask_for_metadata
from odradek.testing.broker import EmbeddedBroker
times = []
for _ in range(2):
    begun = time.perf_counter()
    with EmbeddedBroker() as broker:
        ask_for_metadata(broker.bootstrap_servers)
        times.append(time.perf_counter() - begun)
print(json.dumps(times))
"""


def _measure_embedded() -> list[float]:
    """Seconds until the first and the second broker of a process answered."""
    done = subprocess.run(
        [sys.executable, "-c", _EMBEDDED],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=with_bytecode(),
    )
    times: list[float] = json.loads(done.stdout)
    return times


@server_benchmark("help")
def help_pages(run: Run) -> Iterator[Row]:
    """The time of a help page beyond that of an interpreter that does nothing."""
    commands = {
        "bare": (sys.executable, "-c", "pass"),
        "odradek --help": (COMMAND, "--help"),
        "odradek topics --help": (COMMAND, "topics", "--help"),
    }
    environment = with_bytecode()
    times: dict[str, list[float]] = {name: [] for name in commands}
    # The first round compiles modules, and does not count.
    for turn in range(2 if run.is_quick else 1 + _HELP_REPEATS):
        for name, command in commands.items():
            begun = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
            if turn > 0:
                times[name].append((time.perf_counter() - begun) * 1e3)
    bare = times.pop("bare")
    for name, samples in times.items():
        added = [sample - median(bare) for sample in samples]
        yield at_most(f"`{name}` over a bare start", added, "ms", 80, bare=bare)


@server_benchmark("pipeline-check")
def pipeline_check(run: Run) -> Iterator[Row]:
    """`odradek pipeline validate` and `plan` of an example, from start to end."""
    for action in ("validate", "plan"):
        command = (COMMAND, "pipeline", action, "examples/shop/shop.yaml")
        times = []
        for _ in range(1 if run.is_quick else _REPEATS):
            begun = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=with_bytecode())
            times.append(time.perf_counter() - begun)
        yield at_most(f"`odradek pipeline {action}`", times, "s", 1.0)
