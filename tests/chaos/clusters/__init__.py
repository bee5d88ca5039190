"""The clusters that a campaign can run against, behind one interface."""

from tests.chaos.clusters.base import Cluster
from tests.chaos.clusters.kafka import KraftCluster
from tests.chaos.clusters.odradek import OdradekCluster

__all__ = ["Cluster", "KraftCluster", "OdradekCluster"]
