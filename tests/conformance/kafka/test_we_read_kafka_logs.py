"""A partition directory that a real broker wrote is opened, verified and read by Odradek."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.records.batch import iter_headers
from odradek.records.compression import Codec
from odradek.records.control import parse_end_transaction_marker
from odradek.records.record import Record, read_records
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.dump import dump_file
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.producers.entry import ProducerEntry
from odradek.storage.producers.snapshot import list_snapshots, load_snapshot
from tests.conformance.kafka.broker_scenario import KAFKAS, ODRADEKS, Scenario, open_log
from tests.support.logs import headers, read_all

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@contextmanager
def opened_copy(
    source: Path, target: Path, tp: TopicPartition = KAFKAS, *, crashed: bool = False
) -> Iterator[Log]:
    """A log of a copied data directory, opened as its marker and checkpoints say.

    With `crashed`, everything that is derived from the `.log` files is lost before.
    """
    shutil.copytree(source, target)
    if crashed:
        for path in (*target.glob(".kafka_cleanshutdown"), *target.glob("*-checkpoint")):
            path.unlink()
        for path in (target / str(tp)).iterdir():
            if path.suffix != ".log" and path.name != "partition.metadata":
                path.unlink()
    log_dir = LogDirectory(str(target), disk=Disk())
    log_dir.lock()
    try:
        log = open_log(log_dir, tp)
        log.update_high_watermark(log.log_end_offset)
        try:
            yield log
        finally:
            log.mark_offline("the test is over")
    finally:
        log_dir.unlock()


def data_records(data: bytes) -> list[Record]:
    """Records of all batches that are for applications."""
    return [
        record
        for position, header in iter_headers(data)
        if not header.is_control
        for record in read_records(data, position=position, header=header)
    ]


def committed_records(log: Log) -> list[Record]:
    """What a read_committed client makes of this log's fetch responses."""
    found: list[Record] = []
    offset = log.log_start_offset
    while data := (fetched := log.read(offset, 100_000, FetchIsolation.TXN_COMMITTED)).read():
        assert fetched.aborted_transactions is not None
        aborted = sorted(fetched.aborted_transactions, key=lambda entry: entry.first_offset)
        aborting: set[int] = set()
        for position, header in iter_headers(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting.add(aborted.pop(0).producer_id)
            offset = header.next_offset
            if header.is_control:
                marker = parse_end_transaction_marker(data, position=position)
                if marker is not None and not marker.is_commit:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                found += read_records(data, position=position, header=header)
    return found


def problems(directory: Path) -> list[str]:
    """What `odradek log dump --records` finds wrong in the segment files of a directory."""
    paths = sorted(path for path in directory.iterdir() if path.suffix not in (".metadata", ".tmp"))
    assert any(path.suffix == ".timeindex" for path in paths)
    return [
        line.text
        for path in paths
        for line in dump_file(str(path), disk=Disk(), records=True)
        if line.is_problem
    ]


def comparable(entries: list[ProducerEntry]) -> dict[int, tuple[object, ...]]:
    """What a snapshot keeps of the producers."""
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.current_transaction_first_offset,
            entry.last_timestamp,
            (newest.last_sequence, newest.last_offset, newest.offset_delta)
            if (newest := entry.batches[-1] if entry.batches else None)
            else None,
        )
        for entry in entries
    }


def by_offset(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.offset)


def test_scenario_covers_what_it_should(scenario: Scenario, tmp_path: Path) -> None:
    """Without these the tests below would prove less than they say."""
    with opened_copy(scenario.clean, tmp_path / "data") as log:
        assert len(log.segments) >= 3
        stored = headers(read_all(log))
        assert {header.codec_id for header in stored} == set(Codec)
        # Once for each outcome: two producers, of which each aborts and commits.
        assert sum(header.is_control for header in stored) == 5
        assert len({header.producer_id for header in stored}) == 4
        aborted = log.collect_aborted_transactions(0, log.log_end_offset)
        assert len(aborted) == 2
    written = scenario.written_before_stop
    assert {(record.key is None, record.value is None) for record in written} == {
        (False, False), (False, True), (True, False), (True, True)
    }  # fmt: skip
    assert any(("null", None) in record.headers for record in written)


def test_after_a_clean_stop_every_record_is_read(
    scenario: Scenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01:LOAD-7: Kafka's marker and checkpoint are trusted, and nothing has to be mended."""
    with opened_copy(scenario.clean, tmp_path / "data") as log:
        assert log.recovery_point == log.log_end_offset
        assert data_records(read_all(log)) == by_offset(scenario.written_before_stop)
        assert committed_records(log) == scenario.committed_before_stop
    assert [entry.message for entry in caplog.records if entry.levelname != "INFO"] == []


def test_files_of_a_clean_stop_are_verified(scenario: Scenario) -> None:
    """Every checksum, every index entry against its log, snapshots, checkpoints."""
    assert problems(scenario.clean / str(KAFKAS)) == []


def test_after_a_kill_the_log_is_recovered_and_every_record_is_read(
    scenario: Scenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that Kafka acknowledged is lost, and nothing is cut that was whole."""
    source = tmp_path / "data"
    with opened_copy(scenario.killed, source) as log:
        written = by_offset(scenario.written_before_stop + scenario.written_after_stop)
        assert data_records(read_all(log)) == written
        # A transaction is open: it holds read_committed consumers back.
        assert log.last_stable_offset < log.log_end_offset
        assert committed_records(log) == scenario.committed_before_kill
        log.close()
        assert problems(source / str(KAFKAS)) == []
    assert [entry.message for entry in caplog.records if entry.levelname != "INFO"] == []


def test_producer_state_from_the_log_equals_kafkas_snapshot(
    scenario: Scenario, tmp_path: Path
) -> None:
    """Kafka's snapshot of its clean stop, against the state that replaying all batches gives."""
    directory = str(scenario.clean / str(KAFKAS))
    with opened_copy(scenario.clean, tmp_path / "data", crashed=True) as log:
        newest = list_snapshots(directory)[-1]
        assert newest == log.log_end_offset
        expected = load_snapshot(Disk(), directory, newest)
        assert len(expected) == 4 - 1  # One producer had no id.
        assert comparable(list(log.producer_state.producers.values())) == comparable(expected)


def test_rebuilt_files_equal_kafkas_byte_for_byte(scenario: Scenario, tmp_path: Path) -> None:
    """01:SEG-8, 01:SEG-13: what recovery derives from the batches is what Kafka wrote."""
    source = scenario.clean / str(KAFKAS)
    with opened_copy(scenario.clean, tmp_path / "data", crashed=True) as log:
        log.close()
        compared = 0
        for path in sorted(source.iterdir()):
            if path.suffix in (".log", ".index", ".timeindex", ".txnindex"):
                assert Path(log.directory, path.name).read_bytes() == path.read_bytes(), path
                compared += 1
        assert compared >= 3 * 3 + 1
        epochs = Path(log.directory, "leader-epoch-checkpoint")
        assert epochs.read_bytes() == (source / "leader-epoch-checkpoint").read_bytes()


def test_kafka_trusts_and_serves_a_log_that_we_wrote(scenario: Scenario) -> None:
    """After our orderly stop Kafka loads our partition without recovery, and reads all of it."""
    assert scenario.odradeks_seen == scenario.odradeks_written
    aborted = [record.offset for record in scenario.odradeks_written][-60:-50]
    assert scenario.odradeks_committed == [
        record for record in scenario.odradeks_written if record.offset not in aborted
    ]
    lines = [line for line in scenario.broker_log.splitlines() if str(ODRADEKS) in line]
    assert [line for line in lines if " WARN " in line or " ERROR " in line] == []
    loaded = [line for line in lines if "Completed load of" in line]
    assert len(loaded) == 1
    end = scenario.odradeks_written[-1].offset + 1
    assert f"logEndOffset={end}" in loaded[0]
    assert not any("Recovering unflushed segment" in line for line in lines)


def test_we_read_what_kafka_left_of_our_log(scenario: Scenario, tmp_path: Path) -> None:
    """Odradek, Kafka, kill, Odradek: the log has passed through both and is whole."""
    with opened_copy(scenario.killed, tmp_path / "data", ODRADEKS) as log:
        assert data_records(read_all(log)) == scenario.odradeks_written
        assert committed_records(log) == scenario.odradeks_committed
