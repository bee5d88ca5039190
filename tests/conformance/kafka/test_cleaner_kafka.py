"""Kafka's dump tool finds nothing wrong in compacted segments, and reads what is left of them.

In a compacted log offsets have gaps, which the tool remarks on, as it does on Kafka's own.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.records.compression import Codec
from tests.support.apache_kafka import KafkaInstall
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import (
    abort,
    append_leader,
    commit,
    idempotent,
    pass_time,
    transactional,
)
from tests.support.logs import headers, read_all

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
