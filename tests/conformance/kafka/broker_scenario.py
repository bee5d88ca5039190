"""Two runs of a real broker on one data directory, with Odradek at work between them.

1. Kafka starts on an empty directory. Odradek is refused its lock. Producers of every codec, an
   idempotent one and two transactional ones fill `kafkas-0`; `odradeks-0` stays empty. Kafka stops
   in order, and the data directory is copied: `Scenario.clean`.
2. Odradek takes the directory over, fills `odradeks-0` and stops in order, marker and all. A file
   of ours that a crash may leave there is put back: the witness of a roll.
3. Kafka starts again, trusts what it finds and serves both. A transaction more is committed and
   one is left open. Kafka is killed (SIGKILL), and the directory is copied: `Scenario.killed`.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from odradek.errors import LogDirLockedError
from odradek.files import Disk
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import iter_headers
from odradek.records.compression import Codec
from odradek.records.record import Record, read_records
from odradek.storage.directories.checkpoints import OffsetCheckpointFile
from odradek.storage.directories.log_directory import CLEAN_SHUTDOWN_FILE, LogDirectory
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.roll_witnesses import RollWitnesses
from odradek.storage.paths import ROLLED_SUFFIX
from odradek.storage.recovery.loader import load_log
from tests.conformance.kafka.kafka_clients import (
    Payload,
    ReliableProducer,
    TransactionalProducer,
    consume,
    create_topics,
)
from tests.support.apache_kafka import KafkaInstall, running_broker
from tests.support.logs import T0, batch, make_services, marker, read_all

__all__ = ["KAFKAS", "ODRADEKS", "Scenario", "open_log", "run_scenario"]

KAFKAS = TopicPartition("kafkas", 0)  # Written by Kafka.
ODRADEKS = TopicPartition("odradeks", 0)  # Created by Kafka, written by Odradek.

# The smallest segment that Kafka 4 takes. Old times must not count as expired.
_TOPIC_CONFIG = {"segment.bytes": str(1 << 20), "retention.ms": "-1"}
# Preallocated indexes of 10 MB would be most of every copy.
_BROKER_CONFIG = {"log.index.size.max.bytes": "65536"}

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(slots=True)
class Scenario:
    """What happened, for tests to look at; they copy the directories before they touch them."""

    data_dir: Path  # Kafka's, with `server.properties` and `logs`, as the kill left it.
    clean: Path  # Copy of `logs` after the clean stop.
    killed: Path  # Copy of `logs` after the kill.
    lock_refusal: str = ""  # What Odradek said while Kafka ran.
    # Records of `kafkas-0` by delivery report, those of transactions included.
    written_before_stop: list[Record] = field(default_factory=list)
    written_after_stop: list[Record] = field(default_factory=list)
    # What read_committed consumers of `kafkas-0` got, before the clean stop and before the kill.
    committed_before_stop: list[Record] = field(default_factory=list)
    committed_before_kill: list[Record] = field(default_factory=list)
    # `odradeks-0`: what was appended, and what Kafka's second run made of it.
    odradeks_written: list[Record] = field(default_factory=list)
    odradeks_seen: list[Record] = field(default_factory=list)
    odradeks_committed: list[Record] = field(default_factory=list)
    witness: str = ""  # Name of the witness of a roll that the second run found.
    broker_log: str = ""  # Of the second run.


def run_scenario(install: KafkaInstall, directory: Path) -> Scenario:
    """Runs it; takes some ten seconds."""
    scenario = Scenario(directory / "broker", directory / "clean", directory / "killed")
    with running_broker(install, scenario.data_dir, _BROKER_CONFIG) as broker:
        scenario.lock_refusal = _try_lock(broker.log_dir)
        create_topics(broker.bootstrap, [KAFKAS.topic, ODRADEKS.topic], _TOPIC_CONFIG)
        _fill(broker.bootstrap, scenario.written_before_stop)
        scenario.committed_before_stop = consume(
            broker.bootstrap, KAFKAS.topic, isolation_level="read_committed"
        )
        broker.stop()
        _copy(broker.log_dir, scenario.clean)
    scenario.odradeks_written = _take_over(broker.log_dir)
    scenario.witness = _leave_witness(broker.log_dir / str(ODRADEKS))
    with running_broker(install, scenario.data_dir, _BROKER_CONFIG) as broker:
        for isolation_level, seen in (
            ("read_uncommitted", scenario.odradeks_seen),
            ("read_committed", scenario.odradeks_committed),
        ):
            seen += consume(broker.bootstrap, ODRADEKS.topic, isolation_level=isolation_level)
        _fill_more(broker.bootstrap, scenario)
        broker.kill()
        _copy(broker.log_dir, scenario.killed)
    scenario.broker_log = (scenario.data_dir / "broker.log").read_text(errors="replace")
    return scenario


def open_log(log_dir: LogDirectory, tp: TopicPartition, config: LogConfig | None = None) -> Log:
    """Opens a log of a data directory as a broker would: by marker and checkpoints."""
    log_dir.take_clean_shutdown_marker()
    log = load_log(
        os.path.join(log_dir.path, str(tp)),
        tp,
        config=config or LogConfig(segment_bytes=1 << 20, segment_index_bytes=65536),
        log_directory=log_dir,
        services=make_services(log_dir.disk),
        recovery_point=log_dir.read_recovery_points().get(tp, 0),
        log_start_offset=log_dir.read_log_starts().get(tp, 0),
        had_clean_shutdown=log_dir.had_clean_shutdown,
    )
    log_dir.logs[log.name] = log
    return log


def _try_lock(path: Path) -> str:
    log_dir = LogDirectory(str(path), disk=Disk())
    try:
        log_dir.lock()
    except LogDirLockedError as error:
        return str(error)
    log_dir.unlock()
    return ""


def _copy(log_dir: Path, target: Path) -> None:
    """Copies what concerns the two topics; the rest is Kafka's own."""
    shutil.copytree(log_dir, target, ignore=shutil.ignore_patterns("__*", ".lock"))


# What Kafka writes


def _payloads(seed: int, count: int) -> Iterator[Payload]:
    """Records of all shapes; text that compresses by half; times that go back now and then."""
    random = Random(seed)
    special = [
        (None, b"no key", ()),
        (b"no value", None, ()),
        (None, None, ()),
        (b"", b"", ()),
        (b"k", b"headers", (("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None))),
        ("schlüssel".encode(), b"\x00\xff" * 9, (("größe", "maß".encode()),)),
    ]
    for number in range(count):
        timestamp = T0 + seed * 1_000_000 + number * 10 - random.choice((0, 0, 0, 35))
        key, value, headers = (
            special[number]
            if number < len(special)
            else (b"key-%d" % number, random.randbytes(random.randrange(600)).hex().encode(), ())
        )
        yield Payload(timestamp, key, value, headers)


def _fill(bootstrap: str, written: list[Record]) -> None:
    for seed, codec in enumerate(_CODECS):
        producer = ReliableProducer(bootstrap, KAFKAS.topic, written, compression_type=codec)
        producer.write(_payloads(seed, 900))
    ReliableProducer(bootstrap, KAFKAS.topic, written, enable_idempotence=True).write(
        _payloads(5, 300)
    )
    first = TransactionalProducer(bootstrap, KAFKAS.topic, written, transactional_id="first")
    second = TransactionalProducer(bootstrap, KAFKAS.topic, written, transactional_id="second")
    # first   |---- commit   |-------- abort     |- commit
    # second      |------------- abort     |---------- commit
    first.begin()
    first.write(_payloads(6, 120))
    second.begin()
    second.write(_payloads(7, 120))
    first.commit()
    first.begin()
    first.write(_payloads(8, 120))
    second.abort()
    first.write(_payloads(9, 60))
    first.abort()
    second.begin()
    second.write(_payloads(10, 60))
    first.begin()
    first.write(_payloads(11, 60))
    first.commit()
    second.write(_payloads(12, 60))
    second.commit()


def _fill_more(bootstrap: str, scenario: Scenario) -> None:
    written = scenario.written_after_stop
    first = TransactionalProducer(bootstrap, KAFKAS.topic, written, transactional_id="first")
    first.begin()
    first.write(_payloads(13, 60))
    first.abort()
    ReliableProducer(
        bootstrap, KAFKAS.topic, written, compression_type="zstd", enable_idempotence=True
    ).write(_payloads(14, 900))
    first.begin()
    first.write(_payloads(15, 60))
    scenario.committed_before_kill = consume(
        bootstrap, KAFKAS.topic, isolation_level="read_committed"
    )


# What Odradek writes


def _take_over(path: Path) -> list[Record]:
    """Fills `odradeks-0` of a directory that Kafka left, and leaves it so that Kafka trusts it."""
    log_dir = LogDirectory(str(path), disk=Disk())
    log_dir.lock()
    try:
        marker_path = Path(log_dir.path, CLEAN_SHUTDOWN_FILE)
        broker_epoch = json.loads(marker_path.read_bytes())["brokerEpoch"]
        recovery_points = log_dir.read_recovery_points()
        log = open_log(log_dir, ODRADEKS, LogConfig(segment_bytes=1 << 17))
        assert log_dir.had_clean_shutdown
        _append_all(log)
        data = read_all(log)
        log.close()
        # Our checkpoint speaks of the logs that we opened; Kafka's own are as it left them.
        recovery_points[ODRADEKS] = log.recovery_point
        OffsetCheckpointFile(
            os.path.join(log_dir.path, "recovery-point-offset-checkpoint"), log_dir.disk
        ).write(recovery_points)
        log_dir.write_clean_shutdown_marker(broker_epoch)
    finally:
        log_dir.unlock()
    return [
        record
        for position, header in iter_headers(data)
        if not header.is_control
        for record in read_records(data, position=position, header=header)
    ]


def _leave_witness(directory: Path) -> str:
    """Makes the file that stays behind if a machine stops between a roll and the next flush."""
    last = max(int(path.stem) for path in directory.glob("*.log"))
    RollWitnesses(str(directory), disk=Disk()).add(last, last)
    (witness,) = directory.glob(f"*{ROLLED_SUFFIX}")
    return witness.name


def _append_all(log: Log) -> None:
    def append(records: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        log.append_as_leader(records, leader_epoch=0, origin=origin)

    for number, codec in enumerate(Codec):
        for step in range(20):
            timestamp = T0 + number * 1000 + step * 10
            append(batch(30, value=b"odradek " * 40, timestamp=timestamp, codec=codec))
    for sequence in range(0, 60, 10):
        append(batch(10, producer_id=900_001, producer_epoch=3, base_sequence=sequence))
    for producer_id, sequence, commit in ((900_002, 0, False), (900_003, 0, True)):
        fields: dict[str, Any] = {
            "producer_id": producer_id,
            "producer_epoch": 0,
            "is_transactional": True,
        }
        append(batch(5, base_sequence=sequence, **fields))
        append(batch(5, base_sequence=sequence + 5, **fields))
        append(marker(commit=commit, producer_id=producer_id), AppendOrigin.COORDINATOR)
    for _ in range(40):
        append(batch(1, size=20_000))
