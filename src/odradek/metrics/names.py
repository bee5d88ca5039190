"""Metric names: Kafka's, and the Prometheus family and labels of the same metric.

Kafka names a metric by domain, type, name and tags::

    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=orders

Prometheus gets it in the form most dashboards for Kafka expect: domain, type and name in lower case
joined by underscores, the tags as labels, and the suffix of a rate replaced by that of a counter::

    kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}

| kind      | family                                     | samples                              |
|-----------|--------------------------------------------|--------------------------------------|
| meter     | without `PerSec`, with `_total`: a counter | the count; rates are Prometheus' job |
| gauge     | as it is                                   | the value                            |
| histogram | as it is: a summary                        | `quantile="0.5"` …, `_sum`, `_count` |
| timer     | as it is: a summary                        | like a histogram, in milliseconds    |
| buckets   | as it is: a histogram                      | `_bucket{le="0.001"}` …, in seconds  |

Metrics that differ only in their tags form one family; all of them are of one kind.
"""

import re
from enum import Enum
from functools import lru_cache

from odradek.lazy_dataclass import dataclass

__all__ = ["InstrumentKind", "MetricName"]

_PLAIN_JMX_VALUE = re.compile(r"[\w\-%. \t]*", re.ASCII)
_JMX_ESCAPES = str.maketrans(
    {"\\": "\\\\", '"': '\\"', "*": "\\*", "?": "\\?", "\n": "\\n"},
)
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


class InstrumentKind(Enum):
    """Kinds of instruments; the value is the Prometheus type."""

    METER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "summary"
    BUCKETS = "histogram"


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric's full name. Tags keep the order they were given in, as they do in Kafka."""

    domain: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Kafka's name; tag values with special characters are quoted as JMX does."""
        tags = "".join(f",{tag}={_jmx_value(value)}" for tag, value in self.tags)
        return f"{self.domain}:type={self.type},name={self.name}{tags}"

    def family(self, kind: InstrumentKind) -> str:
        """The Prometheus family the metric belongs to."""
        name = self.name
        if kind is InstrumentKind.METER:
            name = name.removesuffix("PerSec") + "_total"
        family = _NOT_IN_A_NAME.sub("_", f"{self.domain}_{self.type}_{name}").lower()
        return f"_{family}" if family[0].isdigit() else family

    def labels(self) -> tuple[tuple[str, str], ...]:
        """The tags, with names Prometheus allows."""
        return tuple((label_name(tag), value) for tag, value in self.tags)


@lru_cache(maxsize=1024)  # Tags are few, and every sample of a page needs the names of its own.
def label_name(tag: str) -> str:
    label = _NOT_IN_A_NAME.sub("_", tag)
    return f"_{label}" if label[:1].isdigit() else label


def _jmx_value(value: str) -> str:
    if _PLAIN_JMX_VALUE.fullmatch(value):
        return value
    return f'"{value.translate(_JMX_ESCAPES)}"'
