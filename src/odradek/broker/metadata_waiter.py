"""Requests that wait for something to show in this broker's metadata.

The publisher calls `notify` after each publish; what waits is checked then and at no other time.
The purgatories are Kafka's "topic" and "ElectLeader", each with a single key: administrators'
requests are few, and each may be about many topics.
"""

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from odradek.clock import Clock
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory

__all__ = ["DelayedMetadata", "MetadataWaiter"]

_PUBLISHED: Final = "published"

# What is waited for: topics by name, or partitions.
Thing = TypeVar("Thing")


class DelayedMetadata(DelayedOperation, Generic[Thing]):
    """One parked request.

    Args:
        delay_ms: What is left of the client's time.
        waiting: What it waits for.
        is_seen: Whether the metadata shows one of these things as it is to be.
        respond: Called once, with what was not seen when the wait ended.
    """

    __slots__ = ("_is_seen", "_respond", "_waiting")

    def __init__(
        self,
        delay_ms: int,
        waiting: Iterable[Thing],
        is_seen: Callable[[Thing], bool],
        respond: Callable[[frozenset[Thing]], None],
    ) -> None:
        super().__init__(delay_ms)
        # Shrinks only: what was seen once counts, even if it is gone again before the rest comes.
        self._waiting = list(waiting)
        self._is_seen = is_seen
        self._respond = respond

    def try_complete(self) -> bool:
        self._waiting = [thing for thing in self._waiting if not self._is_seen(thing)]
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        self._respond(frozenset(self._waiting))

    def on_expiration(self) -> None:
        """The answer says it all."""


class MetadataWaiter:
    """Parks requests until the metadata shows what they wait for."""

    __slots__ = ("_clock", "_purgatory")

    def __init__(
        self, purgatory: DelayedOperationPurgatory[DelayedMetadata[object]], clock: Clock
    ) -> None:
        self._purgatory = purgatory
        self._clock = clock

    def notify(self) -> None:
        """Metadata was published: check who waits."""
        self._purgatory.check_and_complete(_PUBLISHED)

    def park(
        self,
        waiting: Iterable[Thing],
        is_seen: Callable[[Thing], bool],
        respond: Callable[[frozenset[Thing]], None],
        *,
        timeout_ms: int,
        started_ms: int,
    ) -> None:
        """Calls `respond` once, now or later, with what is not seen by then.

        Args:
            waiting: What is waited for.
            is_seen: Whether the metadata shows one of these things as it is to be.
            respond: Takes what was not seen in time; nothing, if all was.
            timeout_ms: The client's; without any, nothing is looked at and nothing counts as seen.
            started_ms: Monotonic time from which the timeout counts.
        """
        if timeout_ms <= 0:
            respond(frozenset(waiting))
            return
        left_ms = max(0, timeout_ms - (self._clock.monotonic_ms() - started_ms))
        operation = DelayedMetadata(left_ms, waiting, is_seen, respond)
        # The purgatory does not care what is waited for.
        self._purgatory.try_complete_else_watch(operation, [_PUBLISHED])  # type: ignore[arg-type]
