"""Limits of connections, by number and by rate: per address, per listener and per broker.

Rules:

1. Over the limit of its address, a new connection is closed at once.
2. Over the limit of the listener or the broker, the listener stops accepting until one is closed.
3. The inter-broker listener, if it is not the only one, is *protected*: the broker's limit does not
   stop it. It may push the total above the limit; then the other listeners close their least
   recently used connections, one per turn.
4. Over the rate of the listener or the broker (only the former holds for a protected listener),
   the listener pauses for as long as the rate needs to fall to its bound. Over the rate of its
   address a connection waits unread for that long and is then closed, and counts for no rate.

Nothing here waits or touches a socket: the listener asks first and acts on the answer.
"""

from collections.abc import Callable, Mapping
from typing import Final

from odradek.clock import Clock
from odradek.errors import InvariantViolation, OdradekError
from odradek.network.rate import SampledRate

__all__ = ["UNLIMITED", "ConnectionQuotas", "TooManyConnectionsError"]

UNLIMITED: Final = 2**31 - 1

# Rates are kept for this many addresses; the least recently seen is dropped first.
MAX_RATED_ADDRESSES: Final = 10_000


class TooManyConnectionsError(OdradekError):
    """An address has as many connections as it may have."""

    def __init__(self, address: str, limit: int) -> None:
        super().__init__(f"{address} has {limit} connections, which is its limit")
        self.address = address
        self.limit = limit


class _ListenerQuota:
    """Counts and limits of one listener."""

    __slots__ = ("count", "limit", "rate", "rate_limit", "resume")

    def __init__(self, limit: int, rate_limit: int) -> None:
        self.count = 0
        self.limit = limit
        self.rate_limit = rate_limit  # New connections per second.
        self.rate = SampledRate()
        self.resume: Callable[[], None] | None = None  # Set while the listener waits for a slot.


class ConnectionQuotas:
    """The counts of one broker."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_connections: int = UNLIMITED,
        max_per_ip: int = UNLIMITED,
        per_ip_overrides: Mapping[str, int] | None = None,
        max_creation_rate: int = UNLIMITED,
        inter_broker_listener: str | None = None,
    ) -> None:
        self._clock = clock
        self._max_connections = max_connections
        self._max_per_ip = max_per_ip
        self._per_ip_overrides = dict(per_ip_overrides or {})
        self._max_creation_rate = max_creation_rate
        self._inter_broker_listener = inter_broker_listener
        self._rate = SampledRate()
        self._listeners: dict[str, _ListenerQuota] = {}
        self._by_ip: dict[str, int] = {}  # Invariant: no zero counts.
        self._ip_rate_limit = UNLIMITED
        self._ip_rate_overrides: dict[str, int] = {}
        self._ip_rates: dict[str, SampledRate] = {}
        self.total = 0

    def add_listener(
        self, listener: str, *, max_connections: int = UNLIMITED, max_creation_rate: int = UNLIMITED
    ) -> None:
        self._listeners[listener] = _ListenerQuota(max_connections, max_creation_rate)

    def remove_listener(self, listener: str) -> None:
        """Removes a listener, whose connections have been closed and counted down before."""
        del self._listeners[listener]

    def count(self, listener: str) -> int:
        return self._listeners[listener].count

    def count_of_ip(self, address: str) -> int:
        return self._by_ip.get(address, 0)

    def is_protected(self, listener: str) -> bool:
        return listener == self._inter_broker_listener and len(self._listeners) > 1

    def has_slot(self, listener: str) -> bool:
        """Whether the listener may accept one more."""
        quota = self._listeners[listener]
        return quota.count < quota.limit and (
            self.total < self._max_connections or self.is_protected(listener)
        )

    def is_exceeded(self, listener: str) -> bool:
        """Whether the listener has to close a connection because of the broker's limit."""
        return self.total > self._max_connections and not self.is_protected(listener)

    def when_slot_is_free(self, listener: str, resume: Callable[[], None]) -> None:
        """Calls back, once, when the listener may accept again."""
        self._listeners[listener].resume = resume

    def increment(self, listener: str, address: str) -> None:
        """Counts a connection that was accepted.

        Raises:
            TooManyConnectionsError: Its address has too many. The connection is counted
                nevertheless; the caller closes it and counts it down.
        """
        self._listeners[listener].count += 1
        self.total += 1
        previous = self._by_ip.get(address, 0)
        self._by_ip[address] = previous + 1
        limit = self._per_ip_overrides.get(address, self._max_per_ip)
        if previous >= limit:
            raise TooManyConnectionsError(address, limit)

    def decrement(self, listener: str, address: str) -> None:
        """Counts a connection that was closed."""
        count = self._by_ip.get(address)
        if count is None:
            raise InvariantViolation(f"a connection of {address} closed, but none was counted")
        if count == 1:
            del self._by_ip[address]
        else:
            self._by_ip[address] = count - 1
        self._listeners[listener].count -= 1
        self.total -= 1
        self._resume_waiting()

    def ip_throttle_ms(self, address: str) -> int:
        """Records a new connection of an address. Returns after how long to close it; 0: never."""
        limit = self._ip_rate_overrides.get(address, self._ip_rate_limit)
        if limit == UNLIMITED:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._ip_rates.pop(address, None) or SampledRate()
        self._ip_rates[address] = rate
        if len(self._ip_rates) > MAX_RATED_ADDRESSES:
            del self._ip_rates[next(iter(self._ip_rates))]
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def accept_throttle_ms(self, listener: str) -> int:
        """Records a new connection of a listener. Returns how long the listener has to pause."""
        quota = self._listeners[listener]
        throttle_ms = 0
        if quota.rate_limit != UNLIMITED:
            now_ms = self._clock.monotonic_ms()
            quota.rate.record(1, now_ms)
            throttle_ms = quota.rate.throttle_ms(quota.rate_limit, now_ms)
        if self._max_creation_rate != UNLIMITED and not self.is_protected(listener):
            now_ms = self._clock.monotonic_ms()
            self._rate.record(1, now_ms)
            broker_ms = self._rate.throttle_ms(self._max_creation_rate, now_ms)
            throttle_ms = max(throttle_ms, broker_ms)
        return throttle_ms

    def update_limits(
        self,
        *,
        max_connections: int | None = None,
        max_per_ip: int | None = None,
        per_ip_overrides: Mapping[str, int] | None = None,
        max_creation_rate: int | None = None,
    ) -> None:
        """Changes the broker's limits while it runs; limits that are not given stay."""
        if max_connections is not None:
            self._max_connections = max_connections
        if max_per_ip is not None:
            self._max_per_ip = max_per_ip
        if per_ip_overrides is not None:
            self._per_ip_overrides = dict(per_ip_overrides)
        if max_creation_rate is not None:
            self._max_creation_rate = max_creation_rate
        self._resume_waiting()

    def update_listener_limits(
        self,
        listener: str,
        *,
        max_connections: int | None = None,
        max_creation_rate: int | None = None,
    ) -> None:
        """Changes a listener's limits while it runs; limits that are not given stay."""
        quota = self._listeners[listener]
        if max_connections is not None:
            quota.limit = max_connections
        if max_creation_rate is not None:
            quota.rate_limit = max_creation_rate
        self._resume_waiting()

    def update_ip_rates(self, default: int, overrides: Mapping[str, int]) -> None:
        """Changes the connections per second of addresses (connection_creation_rate)."""
        self._ip_rate_limit = default
        self._ip_rate_overrides = dict(overrides)

    def _resume_waiting(self) -> None:
        for listener, quota in self._listeners.items():
            resume = quota.resume
            if resume is not None and self.has_slot(listener):
                quota.resume = None
                resume()
