"""The coordinators of a broker: consumer groups and transactions."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from odradek.broker.config import BrokerSettings
from odradek.broker.internal_partitions import InternalPartitions, led_high_watermark
from odradek.broker.parts.base import Base
from odradek.broker.transactions.marker_routes import MarkerRoutes
from odradek.coordinator.group.commit_batching import WakeUps
from odradek.coordinator.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from odradek.coordinator.stall_clock import StallClock
from odradek.coordinator.transaction.coordinator import (
    TRANSACTIONS_TOPIC,
    NewProducerIds,
    TransactionCoordinator,
)
from odradek.metadata.admin_requests import NewTopic
from odradek.metadata.cache import MetadataCache
from odradek.metadata.features import TRANSACTION_VERSION
from odradek.purgatory import SystemTimer
from odradek.replication import ReplicaManager
from odradek.tasks import Tasks

__all__ = ["build_groups", "build_transactions", "offsets_topic", "transactions_topic"]

logger = logging.getLogger(__name__)

# How long the record of a transaction waits for other replicas. A late one may still be committed,
# so that its request has to be repeated to learn the outcome.
_STATE_TIMEOUT_MS: Final = 60_000


@contextmanager
def build_groups(
    base: Base, replicas: ReplicaManager, cache: MetadataCache, tasks: Tasks, wake_ups: WakeUps
) -> Iterator[GroupCoordinator]:
    """Builds the coordinator of groups, which has none yet; it is stopped on exit."""
    settings, around = base.settings, base.around
    loop = asyncio.get_running_loop()
    config = settings.groups
    deadlines = StallClock(around.clock, loop.call_later)
    timer = SystemTimer("group", loop=loop, clock=deadlines)
    deadlines.is_needed = lambda: timer.size > 0
    timer.drive_with(lambda: timer.advance_clock(0))

    def partition_count() -> int:
        topic = cache.image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            return len(topic.partitions)
        return settings.internal_topics.offsets_partitions

    groups = GroupCoordinator(
        config,
        InternalPartitions(
            OFFSETS_TOPIC,
            replicas,
            timeout_ms=config.commit_timeout_ms,
            required_acks=config.commit_required_acks,
        ),
        partition_count=partition_count,
        has_topic=cache.contains_topic,
        high_watermark=partial(led_high_watermark, replicas),
        clock=around.clock,
        deadlines=deadlines,
        timer=timer,
        tasks=tasks,
        new_id=lambda: str(around.new_uuid()),
        metrics=base.metrics,
        wake_ups=wake_ups,
    )
    try:
        yield groups
    finally:
        groups.stop()


@contextmanager
def build_transactions(
    base: Base,
    replicas: ReplicaManager,
    cache: MetadataCache,
    producer_ids: NewProducerIds,
    routes: MarkerRoutes,
    tasks: Tasks,
) -> Iterator[TransactionCoordinator]:
    """Builds the coordinator of transactions, which has none yet; it is stopped on exit."""
    settings = base.settings

    def partition_count() -> int:
        topic = cache.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is not None:
            return len(topic.partitions)
        return settings.internal_topics.transactions_partitions

    transactions = TransactionCoordinator(
        settings.transactions,
        InternalPartitions(TRANSACTIONS_TOPIC, replicas, timeout_ms=_STATE_TIMEOUT_MS),
        partition_count=partition_count,
        producer_ids=producer_ids,
        transaction_version=lambda: cache.image.features.get(TRANSACTION_VERSION, 0),
        leaders=routes.leader_of,
        send_markers=routes.send,
        write_marker=routes.try_write,
        clock=base.around.clock,
        tasks=tasks,
        metrics=base.metrics,
    )
    try:
        yield transactions
    finally:
        transactions.stop()


def transactions_topic(settings: BrokerSettings, broker_count: int) -> NewTopic:
    """The topic of transactions; its replicas are limited like those of the offsets topic."""
    fitting = settings.fitting_internal_topics(
        broker_count, on_lowered=lambda line: logger.info("%s", line)
    )
    return NewTopic(
        name=TRANSACTIONS_TOPIC,
        partition_count=fitting.transactions_partitions,
        replication_factor=fitting.transactions_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": str(fitting.transactions_segment_bytes),
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(fitting.transactions_min_isr),
        },
    )


def offsets_topic(settings: BrokerSettings, broker_count: int) -> NewTopic:
    """The offsets topic; with as many replicas as brokers at most, unless the operator sets it."""
    fitting = settings.fitting_internal_topics(
        broker_count, on_lowered=lambda line: logger.info("%s", line)
    )
    return NewTopic(
        name=OFFSETS_TOPIC,
        partition_count=fitting.offsets_partitions,
        replication_factor=fitting.offsets_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": str(fitting.offsets_segment_bytes),
            "compression.type": "producer",
        },
    )
