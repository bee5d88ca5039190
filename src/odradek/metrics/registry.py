"""The registry: every metric of a process by its name.

A component looks its instruments up once and keeps them; the lookup is too slow for the hot path.

The number of series in a family is bounded, since topics, clients and error names come from
outside. Past the bound new names share one instrument whose tag values are all `OTHER`: sums stay
complete, and memory stays flat. A gauge cannot be shared; past the bound it is left out.

Series that appear and disappear often, such as those of partitions, are not registered one by one:
`collect` registers a function that lists all of them at each reading. A component that counts in a
list of its own, because instruments are too slow for it, transfers its counts in a callback
registered with `before_reading`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from random import Random
from typing import TypeAlias, TypeVar

from odradek.clock import Clock
from odradek.metrics.instruments import Buckets, Gauge, Histogram, Timer
from odradek.metrics.meter import Meter
from odradek.metrics.names import InstrumentKind, MetricName

__all__ = ["OTHER", "Instrument", "MetricGroup", "MetricRegistry"]

logger = logging.getLogger(__name__)

Instrument = Meter | Histogram | Timer | Buckets | Gauge
_Made = TypeVar("_Made", Meter, Histogram, Timer)
# Tags and value of each series that exists now.
Collected: TypeAlias = Iterable[tuple[tuple[tuple[str, str], ...], float]]

# Tag value of the one series that counts for all those beyond the bound.
OTHER = "(other)"

# More than the topics or clients a broker usually has; one full family is half a megabyte of text.
MAX_SERIES_PER_FAMILY = 5_000

_KINDS: dict[type, InstrumentKind] = {
    Meter: InstrumentKind.METER,
    Gauge: InstrumentKind.GAUGE,
    Histogram: InstrumentKind.HISTOGRAM,
    Timer: InstrumentKind.HISTOGRAM,
    Buckets: InstrumentKind.BUCKETS,
}


class Family:
    """Metrics that differ only in their tags."""

    __slots__ = ("doc", "instrument_type", "is_full_logged", "name", "series")

    def __init__(self, name: str, instrument_type: type, doc: str) -> None:
        self.name = name
        self.instrument_type = instrument_type
        self.doc = doc
        self.series: dict[MetricName, Instrument] = {}
        self.is_full_logged = False

    @property
    def kind(self) -> InstrumentKind:
        return _KINDS[self.instrument_type]

    def items(self) -> "Iterator[tuple[MetricName, Instrument]]":
        """The series as of now; the family may change between two steps."""
        return iter(tuple(self.series.items()))


class CollectedFamily(Family):
    """A family whose series are listed by a function at each reading, and not kept."""

    __slots__ = ("_kind", "_max_series", "_name", "_read")

    def __init__(
        self,
        name: MetricName,
        read: Callable[[], Collected],
        doc: str,
        max_series: int,
        kind: InstrumentKind,
    ) -> None:
        super().__init__(name.family(kind), Gauge, doc)
        self._kind = kind
        self._name = name
        self._read = read
        self._max_series = max_series

    @property
    def kind(self) -> InstrumentKind:
        return self._kind

    def items(self) -> "Iterator[tuple[MetricName, Instrument]]":
        domain, type_name, name = self._name.domain, self._name.type, self._name.name
        try:
            for tags, value in islice(self._read(), self._max_series):
                yield MetricName(domain, type_name, name, tags), Gauge(_constant(value))
        except Exception:  # code of any component, logged
            logger.exception("Metric %s cannot be read", self.name)


class MetricRegistry:
    """Holds instruments by name; the same name gives the same instrument.

    Args:
        clock: For rates and for the age of sampled values.
        random: For sampling.
        max_series_per_family: See the module's docstring.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        *,
        max_series_per_family: int = MAX_SERIES_PER_FAMILY,
    ) -> None:
        self._clock = clock
        self._random = random
        self._max_series = max_series_per_family
        self._families: dict[str, Family] = {}
        self._collected: dict[str, CollectedFamily] = {}
        self._before_reading: list[Callable[[], object]] = []
        # Names by (tag, value), so that a deleted topic is found without a walk over all of them.
        self._by_tag: dict[tuple[str, str], dict[MetricName, Family]] = {}

    def __len__(self) -> int:
        return sum(len(family.series) for family in self._families.values())

    def group(self, domain: str, type_name: str, /, **tags: str) -> "MetricGroup":
        """Metrics of one component: ``group("kafka.server", "BrokerTopicMetrics", topic=t)``."""
        return MetricGroup(self, domain, type_name, tuple(tags.items()))

    def meter(self, name: MetricName, doc: str = "") -> Meter:
        return self._get_or_make(name, Meter, lambda: Meter(self._clock), doc)

    def histogram(self, name: MetricName, doc: str = "", *, divisor: float = 1) -> Histogram:
        """The histogram of that name; it shows values divided by `divisor`."""
        return self._get_or_make(
            name, Histogram, lambda: Histogram(self._clock, self._random, divisor), doc
        )

    def timer(self, name: MetricName, doc: str = "") -> Timer:
        return self._get_or_make(name, Timer, lambda: Timer(self._clock, self._random), doc)

    def gauge(self, name: MetricName, read: Callable[[], float], doc: str = "") -> None:
        """Registers a gauge; it replaces an earlier one of that name."""
        family = self._family(name, Gauge, doc)
        if name in family.series or self._has_room(family):
            self._put(family, name, Gauge(read))

    def show_buckets(self, name: MetricName, buckets: Buckets, doc: str = "") -> None:
        """Registers buckets that their owner updates; they replace earlier ones of that name."""
        family = self._family(name, Buckets, doc)
        if name in family.series or self._has_room(family):
            self._put(family, name, buckets)

    def collect(
        self,
        name: MetricName,
        read: Callable[[], Collected],
        doc: str = "",
        *,
        kind: InstrumentKind = InstrumentKind.GAUGE,
    ) -> None:
        """Registers values that differ in their tags; `read` lists them at each reading.

        Args:
            kind: GAUGE, or METER for values that only grow.

        Other tasks run between two items of `read`, so its iteration must survive their changes.
        """
        doc = doc or f"{name.domain}:type={name.type},name={name.name}"
        family = CollectedFamily(name, read, doc, self._max_series, kind)
        self._collected[family.name] = family

    def before_reading(self, callback: Callable[[], object]) -> None:
        """Registers a function to call whenever all metrics are about to be read."""
        self._before_reading.append(callback)

    def get(self, name: MetricName) -> Instrument | None:
        for family in self._families.values():
            if name in family.series:
                return family.series[name]
        return None

    def families(self) -> Iterator[Family]:
        """All families by name. The registry may change between two steps."""
        for callback in self._before_reading:
            callback()
        for name in sorted({*self._families, *self._collected}):
            family = self._families.get(name) or self._collected.get(name)
            if family is not None:
                yield family

    def remove(self, name: MetricName) -> bool:
        """Forgets a metric and returns whether it was registered.

        A component that keeps the instrument measures on, but the value is no longer read.
        """
        for family in tuple(self._families.values()):
            if name in family.series:
                self._drop(family, name)
                return True
        return False

    def remove_where(self, matches: Callable[[MetricName], bool]) -> None:
        """Forgets every metric whose name matches."""
        for family in tuple(self._families.values()):
            for name in tuple(family.series):
                if matches(name):
                    self._drop(family, name)

    def remove_tagged(self, tag: str, value: str) -> int:
        """Forgets every metric with that tag, as for a deleted topic, and returns their number."""
        tagged = tuple(self._by_tag.get((tag, value), {}).items())
        for name, family in tagged:
            self._drop(family, name)
        return len(tagged)

    def _get_or_make(
        self, name: MetricName, instrument_type: type[_Made], make: Callable[[], _Made], doc: str
    ) -> _Made:
        family = self._family(name, instrument_type, doc)
        if name not in family.series and not self._has_room(family):
            name = MetricName(
                name.domain, name.type, name.name, tuple((tag, OTHER) for tag, _ in name.tags)
            )
        known = family.series.get(name)
        if isinstance(known, instrument_type):
            return known
        instrument = make()
        self._put(family, name, instrument)
        return instrument

    def _family(self, name: MetricName, instrument_type: type, doc: str) -> Family:
        family_name = name.family(_KINDS[instrument_type])
        family = self._families.get(family_name)
        if family is None:
            doc = doc or f"{name.domain}:type={name.type},name={name.name}"
            family = self._families[family_name] = Family(family_name, instrument_type, doc)
        if family.instrument_type is not instrument_type:
            raise ValueError(
                f"{name}: {family_name} holds {family.instrument_type.__name__}s already, "
                f"a {instrument_type.__name__} cannot join them"
            )
        return family

    def _has_room(self, family: Family) -> bool:
        if len(family.series) < self._max_series:
            return True
        if not family.is_full_logged:
            family.is_full_logged = True
            logger.warning(
                "Metric %s has %d series; further ones are counted together",
                family.name,
                len(family.series),
            )
        return False

    def _put(self, family: Family, name: MetricName, instrument: Instrument) -> None:
        family.series[name] = instrument
        for tag in name.tags:
            self._by_tag.setdefault(tag, {})[name] = family

    def _drop(self, family: Family, name: MetricName) -> None:
        del family.series[name]
        if not family.series:
            del self._families[family.name]
        for tag in name.tags:
            names = self._by_tag[tag]
            del names[name]
            if not names:
                del self._by_tag[tag]


class MetricGroup:
    """Shorthand for metrics that share domain, type and some tags."""

    __slots__ = ("_domain", "_registry", "_tags", "_type")

    def __init__(
        self,
        registry: MetricRegistry,
        domain: str,
        type_name: str,
        tags: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._registry = registry
        self._domain = domain
        self._type = type_name
        self._tags = tags

    def meter(self, name: str, doc: str = "", /, **tags: str) -> Meter:
        return self._registry.meter(self._name(name, tags), doc)

    def histogram(self, name: str, doc: str = "", /, **tags: str) -> Histogram:
        return self._registry.histogram(self._name(name, tags), doc)

    def times_ms(self, name: str, doc: str = "", /, **tags: str) -> Histogram:
        """A histogram that is given nanoseconds and shows milliseconds."""
        return self._registry.histogram(self._name(name, tags), doc, divisor=1_000_000)

    def timer(self, name: str, doc: str = "", /, **tags: str) -> Timer:
        return self._registry.timer(self._name(name, tags), doc)

    def gauge(self, name: str, read: Callable[[], float], doc: str = "", /, **tags: str) -> None:
        self._registry.gauge(self._name(name, tags), read, doc)

    def remove(self) -> None:
        """Forgets every metric with the group's domain, type and tags, as its owner shuts down."""
        self._registry.remove_where(self._contains)

    def _contains(self, name: MetricName) -> bool:
        return (name.domain, name.type) == (self._domain, self._type) and set(self._tags) <= set(
            name.tags
        )

    def _name(self, name: str, tags: dict[str, str]) -> MetricName:
        return MetricName(self._domain, self._type, name, self._tags + tuple(tags.items()))


def _constant(value: float) -> Callable[[], float]:
    return lambda: value
