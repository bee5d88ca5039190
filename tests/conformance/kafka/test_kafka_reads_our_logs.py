"""Kafka's own dump tool finds nothing wrong in what Odradek writes, and reads the values we meant.

The tool compares each index entry with the log, steps through every record (`--deep-iteration`)
and runs the broker's own check of the indexes (`--index-sanity-check`). It always exits with 0:
what counts is that it prints nothing but what it read, and nothing at all to standard error.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.files import Disk
from odradek.model import AppendOrigin
from odradek.records.batch import iter_headers, patch_offset_and_epoch
from odradek.records.compression import Codec
from odradek.storage.dump import dump_file
from odradek.storage.log.config import LogConfig
from odradek.storage.paths import RECENT_SUFFIX, ROLLED_SUFFIX
from tests.conformance.kafka.broker_scenario import KAFKAS, ODRADEKS, Scenario
from tests.conformance.kafka.once_per_run import once_per_run
from tests.support.apache_kafka import KafkaInstall
from tests.support.logs import T0, LogFixture, batch, flip_bit, marker, read_all

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

# The tool of 4.3 compares the first record of a file with offset -1. It says so of Kafka's own
# files, too: `test_false_alarm_of_the_tool_is_the_tools`.
_FALSE_ALARM = re.compile(
    r"Non-consecutive offsets in .*/(\d{20})\.log\n  -1 is followed by (\d+)\n"
)

_EXPECTED_LINE = re.compile(
    r"Dumping |Log starting offset: |baseOffset: |\| offset: |offset: \d+ position: \d+$"
    r"|timestamp: \d+ offset: \d+$|version: 0 producerId: |producerId: |.* passed sanity check\.$"
)


def segment_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in _KINDS)


def dump(kafka: KafkaInstall, directory: Path, *options: str) -> list[str]:
    """Lines of the tool for all files of a partition; fails on anything that is no plain value."""
    files = ",".join(map(str, segment_files(directory)))
    result = kafka.dump_log_segments(*options, "--files", files)
    assert result.returncode == 0, result.stderr
    alarms = _FALSE_ALARM.findall(result.stderr)
    assert all(int(base) == int(offset) for base, offset in alarms), result.stderr
    assert _FALSE_ALARM.sub("", result.stderr).strip() == ""
    lines = result.stdout.splitlines()
    assert [line for line in lines if not _EXPECTED_LINE.match(line)] == []
    return lines


# Logs


def _append(fixture: LogFixture, records: bytearray, epoch: int = 0) -> None:
    assert fixture.log is not None
    fixture.log.append_as_leader(records, leader_epoch=epoch)


def _end_transaction(fixture: LogFixture, *, commit: bool, producer_id: int = 4000) -> None:
    assert fixture.log is not None
    fixture.log.append_as_leader(
        marker(commit=commit, producer_id=producer_id, coordinator_epoch=7),
        leader_epoch=2,
        origin=AppendOrigin.COORDINATOR,
    )


def _fill(fixture: LogFixture) -> None:
    """Every codec, several epochs, an idempotent and two transactional producers, many rolls."""
    for number, codec in enumerate(Codec):
        for step in range(12):
            timestamp = T0 + number * 1000 + (step * 7) % 40  # Goes back, too.
            _append(fixture, batch(20, value=b"text " * 60, codec=codec, timestamp=timestamp))
    fields: dict[str, Any]
    for sequence in range(0, 40, 4):
        fields = {
            "producer_id": 3000,
            "producer_epoch": 1,
            "base_sequence": sequence,
        }
        _append(fixture, batch(4, size=2500, timestamp=T0 + 9000, **fields), epoch=1)
    for sequence in range(0, 12, 3):
        for producer_id in (4000, 4001):
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
            }
            _append(fixture, batch(3, size=3000, is_transactional=True, **fields), epoch=2)
        if sequence == 3:
            _end_transaction(fixture, commit=False)
            _end_transaction(fixture, commit=True, producer_id=4001)
    _end_transaction(fixture, commit=True)
    _end_transaction(fixture, commit=False, producer_id=4001)


def _write_closed(path: Path) -> Path:
    with LogFixture(path, config=LogConfig(segment_bytes=50_000)) as fixture:
        fixture.open()
        _fill(fixture)
        # One transaction stays open, for the snapshot.
        fields: dict[str, Any] = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": 12}
        _append(fixture, batch(3, is_transactional=True, **fields), epoch=2)
        assert len(list(Path(fixture.directory).glob("*.log"))) >= 3
        fixture.close()
        return Path(fixture.directory)


def _write_follower(path: Path) -> Path:
    """01:SEG-12: sets of ten batches, with index entries inside each set; markers among them."""
    with LogFixture(path, config=LogConfig(segment_bytes=100_000)) as fixture:
        log = fixture.open()
        offset = 0
        for _ in range(12):
            records = bytearray()
            for _ in range(10):
                records += batch(size=1500, base_offset=offset, timestamp=T0 + offset)
                offset += 1
            log.append_as_follower(records)
        with LogFixture(path / "leader") as leader:
            leaders_log = leader.open()
            _fill(leader)
            fetched = read_all(leaders_log)
        for records in _sets_of_batches(fetched, first_offset=offset):
            log.append_as_follower(records)
        fixture.close()
        return Path(fixture.directory)


def _sets_of_batches(records: bytes, *, first_offset: int) -> list[bytearray]:
    """Seven batches each, as fetches from a leader whose log starts at `first_offset`."""
    sets: list[bytearray] = []
    for number, (position, header) in enumerate(iter_headers(records)):
        if number % 7 == 0:
            sets.append(bytearray())
        one = bytearray(records[position : position + header.size])
        patch_offset_and_epoch(one, 0, first_offset + header.base_offset, header.leader_epoch)
        sets[-1] += one
    return sets


_KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from tests.conformance.kafka.test_kafka_reads_our_logs import _fill
from tests.support.logs import LogFixture, batch
from odradek.storage.log.config import LogConfig
fixture = LogFixture(Path(sys.argv[1]), config=LogConfig(segment_bytes=50_000))
log = fixture.open()
_fill(fixture)
torn = batch(3, size=3000, base_offset=log.log_end_offset)
os.write(log.active.fd, torn[:1700])
os.kill(os.getpid(), signal.SIGKILL)
"""


def _write_recovered(path: Path) -> Path:
    """A writer that was killed inside a write; its log recovered, appended to and closed."""
    result = subprocess.run(
        [sys.executable, "-c", _KILLED_WRITER, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == -signal.SIGKILL, result.stderr
    with LogFixture(path, config=LogConfig(segment_bytes=50_000)) as fixture:
        last = max(path.glob("t-0/*.log"))
        torn_size = last.stat().st_size
        fixture.open()
        assert torn_size - last.stat().st_size == 1700
        fixture.append(5, size=3000, epoch=3)
        fixture.close()
        return Path(fixture.directory)


_WRITERS: dict[str, Callable[[Path], Path]] = {
    "closed": _write_closed,
    "follower": _write_follower,
    "recovered": _write_recovered,
}


@pytest.fixture(scope="session", params=_WRITERS)
def partition(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition directory that Odradek wrote."""
    return once_per_run(tmp_path_factory, f"partition-{request.param}", _WRITERS[request.param])


# Tests


def test_logs_cover_what_they_should(partition: Path) -> None:
    """Without these the tests below would prove less than they say."""
    files = segment_files(partition)
    assert {path.suffix for path in files} == set(_KINDS)
    assert sum(path.suffix == ".log" for path in files) >= 3
    assert sum(path.stat().st_size // 8 for path in files if path.suffix == ".index") > 20
    assert sum(path.stat().st_size // 34 for path in files if path.suffix == ".txnindex") == 2


def test_indexes_pass_kafkas_sanity_check(kafka: KafkaInstall, partition: Path) -> None:
    lines = dump(kafka, partition, "--index-sanity-check")
    passed = {line.split(" ")[0] for line in lines if line.endswith("passed sanity check.")}
    indexes = [p for p in segment_files(partition) if p.suffix in (".index", ".timeindex")]
    assert passed == {str(path) for path in indexes}


def test_dump_tool_finds_no_error_and_reads_the_values_that_we_read(
    kafka: KafkaInstall, partition: Path
) -> None:
    """01:SEG-12: every record, every index entry against the log; then its lines against ours."""
    theirs = dump(kafka, partition, "--deep-iteration", "--print-data-log")
    assert all(line.endswith("isvalid: true") for line in theirs if line.startswith("baseOffset"))
    ours = [
        line.text
        for path in segment_files(partition)
        for line in dump_file(str(path), disk=Disk(), records=True)
    ]
    assert len(ours) == len(theirs)
    for our_line, their_line in zip(ours, theirs, strict=True):
        if our_line.startswith("Dumping "):
            assert our_line == their_line
            continue
        our_fields, their_fields = _fields(our_line), _fields(their_line)
        shared = our_fields.keys() & their_fields.keys()
        assert len(shared) >= min(len(our_fields), len(their_fields)) - 1, (our_line, their_line)
        for name in shared:
            assert our_fields[name] == their_fields[name], (name, our_line, their_line)


_FIELD = re.compile(r"(\w+): (\[.*?\]|\S+)")


def _fields(line: str) -> dict[str, str]:
    """``name: value`` pairs of a line; the two tools differ in words for "none"."""
    line = line.replace("OptionalLong.empty", "none")
    line = re.sub(r"OptionalLong\[(\d+)\]", r"\1", line)
    return dict(_FIELD.findall(line))


def test_dump_tool_would_find_an_error(kafka: KafkaInstall, tmp_path: Path) -> None:
    """An index entry that is wrong is what `dump` above fails on."""
    partition = _write_closed(tmp_path)
    index = min(path for path in partition.glob("*.index") if path.stat().st_size)
    flip_bit(index, 3 * 8 + 7)
    for path in partition.iterdir():
        if path.stem != index.stem:
            path.unlink()
    with pytest.raises(AssertionError, match="Mismatches in"):
        dump(kafka, partition, "--deep-iteration")


def test_false_alarm_of_the_tool_is_the_tools(kafka: KafkaInstall, scenario: Scenario) -> None:
    """On a partition that this Kafka itself wrote, its tool finds what it finds on ours."""
    assert dump(kafka, scenario.clean / str(KAFKAS), "--deep-iteration")


def test_kafka_leaves_the_witness_of_a_roll_alone(scenario: Scenario) -> None:
    """It loads and serves a partition that has one, and says nothing about it."""
    assert scenario.odradeks_seen == scenario.odradeks_written
    assert (scenario.killed / str(ODRADEKS) / scenario.witness).exists()
    lines = scenario.broker_log.splitlines()
    assert any(str(ODRADEKS) in line and "Completed load of" in line for line in lines)
    assert [
        line
        for line in lines
        if ROLLED_SUFFIX in line
        or (str(ODRADEKS) in line and re.search(r"\b(WARN|ERROR|FATAL)\b", line))
    ] == []


def test_kafka_leaves_the_older_batches_of_producers_alone(scenario: Scenario) -> None:
    """It loads the snapshot beside them, and says nothing about them (10 §8.4)."""
    assert scenario.odradeks_seen == scenario.odradeks_written
    assert list((scenario.killed / str(ODRADEKS)).glob(f"*{RECENT_SUFFIX}"))
    lines = scenario.broker_log.splitlines()
    assert [line for line in lines if RECENT_SUFFIX in line] == []
