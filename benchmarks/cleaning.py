"""Compacting a log: speed on one core, and the latency of other clients meanwhile.

The latency is that of Produce requests at a steady rate to one topic while the cleaner works on
a gigabyte of another: from when a message was due until the arrival of its answer.
"""

import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks import load_clients
from benchmarks.load_clients import Figures
from benchmarks.logs import LazyDisk, open_log, temporary_directory
from benchmarks.servers import COMMAND, Run, Server, start_odradek, with_bytecode
from benchmarks.table import Row, at_least, at_most, benchmark, server_benchmark
from odradek.files import Disk
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_request, parse_response
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records.builder import build_batch
from odradek.storage.cleaning.cleaner import LogCleaner
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from tests.conformance.clients.raw import RawConnection

_CONFIG = LogConfig(segment_bytes=64 << 20, cleanup_policy=("compact",))
_TOTAL_BYTES = 96 << 20
_KEYS = 50_000
_TURNS = 3
# (label, bytes of a value, records of a batch)
_CASES = (
    ("200 B, 80 a batch", 180, 80),
    ("1 KB, 16 a batch", 1_000, 16),
    ("200 B, 1 a batch", 180, 1),
)
_BAR = 50.0  # MB/s.

# The topic that is compacted.
_DIRTY = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 << 20),
    "min.cleanable.dirty.ratio": "1",
}
_DIRTY_BATCHES = 60_000  # Of 17 KB.
_DISTINCT_BATCHES = 6_000
_RECORDS_IN_BATCH = 80
_MANY_KEYS = 1_000_000
_IN_FLIGHT = 50
_PRODUCE_VERSION = 7
# The load beside it.
_PER_SECOND = 2_000
_REQUESTS = 6_000


def _dirty_log(path: str, value_bytes: int, per_batch: int, total_bytes: int) -> Log:
    """A log of random keys, dirty from its start to its active segment."""
    log = open_log(path, _CONFIG, disk=LazyDisk())
    random = Random(1)
    value = random.randbytes(value_bytes)
    now_ms = log.services.clock.now_ms()
    while log.size_in_bytes < total_bytes:
        records = [
            (now_ms, b"key-%012d" % random.randrange(_KEYS), value, ()) for _ in range(per_batch)
        ]
        log.append_as_leader(build_batch(records), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    return log


@benchmark("cleaner")
def cleaner() -> Iterator[Row]:
    """Bytes of a dirty log per second of CPU, both readings, the writing and its syncs included."""
    for label, value_bytes, per_batch in _CASES:
        rates = []
        for _ in range(_TURNS):
            with temporary_directory() as path:
                log = _dirty_log(
                    path, value_bytes, per_batch, _TOTAL_BYTES // (4 if per_batch == 1 else 1)
                )
                size = log.size_in_bytes
                rates.append(size / _clean(log) / 1e6)
                log.mark_offline("measured")
        yield at_least(f"cleaner, {label}", rates, "MB/s", _BAR)


def _clean(log: Log) -> float:
    """Seconds of CPU for one pass over the whole log, its syncs included."""
    services = replace(log.services, disk=Disk())
    cleaning = LogCleaner(services=services, config=CleanerConfig(), logs=lambda: [log])
    started = time.process_time()
    cleaning.run()
    took = time.process_time() - started
    assert cleaning.stats.passes == 1, cleaning.uncleanable
    return took


@server_benchmark("cleaner-latency")
def cleaner_latency(run: Run) -> Iterator[Row]:
    """Produce requests while another topic is compacted, and without."""
    samples = []
    for _ in range(run.repeats):
        with start_odradek({"log.cleaner.backoff.ms": "50"}) as server:
            samples.append(_measure(server, run))
    for name, unit in (("without", "ms"), ("cleaning", "ms"), ("ratio", "x")):
        for percentile in ("p50", "p99"):
            figures = [sample[f"{percentile}, {name}"] for sample in samples]
            bar = 2.0 if (percentile, name) == ("p99", "ratio") else None
            yield at_most(f"cleaner-latency, produce {percentile}, {name}", figures, unit, bar)


def _measure(server: Server, run: Run) -> Figures:
    load_clients.create_topic(server.bootstrap, "busy", 4)
    configs = [word for key, value in _DIRTY.items() for word in ("--config", f"{key}={value}")]
    _odradek(server, "topics", "create", "dirty", "--partitions", "1", *configs)
    _fill(server, run.scaled(_DIRTY_BATCHES))
    count = run.scaled(_REQUESTS)

    def load() -> Figures:
        return load_clients.latency(
            server.bootstrap, "busy", size=1_024, count=count, per_second=_PER_SECOND
        )

    load()
    without = load()
    _odradek(server, "configs", "alter", "topic", "dirty", "--set", "min.cleanable.dirty.ratio=0.1")
    cleaning = load()
    if not run.is_quick:
        assert not _is_clean(server.data), "there was not enough to compact"
    deadline = time.monotonic() + 60
    while not _is_clean(server.data):
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.05)
    figures = {}
    for percentile in ("p50", "p99"):
        before, meanwhile = without[f"{percentile}_ns"] / 1e6, cleaning[f"{percentile}_ns"] / 1e6
        figures[f"{percentile}, without"] = before
        figures[f"{percentile}, cleaning"] = meanwhile
        figures[f"{percentile}, ratio"] = meanwhile / before
    return figures


def _odradek(server: Server, *arguments: str) -> None:
    command = [COMMAND, *arguments, "--bootstrap-server", server.bootstrap]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=with_bytecode())


def _is_clean(data: Path) -> bool:
    """Whether a pass over the dirty topic has ended: that is when it is noted."""
    checkpoint = data / "cleaner-offset-checkpoint"
    return checkpoint.exists() and "dirty 0 " in checkpoint.read_text()


def _fill(server: Server, batch_count: int) -> None:
    """Writes batches of random keys, the same ones round and round."""
    random = Random(1)
    value = random.randbytes(180)
    now_ms = time.time_ns() // 1_000_000
    frames = []
    for _ in range(min(batch_count, _DISTINCT_BATCHES)):
        records = [
            (now_ms, b"key-%012d" % random.randrange(_MANY_KEYS), value, ())
            for _ in range(_RECORDS_IN_BATCH)
        ]
        row = PartitionProduceData(index=0, records=build_batch(records))
        topic = TopicProduceData(name="dirty", partition_data=[row])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        frame = encode_request(RequestHeader(ApiKey.PRODUCE, _PRODUCE_VERSION, 0, "fill"), request)
        frames.append(struct.pack(">i", len(frame)) + frame)
    with RawConnection(int(server.bootstrap.rpartition(":")[2])) as connection:
        for start in range(0, batch_count, _IN_FLIGHT):
            chosen = range(start, min(start + _IN_FLIGHT, batch_count))
            connection.send(b"".join(frames[number % len(frames)] for number in chosen))
            for _ in chosen:
                _, answer = parse_response(
                    connection.receive_frame(), ApiKey.PRODUCE, _PRODUCE_VERSION
                )
                assert isinstance(answer, ProduceResponse)
                assert answer.responses[0].partition_responses[0].error_code == 0
