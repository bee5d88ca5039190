"""Assigns partitions to members: the strategies that the leader of a consumer group runs. Pure.

A strategy is an `Assignor`; the four that come with Kafka are here, under Kafka's names. `wire` has
the bytes that members and the leader exchange through the coordinator, which does not read them.
"""

from odradek.client.assignors.choice import BUILT_IN, find_assignors, is_cooperative
from odradek.client.assignors.interface import Assignor, Subscription, TopicPartitions
from odradek.client.assignors.ranges import RangeAssignor
from odradek.client.assignors.round_robin import RoundRobinAssignor
from odradek.client.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from odradek.client.assignors.wire import (
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)

__all__ = [
    "BUILT_IN",
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "TopicPartitions",
    "encode_assignment",
    "encode_subscription",
    "find_assignors",
    "is_cooperative",
    "parse_assignment",
    "parse_subscription",
]
