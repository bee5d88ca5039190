"""What compaction leaves of a batch, byte for byte; and what operators are shown of it."""

from dataclasses import replace
from pathlib import Path
from random import Random

from odradek.metrics import MetricRegistry
from odradek.metrics.instruments import Gauge
from odradek.metrics.names import MetricName
from odradek.records.batch import parse_header
from odradek.records.builder import build_batch
from odradek.records.key_table import KeyTable
from odradek.storage.cleaning.batch_filter import BatchFilter, LastRecord, Retained
from odradek.storage.cleaning.stats import register_cleaner_gauges
from odradek.storage.cleaning.transactions import CleanedTransactions
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.testing import ManualClock
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.logs import flip_bit

T = 1_700_000_000_000
DAY_MS = 86_400_000


def retain(
    batch: bytearray,
    *,
    last_records: dict[int, LastRecord] | None = None,
    aborted: tuple[AbortedTransaction, ...] = (),
) -> Retained | None:
    """What a pass at T leaves of one batch, whose keys come no second time."""
    batch_filter = BatchFilter(
        KeyTable(10, 0.9, bytes(16)),
        latest_offset=1_000,
        transactions=CleanedTransactions(aborted),
        last_records=last_records or {},
        first_uncleanable_offset=2_000,
        now_ms=T,
        config=replace(COMPACTED, delete_retention_ms=DAY_MS),
    )
    header = parse_header(batch)
    assert header is not None
    return batch_filter.retain(header, memoryview(batch))


def test_the_empty_batch_that_keeps_a_sequence() -> None:
    """10:VEC-13."""
    batch = build_batch(
        [(T, b"a", b"1", ()), (T, b"a", b"2", ())],
        base_offset=100,
        leader_epoch=12,
        producer_id=4000,
        producer_epoch=3,
        base_sequence=7,
        is_transactional=True,
    )
    aborted = (AbortedTransaction(4000, 100, 102, 103),)
    left = retain(batch, last_records={4000: LastRecord(101, 3)}, aborted=aborted)
    assert left is not None
    assert bytes(left.data).hex() == (
        "0000000000000064000000310000000c02407c1a64001000000001ffffffffffffffff"
        "0000018bcfe568000000000000000fa000030000000700000000"
    )
    assert retain(batch, aborted=aborted) is None
    assert retain(batch, last_records={4000: LastRecord(205, 3)}, aborted=aborted) is None


def test_the_delete_horizon_of_a_tombstone() -> None:
    """10:VEC-14: its time is told by a delta from the horizon."""
    batch = build_batch([(T, b"a", None, ())], base_offset=100, leader_epoch=12)
    left = retain(batch)
    assert left is not None
    assert bytes(left.data).hex() == (
        "00000000000000640000003c0000000c02c752ca000040000000000000018bd50bc400"
        "0000018bcfe56800ffffffffffffffffffffffffffff000000011400ffefb2520002610100"
    )
    assert left.max_timestamp == T
    again = retain(bytearray(left.data))
    assert again is not None
    assert again.data == left.data, "it is set once"


def gauge(registry: MetricRegistry, kind: str, name: str, **tags: str) -> float:
    found = registry.get(MetricName("kafka.log", kind, name, tuple(tags.items())))
    assert isinstance(found, Gauge), name
    return found.read()


def test_the_gauges_have_kafkas_names(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        fixture.open()
        registry = MetricRegistry(ManualClock(), Random(1))
        register_cleaner_gauges(fixture.cleaner, [fixture.log_directory], registry)
        fixture.produce((b"a", b"1" * 900), (b"a", b"2" * 10))
        fixture.roll()
        fixture.clean()
        assert 0 < gauge(registry, "LogCleaner", "cleaner-recopy-percent") < 20
        assert gauge(registry, "LogCleaner", "max-buffer-utilization-percent") > 0
        for name in ("max-clean-time-secs", "max-compaction-delay-secs", "DeadThreadCount"):
            assert gauge(registry, "LogCleaner", name) == 0
        assert gauge(registry, "LogCleanerManager", "max-dirty-percent") == 0
        fixture.clock.advance(70)
        assert gauge(registry, "LogCleanerManager", "time-since-last-run-ms") == 70
        directory = fixture.log_directory.path
        count, size = "uncleanable-partitions-count", "uncleanable-bytes"
        assert gauge(registry, "LogCleanerManager", count, logDirectory=directory) == 0
        fixture.produce((b"a", b"3"))
        fixture.roll()
        flip_bit(fixture.path(f"{2:020d}.log"), -4)
        fixture.clean()
        assert gauge(registry, "LogCleanerManager", count, logDirectory=directory) == 1
        assert gauge(registry, "LogCleanerManager", size, logDirectory=directory) > 60
