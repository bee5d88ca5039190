"""The producers of a log that is being opened, as its snapshots and batches record them.

Each call makes a state of its own and leaves the snapshots as they are: which one becomes the
log's is decided when it is known how the log ends.
"""

from odradek.model import TopicPartition
from odradek.storage.log.services import LogServices
from odradek.storage.producers.replay import replay, replay_start
from odradek.storage.producers.snapshot import is_vouched_for
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.segments.segments import LogSegments

__all__ = ["RecordedProducers"]


class RecordedProducers:
    """Makes producer states for one directory and the segments that were opened of it."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        *,
        services: LogServices,
        segments: LogSegments,
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._services = services
        self._segments = segments

    def new_state(self) -> ProducerStateManager:
        """A state without producers."""
        return ProducerStateManager(
            self._topic_partition,
            self._directory,
            disk=self._services.disk,
            expiration_ms=self._services.producer_id_expiration_ms,
            verification_switch=self._services.verification_switch,
        )

    def state_at(self, offset: int, log_start_offset: int) -> ProducerStateManager:
        """The producers as of the start of a segment: a snapshot, and a replay of later batches."""
        state, first = self.new_state(), self._segments.first
        assert first is not None
        now_ms = self._services.clock.now_ms()
        state.reload(log_start_offset, offset, now_ms, oldest=first.base_offset)
        start = replay_start(state, self._segments, log_start_offset)
        if start < offset:
            earlier = [s for s in self._segments.from_offset(start) if s.base_offset < offset]
            replay(state, earlier, start, offset)
        return state

    def recorded_state(self, low: int, recovery_point: int) -> ProducerStateManager | None:
        """The producers by the newest good snapshot above `low` in the synced part; None if none.

        Records below the recovery point are never cut. So the snapshot is valid, even if batches
        that it was made from are damaged; provided that it is of this offset, which only the file
        beside it confirms.
        """
        state = self.new_state()
        state.reload(low, recovery_point, self._services.clock.now_ms())
        offset = state.map_end_offset
        is_ours = offset > low and is_vouched_for(self._services.disk, self._directory, offset)
        return state if is_ours else None
