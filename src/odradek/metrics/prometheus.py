"""The registry as Prometheus text, version 0.0.4.

The text is produced in pieces, so that a server of a large page can run other tasks in between::

    # HELP kafka_server_brokertopicmetrics_bytesin_total Bytes written by clients.
    # TYPE kafka_server_brokertopicmetrics_bytesin_total counter
    kafka_server_brokertopicmetrics_bytesin_total 4096
    kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 4096

`odradek.metrics.names` describes how names are formed.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import assert_never

from odradek.metrics.instruments import QUANTILES, Buckets, Gauge, Histogram, Timer
from odradek.metrics.meter import Meter
from odradek.metrics.names import InstrumentKind, MetricName
from odradek.metrics.registry import Instrument, MetricRegistry

__all__ = ["CONTENT_TYPE", "iter_prometheus", "render_prometheus"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# About a millisecond of rendering each: a summary merges and sorts a thousand values.
SERIES_PER_PIECE = {
    InstrumentKind.METER: 200,
    InstrumentKind.GAUGE: 200,
    InstrumentKind.HISTOGRAM: 4,
    InstrumentKind.BUCKETS: 20,
}

logger = logging.getLogger(__name__)

_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def render_prometheus(registry: MetricRegistry) -> str:
    """The whole page."""
    return "".join(iter_prometheus(registry))


def iter_prometheus(registry: MetricRegistry) -> Iterator[str]:
    """The page in pieces of whole lines; the registry may change between them."""
    for family in registry.families():
        yield (
            f"# HELP {family.name} {family.doc.translate(_HELP_ESCAPES)}\n"
            f"# TYPE {family.name} {family.kind.value}\n"
        )
        series = family.items()
        while piece := tuple(islice(series, SERIES_PER_PIECE[family.kind])):
            yield _render(family.name, piece)


def _render(family: str, series: Sequence[tuple[MetricName, Instrument]]) -> str:
    lines: list[str] = []
    for name, instrument in series:
        try:
            lines.extend(_samples(family, name, instrument))
        except Exception:  # a gauge runs code of any component, logged
            # One gauge that fails must not fail the page.
            logger.exception("Metric %s cannot be read", name)
    return "".join(f"{line}\n" for line in lines)


def _samples(family: str, name: MetricName, instrument: Instrument) -> list[str]:
    labels = name.labels()
    match instrument:
        case Meter():
            return [f"{family}{_braces(labels)} {instrument.count}"]
        case Gauge():
            return [f"{family}{_braces(labels)} {_number(instrument.read())}"]
        case Histogram():
            return _summary(family, labels, instrument)
        case Timer():
            return _summary(family, labels, instrument.durations)
        case Buckets():
            return _histogram(family, labels, instrument)
        case _:
            assert_never(instrument)


def _summary(family: str, labels: tuple[tuple[str, str], ...], histogram: Histogram) -> list[str]:
    snapshot = histogram.snapshot()
    # An empty sample has no quantiles; zero would read as "very fast".
    lines = [
        f"{family}{_braces((*labels, ('quantile', str(quantile))))} "
        f"{_number(snapshot.quantile(quantile) if snapshot.count else math.nan)}"
        for quantile in QUANTILES
    ]
    braces = _braces(labels)
    lines.append(f"{family}_sum{braces} {_number(snapshot.total)}")
    lines.append(f"{family}_count{braces} {snapshot.count}")
    return lines


def _histogram(family: str, labels: tuple[tuple[str, str], ...], buckets: Buckets) -> list[str]:
    count = buckets.count
    lines = [
        f"{family}_bucket{_braces((*labels, ('le', bound)))} {below}"
        for bound, below in (
            *((_number(bound), below) for bound, below in buckets.cumulative()),
            ("+Inf", count),
        )
    ]
    braces = _braces(labels)
    lines.append(f"{family}_sum{braces} {_number(buckets.total_ns / 1e9)}")
    lines.append(f"{family}_count{braces} {count}")
    return lines


def _braces(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return (
        "{"
        + ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels)
        + "}"
    )


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))  # bool is an int and reads as 0 or 1.
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
