"""Records to batches and back, as clients and pipelines do it.

Costs are CPU time, so that a busy machine disturbs them little; each is the median of many short
samples.
"""

import time
from collections.abc import Callable, Iterator

from benchmarks.table import Row, at_least, benchmark
from odradek.records.batch import HEADER_SIZE, iter_headers
from odradek.records.builder import build_batch
from odradek.records.codec import (
    IS_COMPILED,
    NewRecord,
    decode_batch,
    encode_records,
    estimate_record_size,
)
from odradek.records.codec_pure import decode_records_pure, encode_records_pure
from odradek.records.columns import ColumnBuilder
from odradek.records.columns_pure import ColumnSink

_BATCH_COUNT = 10  # As many come in one fetch of some megabytes.
_TIME_MS = 1_700_000_000_000


@benchmark("codec")
def codec() -> Iterator[Row]:
    """The record codec, compiled where it is, and its pure twin."""
    for label, count, size, bars in (
        ("100 B", 10_000, 100, (5.0, 4.0, 20.0)),
        ("1 KB", 1_000, 1_000, (None, None, None)),
    ):
        records: list[NewRecord] = [
            (_TIME_MS + index // 10, b"key-%d" % index, bytes(size), ()) for index in range(count)
        ]
        batch = bytes(build_batch(records))
        if IS_COMPILED:
            yield from _compiled(label, records, batch, bars)
        yield from _pure(label, records[:1_000], bytes(build_batch(records[:1_000])))


def _compiled(
    label: str, records: list[NewRecord], batch: bytes, bars: tuple[float | None, ...]
) -> Iterator[Row]:
    answer = batch * _BATCH_COUNT
    headers = list(iter_headers(answer))
    count = len(records)

    def decode() -> object:
        kept: object = None
        for position, header in headers:
            kept = decode_batch(answer, position=position, header=header, topic="t", partition=0)
        return kept

    def decode_and_keep() -> object:
        return [
            decode_batch(answer, position=position, header=header, topic="t", partition=0)
            for position, header in headers
        ]

    def fill_columns() -> object:
        builder = ColumnBuilder(expected_bytes=len(answer))
        for position, header in headers:
            builder.add_batch(answer, position=position, header=header)
        return builder.finish()

    def estimate() -> object:
        return [estimate_record_size(key, value) for _, key, value, _ in records]

    encode_bar, decode_bar, columns_bar = bars
    yield _rate(f"encode {label} records", lambda: encode_records(records), count, encode_bar)
    yield _rate(f"build a batch of {label} records", lambda: build_batch(records), count)
    yield _rate(f"estimate {label} records, one by one", estimate, count)
    count *= _BATCH_COUNT
    yield _rate(f"decode {label} records into objects", decode, count, decode_bar)
    # Mostly the system's cost of so much new memory.
    yield _rate(f"decode {label} records and keep {count:,}", decode_and_keep, count)
    yield _rate(f"decode {label} records into columns", fill_columns, count, columns_bar)


def _pure(label: str, records: list[NewRecord], batch: bytes) -> Iterator[Row]:
    (_, header), *_ = iter_headers(batch)
    region = batch[HEADER_SIZE:]
    count = len(records)

    def fill_columns() -> object:
        sink = ColumnSink()
        sink.append_records(region, header, 0, 0)
        return sink.finish()

    yield _rate(f"encode {label} records, pure", lambda: encode_records_pure(records), count)
    yield _rate(
        f"decode {label} records into objects, pure",
        lambda: decode_records_pure(region, header, 0, "t", 0, 0),
        count,
    )
    yield _rate(f"decode {label} records into columns, pure", fill_columns, count)


def _rate(name: str, work: Callable[[], object], count: int, bar: float | None = None) -> Row:
    samples = []
    for _ in range(31):
        started = time.process_time_ns()
        work()
        samples.append(count / (time.process_time_ns() - started) * 1e3)
    return at_least(name, samples, "M/s", bar, records=count)
