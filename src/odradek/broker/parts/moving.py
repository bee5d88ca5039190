"""The moves of replicas between the data directories of a broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from odradek.broker.parts.base import Base
from odradek.broker.parts.state import State
from odradek.model import TopicPartition
from odradek.replication.directory_moves import DirectoryMoves
from odradek.storage.cleaning.throttle import Throttle
from odradek.tasks import Tasks

__all__ = ["moving"]


@asynccontextmanager
async def moving(base: Base, state: State, tasks: Tasks) -> AsyncIterator[DirectoryMoves]:
    """Moves replicas while it lasts; on exit no move works on a log."""
    settings, replicas = base.settings, state.replication.replicas
    background = state.storage.background

    def on_replaced(tp: TopicPartition) -> None:
        replicas.note_moved(tp)
        replicas.checkpoint_high_watermarks(background)

    moves = DirectoryMoves(
        log_manager=state.storage.logs,
        find=lambda tp: replicas.find_online(tp.topic, tp.partition),
        find_or_raise=replicas.find_partition,
        is_at_work=replicas.is_at_work,
        storage_tasks=background,
        tasks=tasks,
        throttle=Throttle(
            base.around.clock, settings.replication.directory_move_max_bytes_per_second
        ),
        moves_at_once=settings.replication.directory_moves or len(settings.log.log_dirs),
        on_replaced=on_replaced,
        on_start_moved=replicas.note_moved,
    )
    replicas.moves = moves
    try:
        yield moves
    finally:
        await moves.stop()
