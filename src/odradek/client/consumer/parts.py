"""The parts of a consumer, made and connected: this module shows which part calls which.

`Fetcher` keeps the buffer filled by itself. `PositionTask` looks up metadata and positions, and
`MembershipDriver` joins and sends heartbeats, in tasks of their own. A consumer without a
`group.id` has no coordinator, no membership and no commits.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence

from odradek.client.assignors import Assignor, find_assignors
from odradek.client.client import Client
from odradek.client.config import ClientConfig
from odradek.client.consumer.config import ConsumerConfig
from odradek.client.consumer.coordinator import Coordinator
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.group_commits import GroupCommits
from odradek.client.consumer.membership_driver import MembershipDriver
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.consumer.partition_state import Partitions
from odradek.client.consumer.position_task import PositionTask
from odradek.client.consumer.positions import PositionFinder
from odradek.client.consumer.record_hooks import ConsumerInterceptor
from odradek.client.consumer.subscription import SubscriptionState
from odradek.client.options import client_options
from odradek.client.surroundings import ClientSurroundings
from odradek.config import Settings

__all__ = ["ConsumerParts"]

CallBack = Callable[..., Awaitable[None]]


class ConsumerParts:
    """See the module's docstring.

    Args:
        settings: Of `CONSUMER_DEFINITION`.
        assignors: Strategies in place of those that `partition.assignment.strategy` names.
        interceptors: Called for commits.
        ssl_context: In place of the `ssl.*` settings.
        surroundings: Time, randomness and connections.
        call_back: Runs a listener or a callback on the thread or loop of the application.

    Raises:
        ConfigError: A setting cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        assignors: Sequence[Assignor],
        interceptors: Sequence[ConsumerInterceptor],
        ssl_context: ssl.SSLContext | None,
        surroundings: ClientSurroundings,
        call_back: CallBack,
    ) -> None:
        self.config = settings.build(ConsumerConfig)
        options = client_options(
            settings.build(ClientConfig), ssl_context=ssl_context, streams=surroundings.streams
        )
        self.client = Client(options, clock=surroundings.clock, rng=surroundings.random)
        strategies = find_assignors(assignors or self.config.partition_assignment_strategy)
        self.subscription = SubscriptionState(exclude_internal=self.config.exclude_internal_topics)
        self.partitions = Partitions()
        self.metrics = ConsumerMetrics(self.client.clock.monotonic_ms)
        # Set when a waiting call should look again.
        self.wake = asyncio.Event()
        self.fetcher = Fetcher(
            self.client,
            self.config,
            self.partitions,
            self.metrics,
            on_arrival=self.wake.set,
            on_trouble=lambda: self.position_task.request_metadata(),
        )
        self.coordinator: Coordinator | None = None
        self.group: MembershipDriver | None = None
        self.commits: GroupCommits | None = None
        if self.config.group_id is not None:
            self.coordinator = Coordinator(self.client, self.config.group_id)
            self._add_group(self.coordinator, strategies, tuple(interceptors), call_back)
        finder = PositionFinder(
            self.client,
            self.partitions,
            self.config.reset_policy,
            self.coordinator,
            isolation=self.config.isolation,
            on_found=self.fetcher.send_fetches,
        )
        self.position_task = PositionTask(
            self.client,
            self.subscription,
            self.partitions,
            self.fetcher,
            finder,
            self.group,
            creates_topics=self.config.allow_auto_create_topics,
            on_round=self.wake.set,
        )

    def _add_group(
        self,
        coordinator: Coordinator,
        strategies: tuple[Assignor, ...],
        interceptors: tuple[ConsumerInterceptor, ...],
        call_back: CallBack,
    ) -> None:
        """Makes the parts that only a consumer with a `group.id` has."""
        self.commits = GroupCommits(
            self.client,
            self.config,
            coordinator,
            self.subscription,
            self.partitions,
            self.metrics,
            interceptors=interceptors,
            invoke=call_back,
            on_change=self.wake.set,
        )
        self.group = MembershipDriver(
            self.client,
            self.config,
            strategies,
            coordinator,
            self.subscription,
            self.partitions,
            self.metrics,
            listen=call_back,
            commit_positions=self.commits.commit_before_loss,
            on_change=self._on_group_change,
        )
        self.commits.group = self.group

    def start(self) -> None:
        """Begins, on the running loop."""
        if self.commits is not None:
            self.commits.start()
        self.position_task.start()

    async def stop(self) -> None:
        """Ends every task and closes the connections."""
        await self.position_task.stop()
        if self.group is not None:
            await self.group.stop()
        await self.fetcher.close()
        self.client.close()

    def _on_group_change(self) -> None:
        self.wake.set()
        self.position_task.request()
