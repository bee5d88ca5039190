"""Client quotas: how long a client that used too much has to keep still.

| quota    | counted                                   | by                                      |
|----------|-------------------------------------------|-----------------------------------------|
| produce  | bytes of whole requests                   | a sampled rate                          |
| fetch    | bytes of answers                          | a sampled rate                          |
| request  | time of handlers and sending, in % of 1 s | a sampled rate; the wait is at most one |
|          |                                           | sample, so that no client starves       |
| mutation | partitions created or deleted             | a token bucket                          |

Rules:

1. Who is counted together, and against which bound, is told in `odradek.broker.quotas.entities`. A
   changed bound counts from the next request on; what was used stays known.
2. A request is answered at once with the time to wait, the largest of all that apply; afterwards
   its connection is not read for that time. Both are the caller's part.
3. A fetch that would have to wait is answered empty, so its bytes are not counted. One of up to
   `max_fetch_bytes` always passes sooner or later. Fetches of followers are not counted.
4. Produce with acks=0 has no answer: its bytes count, its time does not.
5. Without any quota of its kind a request costs one look at an empty dict, or at
   `limits_traffic`.

How long to wait is told in `odradek.network.rate` and `odradek.broker.quotas.token_bucket`.
Connections are limited in `odradek.network.connection_quotas`.
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

# Clients whose bucket is remembered, per quota; beyond it the memory is cleared.
MAX_RESOLVED_CLIENTS: Final = 10_000

_NS_PER_PERCENT_SECOND: Final = 10_000_000


class _Bounds:
    """The bounds of one quota, and which of them counts for whom."""

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
        bounds: Shared with whoever replaces them.
        usages: What was used.
        max_throttle_ms: No wait is longer; None for no such limit.
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
        """Counts what a client used; returns how long it has to wait, in ms."""
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
        """Takes back what was counted, since it was not used after all."""
        found = self._bounds.resolve(user, client_id)
        usage = self._usages.find(found[0]) if found is not None else None
        if usage is not None:
            usage.rate.record(-amount, now_ms)

    def bound(self, user: str, client_id: str) -> float | None:
        """The bound that counts for a client; None for none."""
        found = self._bounds.resolve(user, client_id)
        return None if found is None else found[1]


class MutationQuota:
    """What one request may change.

    Args:
        usages: What was used.
        bucket: Whose use counts; None if there is no quota.
        bound: Partitions per second.
        seconds: How many seconds' worth may be saved up.
        is_strict: Whether what is too much is refused, as newer versions of a request expect; for
            older ones it is done, and the client waits afterwards.
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
        """Counts a topic's change, also if it is only tried out.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, leave this topic alone.
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
        """How long the client has to wait as of now; to be asked once, for the answer."""
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
        metrics: Where each bucket is shown.
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
        # Whether anybody's bytes or time are limited.
        self.limits_traffic = False
        # For the one look of rule 5.
        self._produce_bounds = self._bounds[QuotaKey.PRODUCE]
        self._fetch_bounds = self._bounds[QuotaKey.FETCH]
        self._request_bounds = self._bounds[QuotaKey.REQUEST]

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes over the quotas of a new image of the cluster."""
        for key, bounds in self._bounds.items():
            bounds.replace(
                {
                    entity: values[key.value]
                    for entity, values in quotas.items()
                    # Anything else was never let in by the API; it would lock clients out.
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
        """Counts an answer of that many bytes, unless the client has to wait: then nothing is
        counted, and nothing must be sent.
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
        """Takes back what was counted for an answer that is sent without its bytes."""
        if self._fetch_bounds.by_entity:
            user, client_id = _client(request)
            self.fetch.unrecord(user, client_id, size, self._clock.monotonic_ms())

    def max_fetch_bytes(self, request: Request) -> int | None:
        """The most a fetch may return so that the quota can ever let it pass; None for any."""
        if not self._fetch_bounds.by_entity:
            return None
        bound = self.fetch.bound(*_client(request))
        if bound is None:
            return None
        settings = self._settings
        return int(bound * max(settings.window_count - 1, 1) * settings.window_size_s)

    def request_throttle_ms(self, request: Request, busy_ns: int) -> int:
        """Counts the time a request kept the loop busy; not for requests between brokers."""
        if not self._request_bounds.by_entity:
            return 0
        user, client_id = _client(request)
        percent_seconds = busy_ns / _NS_PER_PERCENT_SECOND
        return self.request.record_and_get_throttle_ms(
            user, client_id, percent_seconds, self._clock.monotonic_ms()
        )

    def mutation_quota(self, request: Request, *, is_strict: bool) -> MutationQuota:
        """What a request may change; asked for once per request."""
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
        """Forgets the buckets nobody used for an hour; to be called now and then."""
        now_ms = self._clock.monotonic_ms()
        for usages in self._usages.values():
            usages.expire(now_ms)

    def _rate_quota(self, key: QuotaKey, max_throttle_ms: int | None = None) -> RateQuota:
        return RateQuota(self._bounds[key], self._usages[key], max_throttle_ms=max_throttle_ms)


def _client(request: Request) -> tuple[str, str]:
    return request.context.principal.name, request.header.client_id
