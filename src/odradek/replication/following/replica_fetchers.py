"""All fetchers of a broker: they are made, given partitions, and stopped here.

A partition always belongs to the same fetcher of its leader: the one that `fetcher_id` computes
from its name, so that its records are asked for by one task. A fetcher without partitions is
stopped. Invariant: a partition is in one fetcher at most, and in none while this broker leads it.

A role change takes these steps (`ReplicaManager.apply_local`):

1. `halt`: the partitions leave their fetchers, and work on their logs that is under way ends;
2. roles are taken;
3. `follow`, once the metadata with the leaders' addresses is published: the followers among them
   join a fetcher. A leader that is not alive has no fetcher; `follow_waiting` looks again after
   every publish (05:R23).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from odradek.clock import Clock
from odradek.fetch_states import fetcher_id
from odradek.lazy_dataclass import dataclass
from odradek.metrics import MetricName
from odradek.model import TopicPartition
from odradek.replication.following.fetcher import ReplicaFetcher
from odradek.replication.following.leader_endpoint import LeaderEndpoint
from odradek.replication.following.local_replica import latest_epoch
from odradek.replication.following.local_work import LocalWork
from odradek.replication.following.partition_states import FollowedPartition, ReplicaState
from odradek.replication.following.stats import FetcherStats, register_fetcher_gauges
from odradek.replication.partition import Partition
from odradek.replication.stats import ReplicationStats
from odradek.replication.throttles import ReplicationThrottle
from odradek.storage.log.services import BackgroundTasks
from odradek.tasks import Tasks

__all__ = ["FollowingConfig", "OpenEndpoint", "ReplicaFetchers", "fetcher_name"]

logger = logging.getLogger(__name__)


class OpenEndpoint(Protocol):
    """Makes the endpoint of a leader for one fetcher; connects on first use."""

    def __call__(self, leader_id: int, fetcher: int, /) -> LeaderEndpoint: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingConfig:
    """The settings of fetchers."""

    fetcher_count: int = 1  # num.replica.fetchers, for each leader
    backoff_ms: int = 1_000  # replica.fetch.backoff.ms
    name_prefix: str | None = None


def fetcher_name(fetcher: int, leader_id: int, prefix: str | None = None) -> str:
    """The name of a fetcher, in logs and metrics."""
    name = f"ReplicaFetcherThread-{fetcher}-{leader_id}"
    return name if prefix is None else f"{prefix}:{name}"


class ReplicaFetchers:
    """See the module's docstring.

    Args:
        config: Settings.
        find: The hosted partition, if it is online.
        is_alive: Whether the address of a broker is known and it is alive.
        open_endpoint: Makes endpoints.
        storage_tasks: Runs work on logs that blocks.
        tasks: Runs the fetchers.
        clock: For delays.
        stats: Of the broker's replicas.
        on_moved: Called with a partition whose high watermark moved.
        throttle: Of what is fetched; None: nothing is held back.
    """

    def __init__(
        self,
        config: FollowingConfig,
        *,
        find: Callable[[TopicPartition], Partition | None],
        is_alive: Callable[[int], bool],
        open_endpoint: OpenEndpoint,
        storage_tasks: BackgroundTasks,
        tasks: Tasks,
        clock: Clock,
        stats: ReplicationStats,
        on_moved: Callable[[TopicPartition], None],
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self._config = config
        self._find = find
        self._is_alive = is_alive
        self._open_endpoint = open_endpoint
        self._tasks = tasks
        self._clock = clock
        self._stats = stats
        self._on_moved = on_moved
        self._throttle = throttle
        self._work = LocalWork(storage_tasks)
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        # Partitions whose leader was not alive when they should have been followed.
        self._waiting: dict[TopicPartition, None] = {}
        self._is_stopped = False
        self.failed: set[TopicPartition] = set()
        register_fetcher_gauges(
            stats.registry,
            lags=lambda: (one.lag or 0 for one in self._followed()),
            fetch_rates=lambda: (
                f.stats.requests.rates().one_minute for f in list(self._fetchers.values())
            ),
            failed_count=lambda: len(self.failed),
            dead_count=lambda: sum(
                not f.is_running and not f.is_stopped for f in self._fetchers.values()
            ),
        )
        stats.registry.collect(
            MetricName("kafka.server", "FetcherLagMetrics", "ConsumerLag", ()), self._collect_lags
        )

    def __len__(self) -> int:
        return len(self._fetchers)

    @property
    def fetchers(self) -> Sequence[ReplicaFetcher]:
        """The fetchers that run."""
        return list(self._fetchers.values())

    def fetcher_of(self, tp: TopicPartition) -> ReplicaFetcher | None:
        """The fetcher of a partition; None if no fetcher follows it."""
        for fetcher in self._fetchers.values():
            if tp in fetcher.partitions:
                return fetcher
        return None

    def is_at_work(self, tp: TopicPartition) -> bool:
        """Whether work on the log of a partition is under way."""
        return tp in self._work

    # Role changes

    def halt(self, partitions: Iterable[TopicPartition], then: Callable[[], None]) -> None:
        """Stops following partitions; calls `then` when no work on their logs is under way."""
        partitions = list(partitions)
        for tp in partitions:
            self._waiting.pop(tp, None)
            self.failed.discard(tp)
        for fetcher in self._fetchers.values():
            fetcher.partitions.remove(partitions)
        self._work.when_idle(partitions, then)

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Begins to follow those that are followers here; stops fetchers that have none left."""
        if self._is_stopped:
            return
        woken: dict[tuple[int, int], ReplicaFetcher] = {}
        for tp in partitions:
            partition = self._find(tp)
            if partition is None or partition.is_leader or partition.log is None:
                continue
            leader_id = partition.leader_id
            if leader_id is None or leader_id < 0:
                continue
            if not self._is_alive(leader_id):
                logger.error(
                    "%s: its leader, broker %d, is not alive: followed when it is", tp, leader_id
                )
                self._waiting[tp] = None
                continue
            key = (leader_id, fetcher_id(tp, self._config.fetcher_count))
            fetcher = self._fetchers.get(key) or self._start(key)
            fetcher.partitions.add(_state_of(partition))
            woken[key] = fetcher
        for fetcher in woken.values():
            fetcher.wake()
        self._stop_idle()

    def follow_waiting(self) -> None:
        """Looks again for the leaders that were not alive."""
        if self._waiting:
            waiting = [
                tp
                for tp in self._waiting
                if (partition := self._find(tp)) is None
                or partition.leader_id is None
                or self._is_alive(partition.leader_id)
            ]
            for tp in waiting:
                del self._waiting[tp]
            self.follow(waiting)

    def stop(self, then: Callable[[], None]) -> None:
        """Stops all fetchers; calls `then` when no work on logs is under way."""
        self._is_stopped = True
        partitions = [one.tp for one in self._followed()]
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self.halt(partitions, then)

    # Settings

    def resize(self, fetcher_count: int, hosted: Iterable[TopicPartition]) -> None:
        """Uses another number of fetchers for each leader (num.replica.fetchers)."""
        if fetcher_count == self._config.fetcher_count:
            return
        self._config = FollowingConfig(
            fetcher_count=fetcher_count,
            backoff_ms=self._config.backoff_ms,
            name_prefix=self._config.name_prefix,
        )
        partitions = list(hosted)
        self.halt(partitions, lambda: self.follow(partitions))

    # Fetchers

    def _start(self, key: tuple[int, int]) -> ReplicaFetcher:
        leader_id, number = key
        name = fetcher_name(number, leader_id, self._config.name_prefix)
        fetcher = ReplicaFetcher(
            name,
            self._open_endpoint(leader_id, number),
            find=self._find,
            work=self._work,
            failed=self.failed,
            clock=self._clock,
            tasks=self._tasks,
            backoff_ms=self._config.backoff_ms,
            stats=FetcherStats(self._stats, client_id=name, broker=str(leader_id)),
            on_moved=self._on_moved,
            throttle=self._throttle,
        )
        self._fetchers[key] = fetcher
        self._tasks.spawn(fetcher.run())
        return fetcher

    def _stop_idle(self) -> None:
        for key in [key for key, one in self._fetchers.items() if not len(one.partitions)]:
            fetcher = self._fetchers.pop(key)
            fetcher.stop()
            fetcher.stats.remove()

    # Figures

    def _followed(self) -> Iterator[FollowedPartition]:
        for fetcher in list(self._fetchers.values()):
            yield from list(fetcher.partitions)

    def _collect_lags(self) -> Iterator[tuple[tuple[tuple[str, str], ...], float]]:
        for fetcher in list(self._fetchers.values()):
            for one in list(fetcher.partitions):
                tags = (
                    ("clientId", fetcher.name),
                    ("partition", str(one.tp.partition)),
                    ("topic", one.tp.topic),
                )
                yield tags, float(-1 if one.lag is None else one.lag)


def _state_of(partition: Partition) -> FollowedPartition:
    log = partition.log
    assert log is not None
    return FollowedPartition(
        partition.tp,
        topic_id=partition.topic_id,
        leader_epoch=partition.leader_epoch,
        fetch_offset=log.high_watermark,
        last_fetched_epoch=latest_epoch(log),
        log_start_offset=log.log_start_offset,
        state=ReplicaState.TRUNCATING,
        began_in_sync=partition.began_in_sync,
    )
