"""Requests that wait until this broker's metadata shows a change.

The publisher calls `notify` after each publish; waiting requests are checked then and only then.
The purgatories are Kafka's "topic" and "ElectLeader", each with a single key: administrators'
requests are few, and each may be about many topics.
"""

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from odradek.clock import Clock
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory

__all__ = ["DelayedMetadata", "MetadataWaiter"]

_PUBLISHED: Final = "published"

# The objects that requests wait for: topics by name, or partitions.
Thing = TypeVar("Thing")


class DelayedMetadata(DelayedOperation, Generic[Thing]):
    """One parked request.

    Args:
        delay_ms: The rest of the client's timeout.
        waiting: The things it waits for.
        is_seen: Whether the metadata shows the change of one of these things.
        respond: Called once, with the things whose change was not seen when the wait ended.
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
        # Only shrinks: a change that was seen once counts, even if it is undone before the others.
        self._waiting = list(waiting)
        self._is_seen = is_seen
        self._respond = respond

    def try_complete(self) -> bool:
        self._waiting = [thing for thing in self._waiting if not self._is_seen(thing)]
        return not self._waiting and self.force_complete()

    def on_complete(self) -> None:
        self._respond(frozenset(self._waiting))

    def on_expiration(self) -> None:
        """Does nothing: `on_complete` answers, and no meter counts it."""


class MetadataWaiter:
    """Parks requests until the metadata shows the changes they wait for."""

    __slots__ = ("_clock", "_purgatory")

    def __init__(
        self, purgatory: DelayedOperationPurgatory[DelayedMetadata[object]], clock: Clock
    ) -> None:
        self._purgatory = purgatory
        self._clock = clock

    def notify(self) -> None:
        """Checks the waiting requests after a publish."""
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
        """Calls `respond` once, now or later, with the things whose change is not seen by then.

        Args:
            waiting: The things the request waits for.
            is_seen: Whether the metadata shows the change of one of these things.
            respond: Gets the things whose change was not seen in time; empty if all were.
            timeout_ms: The client's timeout; if it is 0 or less, nothing is checked or seen.
            started_ms: Monotonic time from which the timeout counts.
        """
        if timeout_ms <= 0:
            respond(frozenset(waiting))
            return
        left_ms = max(0, timeout_ms - (self._clock.monotonic_ms() - started_ms))
        operation = DelayedMetadata(left_ms, waiting, is_seen, respond)
        # The purgatory accepts operations on any kind of thing.
        self._purgatory.try_complete_else_watch(operation, [_PUBLISHED])  # type: ignore[arg-type]
