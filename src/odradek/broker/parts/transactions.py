"""Transactions on the leaders of a broker: their verification."""

from odradek.broker.parts.base import Base
from odradek.broker.parts.state import State
from odradek.broker.peers.connections import PeerConnections
from odradek.broker.transactions.coordinator_router import CoordinatorRouter
from odradek.broker.transactions.offset_verification import OffsetVerification
from odradek.broker.transactions.verification import TransactionVerification
from odradek.tasks import Tasks

__all__ = ["build_router", "build_verification"]


def build_router(
    base: Base, state: State, peers: PeerConnections, tasks: Tasks
) -> CoordinatorRouter:
    """Builds the way to all coordinators, that of this broker among them."""
    router = CoordinatorRouter(base.settings.node.id, state.cache, peers, tasks)
    router.local = state.transactions
    return router


def build_verification(
    base: Base, state: State, router: CoordinatorRouter, tasks: Tasks
) -> TransactionVerification:
    """Builds the verification of transactions, also for the offsets that they commit to groups."""
    verification = TransactionVerification(
        state.replication.replicas,
        router,
        clock=base.around.clock,
        tasks=tasks,
        metrics=base.metrics,
    )
    state.groups.transaction_gate = OffsetVerification(verification)
    return verification
