"""The common base of a broker's parts: settings, surroundings, metrics."""

from odradek.broker.config import BrokerSettings
from odradek.broker.surroundings import Surroundings
from odradek.lazy_dataclass import dataclass
from odradek.metrics import MetricRegistry

__all__ = ["Base"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The values from which every part of a broker is built."""

    settings: BrokerSettings  # As of the time when the part is built; changes follow later.
    around: Surroundings
    metrics: MetricRegistry
