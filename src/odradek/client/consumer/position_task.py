"""Keeps a consumer's metadata and positions up to date, in a task of its own.

A round: looks topics up if their metadata is old or a request failed for it; finds positions for
partitions that lack one, and checks those whose leader changed; then fetches. The next round begins
when another part requests it, when a look-up is to be repeated, or when metadata is old.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from odradek.client.client import Client
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.membership_driver import MembershipDriver
from odradek.client.consumer.partition_state import Partitions
from odradek.client.consumer.positions import PositionFinder
from odradek.client.consumer.subscription import SubscriptionState
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.tasks import TaskSet

__all__ = ["PositionTask"]

logger = logging.getLogger(__name__)

# The shortest pause between two rounds; keeps a mistake from becoming a busy loop.
_MIN_PAUSE_MS: Final = 10
# How long one round waits for a topic that the brokers are to create.
_CREATE_MS: Final = 1_000


class PositionTask:
    """See the module's docstring."""

    def __init__(
        self,
        client: Client,
        subscription: SubscriptionState,
        partitions: Partitions,
        fetcher: Fetcher,
        finder: PositionFinder,
        group: MembershipDriver | None,
        *,
        creates_topics: bool,
        on_round: Callable[[], None],
    ) -> None:
        """`on_round` is called after each round."""
        self._client = client
        self._subscription = subscription
        self._partitions = partitions
        self._fetcher = fetcher
        self._finder = finder
        self._group = group
        self._creates_topics = creates_topics
        self._on_round = on_round
        self._event = asyncio.Event()
        self._wants_metadata = True
        self._metadata_at_ms = 0
        # Failures for the application; of the last round only, since each round finds them anew.
        self._failures: deque[Exception] = deque()
        self._tasks = TaskSet()

    def start(self) -> None:
        """Begins, on the running loop."""
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """Ends the task."""
        await self._tasks.stop()

    def request(self) -> None:
        """Begins a round as soon as possible."""
        self._event.set()

    def request_metadata(self) -> None:
        """The same, and looks the metadata up."""
        self._wants_metadata = True
        self._event.set()

    def raise_failure(self) -> None:
        """Raises the next failure of the last round.

        Raises:
            Exception: A partition has no position.
        """
        if self._failures:
            raise self._failures.popleft()

    async def _run(self) -> None:
        pauses_ms = self._client.pauses_ms()
        while True:
            self._event.clear()
            pause_ms: int | None = None
            failures: list[Exception] = []
            try:
                if await self._maybe_refresh():
                    pauses_ms = self._client.pauses_ms()
                else:
                    pause_ms = next(pauses_ms)
                self._finder.mark_changed_leaders()
                failures = await self._finder.update()
                self._wants_metadata |= self._finder.met_trouble
            except Exception as error:  # the task must go on, and the next poll raises it
                if not isinstance(error, ApiError) or not error.code.retriable:
                    logger.exception("Looking up topics and positions failed")
                    failures.append(error)
                else:
                    self._wants_metadata = True
                pause_ms = next(pauses_ms)
            self._failures = deque(failures)
            self._fetcher.send_fetches()
            self._on_round()
            await self._sleep(pause_ms)

    async def _sleep(self, pause_ms: int | None) -> None:
        """Waits until there is something to do, or for the whole pause if one is given."""
        if pause_ms is not None:
            self._wants_metadata = True
            await asyncio.sleep(pause_ms / 1000)
            return
        now_ms = self._client.clock.monotonic_ms()
        due_ms = self._metadata_at_ms
        if (retry_at_ms := self._finder.next_due_ms()) is not None:
            due_ms = min(due_ms, max(retry_at_ms, now_ms + _MIN_PAUSE_MS))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(due_ms - now_ms, 0) / 1000):
                await self._event.wait()

    async def _maybe_refresh(self) -> bool:
        """Looks topics up if they are old or wrong; returns whether all partitions have leaders."""
        client, options = self._client, self._client.options
        if not self._wants_metadata and client.clock.monotonic_ms() < self._metadata_at_ms:
            return True
        topics = {state.tp.topic for state in self._partitions}
        if self._group is not None and self._subscription.is_automatic:
            topics.update(self._group.topics_of_interest())
        self._wants_metadata = False
        deadline = client.deadline(options.request_timeout_ms)
        if self._subscription.pattern is not None:
            await client.topics(None, deadline)
        elif topics:
            await self._create_missing(topics, deadline)
            await client.refresh(sorted(topics), deadline)
        if self._group is not None and self._subscription.is_automatic:
            self._group.check_metadata()
        known = client.cluster.topics
        # A missing topic may be created at any moment.
        is_missing = any(topic not in known for topic in topics)
        age_ms = options.retry_backoff_max_ms if is_missing else options.metadata_max_age_ms
        self._metadata_at_ms = client.clock.monotonic_ms() + max(age_ms, _MIN_PAUSE_MS)
        return all(
            client.cluster.leader(state.tp) is not None
            for state in self._partitions
            if state.tp.topic in known
        )

    async def _create_missing(self, topics: Iterable[str], deadline: Deadline) -> None:
        if not self._creates_topics:
            return
        for topic in sorted(topics):
            if topic in self._client.cluster.topics:
                continue
            try:
                await self._client.topic(topic, create=True, deadline=deadline.within(_CREATE_MS))
            except ApiError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    logger.info("Topic %s: %s", topic, error)
