"""The clusters that a campaign can run against, behind one interface."""

from tests.chaos.clusters.base import Cluster, rack_of
from tests.chaos.clusters.kafka import KraftBroker, KraftCluster
from tests.chaos.clusters.odradek import OdradekBroker, OdradekCluster

__all__ = [
    "Cluster",
    "KraftBroker",
    "KraftCluster",
    "OdradekBroker",
    "OdradekCluster",
    "rack_of",
]
