"""The parts that work with other brokers, and the context of the handlers that use them all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from odradek.broker.config import BrokerSettings
from odradek.broker.context import BrokerContext
from odradek.broker.parts.base import Base
from odradek.broker.parts.following import Following, following
from odradek.broker.parts.metadata import build_controller
from odradek.broker.parts.moving import moving
from odradek.broker.parts.network import Network, build_context
from odradek.broker.parts.peers import build_link, build_peers, build_services
from odradek.broker.parts.replication import build_isr_updates
from odradek.broker.parts.state import State
from odradek.broker.parts.transactions import build_router, build_verification
from odradek.broker.peers.controller_link import ControllerLink
from odradek.broker.settings.settings_changes import SettingsChanges
from odradek.controller import Controller
from odradek.lazy_dataclass import dataclass
from odradek.metadata.ports import MetadataEngine
from odradek.replication.directory_moves import DirectoryMoves
from odradek.replication.isr_updates import IsrUpdates
from odradek.tasks import Tasks

__all__ = ["ClusterParts", "cluster_parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterParts:
    """What a broker does with others: it follows them, controls them, and asks their controller."""

    controller: Controller
    link: ControllerLink
    isr_updates: IsrUpdates
    context: BrokerContext
    _followed: Following
    _moves: DirectoryMoves

    def follow_settings(
        self, changes: SettingsChanges, network: Network, built_with: BrokerSettings
    ) -> None:
        """Applies changed settings from now on, and what has changed since the parts were built."""

        def apply(before: BrokerSettings, after: BrokerSettings) -> None:
            network.apply(before, after)
            self._followed.apply(after)
            throttle = self._moves.throttle
            throttle.bytes_per_second = after.replication.directory_move_max_bytes_per_second

        changes.on_broker_settings = apply
        apply(built_with, changes.current)


@asynccontextmanager
async def cluster_parts(
    base: Base, engine: MetadataEngine, state: State, tasks: Tasks
) -> AsyncIterator[ClusterParts]:
    """Builds the parts; on exit no fetcher and no move runs, and peers are disconnected."""
    replicas, waiter, port = state.replication.replicas, state.replication.waiter, engine.port
    isr_updates = build_isr_updates(base, replicas, port, tasks)
    with build_peers(base, state) as peers:
        state.marker_routes.use_peers(peers)
        async with (
            following(base, state, peers, port, tasks) as followed,
            moving(base, state, tasks) as moves,
        ):
            controller = build_controller(base, engine, state, peers)
            controller.on_deletion_step = waiter.notify
            services = build_services(controller, port)
            link = build_link(base, state, controller, services, peers, port, tasks)
            router = build_router(base, state, peers, tasks)
            verification = build_verification(base, state, router, tasks)
            context = build_context(
                base, engine, state, controller, services, link, verification, tasks
            )
            yield ClusterParts(
                controller=controller,
                link=link,
                isr_updates=isr_updates,
                context=context,
                _followed=followed,
                _moves=moves,
            )
