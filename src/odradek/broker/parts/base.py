"""What every part of a broker is built on."""

from odradek.broker.config import BrokerSettings
from odradek.broker.surroundings import Surroundings
from odradek.lazy_dataclass import dataclass
from odradek.metrics import MetricRegistry

__all__ = ["Base"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What every part of a broker is built on."""

    settings: BrokerSettings  # As they were when the part was built; changes come later.
    around: Surroundings
    metrics: MetricRegistry
