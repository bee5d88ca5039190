"""Client quotas: the throttle time of a client that used more than its bound.

| quota    | counted                                   | by                                      |
|----------|-------------------------------------------|-----------------------------------------|
| produce  | bytes of whole requests                   | a sampled rate                          |
| fetch    | bytes of answers                          | a sampled rate                          |
| request  | time of handlers and sending, in % of 1 s | a sampled rate; the wait is at most one |
|          |                                           | sample, so that no client starves       |
| mutation | partitions created or deleted             | a token bucket                          |

Rules:

1. `odradek.broker.quotas.entities` decides which clients share a bucket, and its bound. A changed
   bound applies from the next request on; the use so far is kept.
2. A request is answered at once with the throttle time, the largest of all that apply; afterwards
   its connection is not read for that time. The caller does both.
3. A fetch that is throttled is answered empty, so its bytes are not counted. One of up to
   `max_fetch_bytes` passes sooner or later. Fetches of followers are not counted.
4. Produce with acks=0 has no answer: its bytes count, its time does not.
5. Without any quota of its kind a request costs one test of an empty dict, or of `limits_traffic`.

`odradek.network.rate` and `odradek.broker.quotas.token_bucket` compute throttle times.
`odradek.network.connection_quotas` limits connections.
"""

from collections.abc import Mapping
from typing import Final

from odradek.broker.config.components import QuotaSettings
from odradek.broker.quotas.entities import Bucket, QuotaKey, is_usable_bound, resolve_quota
from odradek.broker.quotas.token_bucket import TokenBucket
from odradek.broker.quotas.usage import Usage, UsageTable
from odradek.clock import Clock
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import QuotaEntity
from odradek.metrics import MetricRegistry
from odradek.network.request import Request

__all__ = ["ClientQuotas", "MutationQuota", "RateQuota"]

# Clients whose bucket is cached, per quota; beyond it the cache is cleared.
MAX_RESOLVED_CLIENTS: Final = 10_000

_NS_PER_PERCENT_SECOND: Final = 10_000_000


class _Bounds:
    """The bounds of one quota, and a cache of the bound of each client."""

    __slots__ = ("_resolved", "by_entity")

    def __init__(self) -> None:
        self.by_entity: Mapping[QuotaEntity, float] = {}
        self._resolved: dict[tuple[str, str], tuple[Bucket, float] | None] = {}

    def replace(self, by_entity: Mapping[QuotaEntity, float]) -> None:
        self.by_entity = by_entity
        self._resolved.clear()

    def resolve(self, user: str, client_id: str) -> tuple[Bucket, float] | None:
        resolved = self._resolved
        client = (user, client_id)
        if client in resolved:
            return resolved[client]
        if len(resolved) >= MAX_RESOLVED_CLIENTS:
            resolved.clear()
        found = resolved[client] = resolve_quota(self.by_entity, user, client_id)
        return found


class RateQuota:
    """One quota on a rate.

    Args:
        bounds: Shared with `ClientQuotas`, which replaces them.
        usages: The use of each bucket.
        max_throttle_ms: The maximum of a throttle time; None for no limit.
    """

    __slots__ = ("_bounds", "_max_throttle_ms", "_usages")

    def __init__(
        self, bounds: _Bounds, usages: UsageTable, *, max_throttle_ms: int | None = None
    ) -> None:
        self._bounds = bounds
        self._usages = usages
        self._max_throttle_ms = max_throttle_ms

    def record_and_get_throttle_ms(
        self, user: str, client_id: str, amount: float, now_ms: int
    ) -> int:
        """Counts the use of a client; returns its throttle time in ms."""
        found = self._bounds.resolve(user, client_id)
        if found is None:
            return 0
        bucket, bound = found
        usage = self._usages.get(bucket, now_ms)
        usage.rate.record(amount, now_ms)
        throttle_ms = usage.rate.throttle_ms(bound, now_ms)
        if self._max_throttle_ms is not None:
            throttle_ms = min(throttle_ms, self._max_throttle_ms)
        self._usages.note_throttle(usage, throttle_ms, now_ms)
        return throttle_ms

    def unrecord(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """Subtracts a counted amount that was not used after all."""
        found = self._bounds.resolve(user, client_id)
        usage = self._usages.find(found[0]) if found is not None else None
        if usage is not None:
            usage.rate.record(-amount, now_ms)

    def bound(self, user: str, client_id: str) -> float | None:
        """The bound of a client; None without one."""
        found = self._bounds.resolve(user, client_id)
        return None if found is None else found[1]


class MutationQuota:
    """The quota on the changes of one request.

    Args:
        usages: The use of each bucket.
        bucket: The client's bucket; None if there is no quota.
        bound: Partitions per second.
        seconds: How many seconds of the bound a bucket holds.
        is_strict: Whether changes over the quota are refused, as newer versions of a request
            expect; for older ones they are made, and the client is throttled afterwards.
    """

    __slots__ = ("_bound", "_bucket", "_clock", "_is_strict", "_must_wait", "_seconds", "_usages")

    def __init__(
        self,
        usages: UsageTable,
        bucket: Bucket | None,
        *,
        bound: float = 0.0,
        seconds: int,
        is_strict: bool,
        clock: Clock,
    ) -> None:
        self._usages = usages
        self._bucket = bucket
        self._bound = bound
        self._seconds = seconds
        self._is_strict = is_strict
        self._clock = clock
        self._must_wait = False

    def take(self, partition_count: int) -> None:
        """Counts a change of a topic, even if it is only validated.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, this topic must not be changed.
        """
        if self._bucket is None:
            return
        now_ms = self._clock.monotonic_ms()
        usage, tokens = self._find(self._bucket, now_ms)
        if self._is_strict and tokens.tokens(self._bound, now_ms) < 0:
            self._must_wait = True
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"more than {self._bound:g} partitions changed per second; try again later",
            )
        tokens.take(partition_count, self._bound, now_ms)
        usage.rate.record(partition_count, now_ms)
        self._must_wait = self._must_wait or not self._is_strict

    def throttle_ms(self) -> int:
        """The throttle time of the client; called once, for the answer."""
        if self._bucket is None or not self._must_wait:
            return 0
        now_ms = self._clock.monotonic_ms()
        usage, tokens = self._find(self._bucket, now_ms)
        throttle_ms = tokens.throttle_ms(self._bound, now_ms)
        self._usages.note_throttle(usage, throttle_ms, now_ms)
        return throttle_ms

    def _find(self, bucket: Bucket, now_ms: int) -> tuple[Usage, TokenBucket]:
        usage = self._usages.get(bucket, now_ms)
        if usage.tokens is None:
            usage.tokens = TokenBucket(seconds=self._seconds, bound=self._bound, now_ms=now_ms)
        return usage, usage.tokens


class ClientQuotas:
    """All client quotas of a broker.

    Args:
        settings: Windows of measuring.
        clock: Only its monotonic time is read.
        metrics: Gets the metrics of each bucket.
    """

    def __init__(self, settings: QuotaSettings, *, clock: Clock, metrics: MetricRegistry) -> None:
        self._settings = settings
        self._clock = clock

        def usages(type_name: str, rate_name: str) -> UsageTable:
            return UsageTable(
                window_count=settings.window_count,
                window_size_s=settings.window_size_s,
                clock=clock,
                metrics=metrics,
                type_name=type_name,
                rate_name=rate_name,
            )

        self._usages = {
            QuotaKey.PRODUCE: usages("Produce", "byte-rate"),
            QuotaKey.FETCH: usages("Fetch", "byte-rate"),
            QuotaKey.REQUEST: usages("Request", "request-time"),
            QuotaKey.CONTROLLER_MUTATION: usages("ControllerMutation", "mutation-rate"),
        }
        self._bounds = {key: _Bounds() for key in self._usages}
        self.produce = self._rate_quota(QuotaKey.PRODUCE)
        self.fetch = self._rate_quota(QuotaKey.FETCH)
        self.request = self._rate_quota(
            QuotaKey.REQUEST, max_throttle_ms=settings.window_size_s * 1000
        )
        # Whether any client's bytes or time are limited.
        self.limits_traffic = False
        # For the one test of rule 5.
        self._produce_bounds = self._bounds[QuotaKey.PRODUCE]
        self._fetch_bounds = self._bounds[QuotaKey.FETCH]
        self._request_bounds = self._bounds[QuotaKey.REQUEST]

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replaces the quotas by those of a new image of the cluster."""
        for key, bounds in self._bounds.items():
            bounds.replace(
                {
                    entity: values[key.value]
                    for entity, values in quotas.items()
                    # The API accepts no other value; it would block clients.
                    if key.value in values and is_usable_bound(values[key.value])
                }
            )
        limits = (self._produce_bounds, self._fetch_bounds, self._request_bounds)
        self.limits_traffic = any(bounds.by_entity for bounds in limits)

    def produce_throttle_ms(self, request: Request, size: int) -> int:
        """Counts a produce request of that many bytes."""
        if not self._produce_bounds.by_entity:
            return 0
        user, client_id = _client(request)
        return self.produce.record_and_get_throttle_ms(
            user, client_id, size, self._clock.monotonic_ms()
        )

    def fetch_throttle_ms(self, request: Request, size: int) -> int:
        """Counts an answer of that many bytes.

        If the client is throttled nothing is counted, and no bytes must be sent.
        """
        if not self._fetch_bounds.by_entity:
            return 0
        user, client_id = _client(request)
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self.fetch.record_and_get_throttle_ms(user, client_id, size, now_ms)
        if throttle_ms > 0:
            self.fetch.unrecord(user, client_id, size, now_ms)
        return throttle_ms

    def uncount_fetch(self, request: Request, size: int) -> None:
        """Subtracts the counted bytes of an answer that is sent without them."""
        if self._fetch_bounds.by_entity:
            user, client_id = _client(request)
            self.fetch.unrecord(user, client_id, size, self._clock.monotonic_ms())

    def max_fetch_bytes(self, request: Request) -> int | None:
        """The largest fetch that the quota can ever permit; None without a quota."""
        if not self._fetch_bounds.by_entity:
            return None
        bound = self.fetch.bound(*_client(request))
        if bound is None:
            return None
        settings = self._settings
        return int(bound * max(settings.window_count - 1, 1) * settings.window_size_s)

    def request_throttle_ms(self, request: Request, busy_ns: int) -> int:
        """Counts the time a request occupied the loop; not for requests between brokers."""
        if not self._request_bounds.by_entity:
            return 0
        user, client_id = _client(request)
        percent_seconds = busy_ns / _NS_PER_PERCENT_SECOND
        return self.request.record_and_get_throttle_ms(
            user, client_id, percent_seconds, self._clock.monotonic_ms()
        )

    def mutation_quota(self, request: Request, *, is_strict: bool) -> MutationQuota:
        """The quota on a request's changes; called once per request."""
        bounds = self._bounds[QuotaKey.CONTROLLER_MUTATION]
        found = bounds.resolve(*_client(request)) if bounds.by_entity else None
        bucket, bound = found if found is not None else (None, 0.0)
        settings = self._settings
        return MutationQuota(
            self._usages[QuotaKey.CONTROLLER_MUTATION],
            bucket,
            bound=bound,
            seconds=settings.controller_window_count * settings.controller_window_size_s,
            is_strict=is_strict,
            clock=self._clock,
        )

    def expire(self) -> None:
        """Drops the buckets that were not used for an hour; called periodically."""
        now_ms = self._clock.monotonic_ms()
        for usages in self._usages.values():
            usages.expire(now_ms)

    def _rate_quota(self, key: QuotaKey, max_throttle_ms: int | None = None) -> RateQuota:
        return RateQuota(self._bounds[key], self._usages[key], max_throttle_ms=max_throttle_ms)


def _client(request: Request) -> tuple[str, str]:
    return request.context.principal.name, request.header.client_id
