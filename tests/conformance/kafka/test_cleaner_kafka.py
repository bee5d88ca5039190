"""Compacted segments: Kafka's dump tool finds nothing wrong in ours, and we read Kafka's the same.

In a compacted log offsets have gaps, which the tool remarks on, as it does on Kafka's own.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.records.compression import Codec
from odradek.records.record import Record
from odradek.storage.cleaning.cleaner import LogCleaner
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.directories.log_directory import LogDirectory
from tests.conformance.kafka.broker_scenario import open_log
from tests.conformance.kafka.kafka_clients import (
    Payload,
    ReliableProducer,
    TransactionalProducer,
    create_topics,
)
from tests.support.apache_kafka import KafkaInstall, running_broker
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import (
    abort,
    append_leader,
    commit,
    idempotent,
    pass_time,
    records_of,
    transactional,
)
from tests.support.logs import T0, headers, read_all

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_GAP = re.compile(r"Non-consecutive offsets in \S+\n(?:  -?\d+ is followed by \d+\n)+")
_RECORD = re.compile(
    r"\| offset: (\d+) .*?keySize: (-?\d+) valueSize: (-?\d+).*?(?: key: (\S*))?(?: payload: .*)?$"
)
_EXPECTED_LINE = re.compile(
    r"Dumping |Log starting offset: |baseOffset: |\| offset: |offset: \d+ position: \d+$"
    r"|timestamp: \d+ offset: \d+$|version: 0 producerId: |producerId: "
)


def fill_and_clean(fixture: CleaningFixture) -> None:
    """Every codec, tombstones before and after their horizon, transactions of both outcomes."""
    log = fixture.open()
    for step in range(3):
        for codec in Codec:
            fixture.produce(
                *[(b"%s-%d" % (codec.name.encode(), n), b"%d" % step * 50) for n in range(8)],
                (b"gone-%d" % step, None),
                codec=codec,
            )
        append_leader(log, idempotent(2 * step, 2, key=b"k"))
        for producer_id, end in ((7000, commit), (7001, abort)):
            append_leader(log, transactional(step, key=b"t", producer_id=producer_id))
            end(log, producer_id)
        fixture.roll()
        fixture.clean()
        pass_time(fixture, 700)


def test_dump_tool_reads_cleaned_segments(kafka: KafkaInstall, tmp_path: Path) -> None:
    """10 §11: records, delete horizons, emptied batches and the indexes over them."""
    config = replace(COMPACTED, segment_index_bytes=10 << 20)
    with CleaningFixture(tmp_path, config=config) as fixture:
        fill_and_clean(fixture)
        left = fixture.records()
        found = headers(read_all(fixture.opened))
        fixture.close()
        directory = Path(fixture.directory)
    assert any(h.record_count == 0 for h in found)
    assert any(h.delete_horizon_ms is not None for h in found)
    assert any(h.delete_horizon_ms is not None and h.is_control for h in found)
    kinds = (".log", ".index", ".timeindex", ".txnindex")
    files = sorted(str(p) for p in directory.iterdir() if p.suffix in kinds and p.stat().st_size)
    assert {Path(file).suffix for file in files} == set(kinds)
    result = kafka.dump_log_segments(
        "--deep-iteration", "--print-data-log", "--files", ",".join(files)
    )
    assert result.returncode == 0, result.stderr
    assert _GAP.sub("", result.stderr).strip() == ""
    lines = result.stdout.splitlines()
    assert [line for line in lines if not _EXPECTED_LINE.match(line)] == []
    theirs = [int(match[1]) for line in lines if (match := _RECORD.match(line))]
    assert theirs == [offset for offset, _, _ in left]
    batches = [line for line in lines if line.startswith("baseOffset: ")]
    assert len(batches) == len(found)
    for line, header in zip(batches, found, strict=True):
        assert f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} " in line
        assert f"count: {header.record_count} " in line
        assert "isvalid: true" in line
        if header.delete_horizon_ms is not None:
            assert f"deleteHorizonMs: OptionalLong[{header.delete_horizon_ms}]" in line


# Segments that Kafka compacted

COMPACTED_BY_KAFKA = TopicPartition("compacted", 0)
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # The smallest that Kafka 4 takes.
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
_BROKER_CONFIG = {"log.cleaner.backoff.ms": "100", "log.index.size.max.bytes": "65536"}
_DEADLINE_S = 180


def _payloads(seed: int, count: int) -> Iterator[Payload]:
    random = Random(seed)
    for number in range(count):
        key = b"key-%d" % random.randrange(100)
        value = None if number % 17 == 5 else random.randbytes(500).hex().encode()
        yield Payload(T0 + number, key, value, ())


def _wait_until_compacted(log_dir: Path) -> None:
    """Until a pass of Kafka's cleaner has ended beyond the first segment."""
    end = time.monotonic() + _DEADLINE_S
    path = log_dir / "cleaner-offset-checkpoint"
    while not (
        path.exists() and re.search(r"^compacted 0 [1-9]\d*$", path.read_text(), re.MULTILINE)
    ):
        assert time.monotonic() < end, "Kafka has not compacted its topic"
        time.sleep(0.1)


def test_what_kafka_compacted_reads_the_same_here(kafka: KafkaInstall, tmp_path: Path) -> None:
    """And what is compacted here after that has the same last values."""
    written: list[Record] = []
    with running_broker(kafka, tmp_path / "broker", _BROKER_CONFIG) as broker:
        create_topics(broker.bootstrap, [COMPACTED_BY_KAFKA.topic], _TOPIC_CONFIG)
        topic = COMPACTED_BY_KAFKA.topic
        for seed, codec in enumerate(("none", "zstd", "none")):
            producer = ReliableProducer(broker.bootstrap, topic, written, compression_type=codec)
            producer.write(_payloads(seed, 900))
        transactional_producer = TransactionalProducer(
            broker.bootstrap, topic, written, transactional_id="id"
        )
        transactional_producer.begin()
        transactional_producer.write(_payloads(7, 50))
        transactional_producer.commit()
        ReliableProducer(broker.bootstrap, topic, written).write(_payloads(8, 1_200))
        _wait_until_compacted(broker.log_dir)
        broker.stop()
        directory = broker.log_dir
    (files, theirs) = _dumped_offsets(kafka, directory / str(COMPACTED_BY_KAFKA))
    assert files > 1
    log_dir = LogDirectory(str(directory), disk=Disk())
    log = open_log(log_dir, COMPACTED_BY_KAFKA, COMPACTED)
    try:
        found = records_of(read_all(log))
        assert [record.offset for record in found] == theirs
        appended = {record.offset: (record.key, record.value) for record in written}
        data = [record for record in found if record.offset in appended]
        assert len(data) < len(written)
        assert all(appended[r.offset] == (r.key, r.value) for r in data)
        last = {record.key: record.value for record in sorted(written)}
        assert {record.key: record.value for record in data} == last
        log.update_high_watermark(log.log_end_offset)
        log.roll()
        cleaner = LogCleaner(services=log.services, config=CleanerConfig(), logs=lambda: [log])
        cleaner.run()
        assert (cleaner.stats.passes, cleaner.uncleanable) == (1, {})
        left = [r for r in records_of(read_all(log)) if r.offset in appended]
        assert len(left) <= 100
        assert {record.key: record.value for record in left} == last
    finally:
        log.mark_offline("tested")


def _dumped_offsets(kafka: KafkaInstall, directory: Path) -> tuple[int, list[int]]:
    """How many segments there are, and the offsets of all records by Kafka's tool."""
    files = sorted(str(path) for path in directory.glob("*.log") if path.stat().st_size)
    result = kafka.dump_log_segments("--deep-iteration", "--files", ",".join(files))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    return len(files), [int(match[1]) for line in lines if (match := _RECORD.match(line))]
