"""The publisher of metadata: applies the deltas of a feed to this broker, one after the other.

Steps of a publish; later steps see the results of earlier ones:

1. the next image is made (an older controller's delta is refused here);
2. changed configs, quotas, access rules and credentials take effect (`on_settings`): a log that is
   made in the next step must have the configs of its topic;
3. replicas take their roles, with brokers and topic configs of the *next* image; blocking work runs
   on storage threads, for several partitions at once;
4. coordinators of internal partitions follow (`on_roles`);
5. the request-side cache shows the image, and requests that wait for metadata are checked;
6. state of deleted topics is removed (`on_deleted`).

No other task of the loop runs within steps 4 to 6. Between and within the earlier ones requests are
served from the previous image, and a partition whose role is changing answers
NOT_LEADER_OR_FOLLOWER. So a client that finds a topic in Metadata finds its partitions serving.

Duties of the driver (`run`): one item of the feed at a time, in the feed's order; each is completed
or failed before the next one is taken. A delta whose publish has begun is published to its end,
even if its feeder has given up. `stop` waits for the delta under way, so that no log changes
afterwards, and closes the feed.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from odradek.errors import ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import (
    ClusterDelta,
    ImageDelta,
    LocalDelta,
    StoppedPartition,
    apply_delta,
)
from odradek.metadata.image import ClusterImage
from odradek.metadata.ports import FeedItem, MetadataFeed
from odradek.model import TopicPartition
from odradek.replication import ReplicaManager

__all__ = ["Publisher"]

Results: TypeAlias = Mapping[TopicPartition, ErrorCode]

# Steps of new settings before other tasks of the loop run; each takes a few microseconds.
_STEPS_PER_TURN: Final = 100


class Publisher:
    """Applies deltas to the parts of one broker.

    Args:
        cache: The source of answers to clients.
        replicas: Takes roles.
        on_settings: Called with a delta that changes settings and the image it made; returns small
            steps that apply them.
        on_roles: Called with the part of a delta that was obeyed: a role that was refused must not
            move a coordinator, either.
        on_published: Called after each publish.
        on_deleted: Called with the topics that a publish removed.
    """

    def __init__(
        self,
        cache: MetadataCache,
        replicas: ReplicaManager,
        *,
        on_settings: Callable[[ClusterDelta, ClusterImage], Iterable[object]],
        on_roles: Callable[[LocalDelta], None],
        on_published: Callable[[], None],
        on_deleted: Callable[[frozenset[str]], None] = lambda _topics: None,
    ) -> None:
        self._cache = cache
        self._replicas = replicas
        self._on_settings = on_settings
        self._on_roles = on_roles
        self._on_published = on_published
        self._on_deleted = on_deleted
        self._driver: asyncio.Task[object] | None = None
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_stopped = asyncio.Event()
        # Set once the first delta is published, which has all settings.
        self.has_settings = asyncio.Event()
        # Newer than that of the cache while a delta is being published.
        self.image = cache.image

    async def run(self, feed: MetadataFeed) -> None:
        """Publishes the feed's deltas, until `stop` is called or the task cancelled."""
        if self._is_stopped.is_set():
            return
        self._driver = asyncio.current_task()
        async with contextlib.aclosing(feed.items()) as items:
            async for item in items:
                self._is_idle.clear()
                try:
                    await self._serve(item)
                finally:
                    self._is_idle.set()
                self.has_settings.set()
                if self._is_stopped.is_set():
                    return

    async def stop(self) -> None:
        """Returns when the delta under way is published and the feed closed."""
        self._is_stopped.set()
        await self._is_idle.wait()
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.wait([self._driver])

    async def _serve(self, item: FeedItem) -> None:
        try:
            results = await self.publish(item.delta)
        except Exception as error:  # noqa: BLE001 - it belongs to the feeder of this delta
            item.fail(error)
        else:
            item.complete(results)

    async def publish(self, delta: ImageDelta) -> Results:
        """Publishes one delta; returns the result of each partition of its local part.

        Raises:
            ApiError: STALE_CONTROLLER_EPOCH; nothing has changed.
        """
        applied = apply_delta(self.image, delta)
        self.image = applied.image
        if delta.cluster is not None and _changes_settings(delta.cluster):
            await self._take_steps(self._on_settings(delta.cluster, applied.image))
        results: Results = {}
        if delta.local is not None:
            results = await self._take_roles(delta.local)
            self._on_roles(_obeyed(delta.local, results))
        self._cache.publish(applied, delta.cluster or ClusterDelta(), -1)
        self._on_published()
        if applied.deleted:
            topics = frozenset(tp.topic for tp in applied.deleted)
            self._on_deleted(frozenset(t for t in topics if t not in applied.image.topics))
        return results

    async def _take_steps(self, steps: Iterable[object]) -> None:
        for number, _ in enumerate(steps, 1):
            if number % _STEPS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _take_roles(self, delta: LocalDelta) -> Results:
        taken: asyncio.Future[Results] = asyncio.get_running_loop().create_future()

        def done(results: Results, error: Exception | None) -> None:
            if taken.done():
                return
            if error is None:
                taken.set_result(results)
            else:
                taken.set_exception(error)

        self._replicas.apply_local(delta, done)
        return await taken


def _obeyed(delta: LocalDelta, results: Results) -> LocalDelta:
    """The roles that were taken, and the stops that were not fenced.

    A replica that could not be deleted has been stopped nevertheless. A replica on a failed disk
    takes no role, but that of its earlier epoch is over: it counts as stopped (KAFKA-9307).
    """
    lost = (
        StoppedPartition(tp=h.state.tp, leader_epoch=h.state.leader_epoch, deletes_log=False)
        for h in delta.hosted
        if results[h.state.tp] is ErrorCode.KAFKA_STORAGE_ERROR
    )
    return replace(
        delta,
        hosted=tuple(h for h in delta.hosted if results[h.state.tp] is ErrorCode.NONE),
        stopped=(
            *(s for s in delta.stopped if results[s.tp] is not ErrorCode.FENCED_LEADER_EPOCH),
            *lost,
        ),
    )


def _changes_settings(delta: ClusterDelta) -> bool:
    return bool(
        delta.configs or delta.quotas or delta.acls_added or delta.acls_removed or delta.scram
    )
