"""A replica manager on temporary directories, with time and followers in the test's hands.

with ReplicaFixture(tmp_path) as fixture:
    fixture.lead(tp("t"), replicas=(1, 2))
    fixture.produce({tp("t"): batch(3)})
    fixture.fetch_as(2, tp("t"), 3)
    assert fixture.high_watermark(tp("t")) == 3
"""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from odradek.errors import ErrorCode
from odradek.files import Disk
from odradek.metadata.delta import HostedPartition, LocalDelta, StoppedPartition
from odradek.metadata.image import PartitionState
from odradek.metrics import Meter, MetricName, MetricRegistry
from odradek.model import AppendOrigin, TopicPartition
from odradek.purgatory import DelayedOperationPurgatory, ManualTimer
from odradek.records.batch import Buffer
from odradek.replication import (
    DelayedFetch,
    DeleteRecordsResult,
    FetchParams,
    FetchPartition,
    FetchResult,
    FetchResults,
    Partition,
    ProduceResult,
    Purgatories,
    ReplicaManager,
    ReplicaManagerConfig,
    ReplicationStats,
)
from odradek.replication.isr import IsrChange
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.testing import ManualClock
from tests.support.logs import UnsyncedDisk, make_services

__all__ = [
    "BROKER_ID",
    "MAX_LAG_MS",
    "ReplicaFixture",
    "apply_local",
    "hosted",
    "state_of",
    "stopped",
    "tp",
]

BROKER_ID = 1
MAX_LAG_MS = 10_000


def tp(topic: str = "t", partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def state_of(
    partition: TopicPartition,
    *,
    leader: int = BROKER_ID,
    leader_epoch: int = 0,
    replicas: tuple[int, ...] = (BROKER_ID,),
    isr: tuple[int, ...] | None = None,
    **fields: Any,
) -> PartitionState:
    return PartitionState(
        topic=partition.topic,
        partition=partition.partition,
        leader=leader,
        leader_epoch=leader_epoch,
        replicas=replicas,
        isr=replicas if isr is None else isr,
        **fields,
    )


def hosted(
    state: PartitionState, *, topic_id: uuid.UUID | None = None, is_new: bool = True
) -> HostedPartition:
    return HostedPartition(state=state, topic_id=topic_id, is_new=is_new)


def stopped(
    partition: TopicPartition, *, leader_epoch: int = -1, deletes_log: bool = True
) -> StoppedPartition:
    return StoppedPartition(tp=partition, leader_epoch=leader_epoch, deletes_log=deletes_log)


def apply_local(replicas: ReplicaManager, delta: LocalDelta) -> dict[TopicPartition, ErrorCode]:
    """Takes roles where background work is done at once."""
    ended: list[dict[TopicPartition, ErrorCode]] = []

    def done(results: dict[TopicPartition, ErrorCode], error: Exception | None) -> None:
        if error is not None:
            raise error
        ended.append(results)

    replicas.apply_local(delta, done)
    [results] = ended
    return results


class ReplicaFixture:
    """One broker's replicas; `restart` begins a new life on the same directories."""

    def __init__(
        self,
        root: Path,
        *,
        directories: Sequence[str] = ("data",),
        disk: Disk | None = None,
        config: LogConfig | None = None,
        broker_id: int = BROKER_ID,
    ) -> None:
        self.broker_id = broker_id
        self.paths = [str(root / name) for name in directories]
        self.disk = disk or UnsyncedDisk()
        self.clock = ManualClock()
        self.log_config = config
        self.min_insync_replicas = 1
        self.alive: set[int] = set(range(1, 10))
        self.known: set[TopicPartition] = set()
        self.proposed: list[tuple[Partition, IsrChange]] = []
        self._start()

    def _start(self) -> None:
        self.registry = MetricRegistry(self.clock, Random(1))
        self.stats = ReplicationStats(self.registry)
        self.timers = [ManualTimer(name) for name in ("Produce", "Fetch", "DeleteRecords")]
        self.purgatories = Purgatories(
            DelayedOperationPurgatory("Produce", self.timers[0]),
            DelayedOperationPurgatory("Fetch", self.timers[1], purge_interval=1),
            DelayedOperationPurgatory("DeleteRecords", self.timers[2]),
        )
        self.services = make_services(self.disk, self.clock)
        self.log_manager = LogManager(
            self.paths,
            services=self.services,
            default_log_config=self.log_config,
            on_directory_failed=lambda d: self.replicas.handle_directory_failure(d),
        )
        self.log_manager.startup()
        self.replicas = ReplicaManager(
            ReplicaManagerConfig(broker_id=self.broker_id, max_lag_ms=MAX_LAG_MS),
            log_manager=self.log_manager,
            purgatories=self.purgatories,
            clock=self.clock,
            stats=self.stats,
            min_insync_replicas=lambda _topic: self.min_insync_replicas,
        )
        self.replicas.use_metadata(
            lambda partition: partition in self.known,
            lambda broker_id: broker_id in self.alive,
        )
        self.replicas.use_isr_updates(lambda p, change: self.proposed.append((p, change)))

    def restart(self) -> None:
        """Stops in order and starts again; nobody has a role then."""
        self.log_manager.shutdown()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.log_manager.shutdown()

    # Roles

    def apply(
        self, *changes: HostedPartition | StoppedPartition
    ) -> dict[TopicPartition, ErrorCode]:
        return apply_local(
            self.replicas,
            LocalDelta(
                controller_id=9,
                controller_epoch=1,
                hosted=tuple(c for c in changes if isinstance(c, HostedPartition)),
                stopped=tuple(c for c in changes if isinstance(c, StoppedPartition)),
            ),
        )

    def isr_shrinks(self) -> list[tuple[Partition, IsrChange]]:
        """The changes that the periodic check proposes now."""
        return [found for found in self.replicas.propose_isr_shrinks() if found is not None]

    def lead(self, partition: TopicPartition, **fields: Any) -> Partition:
        assert self.apply(hosted(state_of(partition, **fields)))[partition] is ErrorCode.NONE
        return self.replicas.find_partition(partition)

    def partition(self, partition: TopicPartition) -> Partition:
        return self.replicas.find_partition(partition)

    def log(self, partition: TopicPartition) -> Log:
        log = self.replicas.find_partition(partition).log
        assert log is not None
        return log

    def high_watermark(self, partition: TopicPartition) -> int:
        return self.log(partition).high_watermark

    # Requests

    def produce(
        self,
        entries: Mapping[TopicPartition, Buffer],
        *,
        acks: int = -1,
        timeout_ms: int = 1000,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        internal_topics_allowed: bool = False,
    ) -> list[Mapping[TopicPartition, ProduceResult]]:
        """The answers: none while it is parked, later one."""
        answers: list[Mapping[TopicPartition, ProduceResult]] = []
        self.replicas.appends.append_records(
            timeout_ms=timeout_ms,
            required_acks=acks,
            internal_topics_allowed=internal_topics_allowed,
            origin=origin,
            entries=entries,
            respond=answers.append,
        )
        return answers

    def fetch(
        self,
        *wanted: FetchPartition,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        parked: list[DelayedFetch] | None = None,
        **fields: Any,
    ) -> list[FetchResults]:
        """The answers: none while it is parked, later one."""
        answers: list[FetchResults] = []
        self.replicas.reads.fetch(
            FetchParams(
                max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, **fields
            ),
            wanted,
            answers.append,
            on_parked=None if parked is None else parked.append,
        )
        return answers

    def fetch_as(
        self,
        broker_id: int,
        partition: TopicPartition,
        offset: int,
        *,
        epoch: int | None = None,
        broker_epoch: int = -1,
    ) -> FetchResult:
        """A follower's fetch, answered at once."""
        leader_epoch = self.partition(partition).leader_epoch if epoch is None else epoch
        wanted = FetchPartition(partition, None, offset, 1 << 20, leader_epoch, 0)
        [[(_, result)]] = self.fetch(
            wanted, max_wait_ms=0, replica_id=broker_id, replica_epoch=broker_epoch
        )
        return result

    def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int = 1000
    ) -> list[Mapping[TopicPartition, DeleteRecordsResult]]:
        answers: list[Mapping[TopicPartition, DeleteRecordsResult]] = []
        self.replicas.look_ups.delete_records(
            timeout_ms=timeout_ms, offsets=offsets, respond=answers.append
        )
        return answers

    # Time and figures

    def pass_time(self, ms: int) -> None:
        """Lets time pass for clocks and timers."""
        self.clock.advance(ms)
        for purgatory in self.purgatories:
            purgatory.advance_clock(ms)

    def count(
        self, name: str, topic: str | None = None, type_name: str = "BrokerTopicMetrics"
    ) -> int:
        """What a meter has counted; -1 if there is none."""
        tags = () if topic is None else (("topic", topic),)
        meter = self.registry.get(MetricName("kafka.server", type_name, name, tags))
        return meter.count if isinstance(meter, Meter) else -1
