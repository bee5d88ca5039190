"""Times of requests, by API, under Kafka's names.

========================  =================================================
RequestQueueTimeMs        start → dequeue: waiting for a handler
LocalTimeMs               dequeue → local complete: the handler
RemoteTimeMs              local → remote complete: other brokers, purgatory
ThrottleTimeMs            remote complete → response complete
ResponseQueueTimeMs       response complete → response dequeue
ResponseSendTimeMs        response dequeue → handed to the kernel
TotalTimeMs               start → handed to the kernel
========================  =================================================

A stamp that was never set counts as response complete, a negative time as 0; the parts then add up
to the total.

Counting is on the path of every request, and ten histograms each cost microseconds. So a finished
request only leaves its stamps in a list; the list is folded into the histograms when it is long, or
a second after its first entry, or before the histograms are read. A request that waited for
nothing, as most, leaves three numbers: all its other times are 0. One that was parked once, and had
no slot, throttle or conversion, leaves five.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.errors import ErrorCode
from odradek.metrics import Histogram, Meter, MetricRegistry
from odradek.network.request import ONE_SUCCESS, Request
from odradek.protocol.api_keys import API_SUPPORT, ApiKey

__all__ = ["RequestMetrics", "RequestTimes", "api_name"]

_NS_PER_MS: Final = 1_000_000
_CONVERTING_APIS: Final = ("Produce", "Fetch", "FetchConsumer", "FetchFollower")


def api_name(api_key: ApiKey) -> str:
    """Kafka's name of a request type: LEADER_AND_ISR is LeaderAndIsr."""
    return api_key.name.title().replace("_", "")


# A finished request. Stations in nanoseconds, -1 where it did not pass: start, dequeue, local
# complete, remote complete, response complete, response dequeue, end; then the bytes of its body,
# nanoseconds spent on conversions, bytes of temporary memory. Plain, since each request makes one.
Stamps: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]


# A finished request that waited for nothing: nanoseconds in the handler, nanoseconds until it was
# handed to the kernel, bytes of its body.
Brief: TypeAlias = tuple[int, int, int]

# A finished request that was parked once: nanoseconds in the handler, parked, until its connection
# took the answer up, and until that was handed to the kernel; bytes of its body.
Parked: TypeAlias = tuple[int, int, int, int, int]


class RequestTimes(NamedTuple):
    """The parts of many requests' times, in milliseconds: one column per histogram."""

    request_queue_ms: list[float]
    local_ms: list[float]
    remote_ms: list[float]
    throttle_ms: list[float]
    response_queue_ms: list[float]
    response_send_ms: list[float]
    total_ms: list[float]

    @classmethod
    def of(cls, pending: Sequence[Stamps]) -> "RequestTimes":
        start, dequeue, local, remote, complete, response_dequeue, end, *_ = zip(
            *pending, strict=True
        )
        dequeue = _or_else(dequeue, start)
        local = _or_else(local, complete)
        remote = _or_else(remote, complete)
        response_dequeue = _or_else(response_dequeue, complete)
        return cls(
            _elapsed_ms(start, dequeue),
            _elapsed_ms(dequeue, local),
            _elapsed_ms(local, remote),
            _elapsed_ms(remote, complete),
            _elapsed_ms(complete, response_dequeue),
            _elapsed_ms(response_dequeue, end),
            _elapsed_ms(start, end),
        )


def _or_else(stamps: tuple[int, ...], otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """The stamps, where they were set."""
    if min(stamps) >= 0:
        return stamps
    return tuple(
        stamp if stamp >= 0 else other for stamp, other in zip(stamps, otherwise, strict=True)
    )


def _elapsed_ms(begun: tuple[int, ...], ended: tuple[int, ...]) -> list[float]:
    if begun == ended:  # As most: a request that nothing was waited for has three times, not seven.
        return [0.0] * len(begun)
    return [
        (end - begin) / _NS_PER_MS if end > begin else 0.0
        for begin, end in zip(begun, ended, strict=True)
    ]


class _ApiMetrics:
    """The instruments of one request name, and the stamps not folded into them yet."""

    __slots__ = (
        "_conversions",
        "_request_bytes",
        "_temporary_memory",
        "_times",
        "parked",
        "pending",
    )

    _TIME_NAMES = (
        "RequestQueueTimeMs",
        "LocalTimeMs",
        "RemoteTimeMs",
        "ThrottleTimeMs",
        "ResponseQueueTimeMs",
        "ResponseSendTimeMs",
        "TotalTimeMs",
    )

    def __init__(self, registry: MetricRegistry, name: str) -> None:
        group = registry.group("kafka.network", "RequestMetrics", request=name)
        self.pending: list[Stamps] = []
        self.parked: list[Parked] = []
        self._times = tuple(group.histogram(time_name) for time_name in self._TIME_NAMES)
        self._request_bytes = group.histogram("RequestBytes")
        self._conversions: Histogram | None = None
        self._temporary_memory: Histogram | None = None
        if name in _CONVERTING_APIS:
            self._conversions = group.histogram("MessageConversionsTimeMs")
            self._temporary_memory = group.histogram("TemporaryMemoryBytes")

    def fold(self) -> None:
        pending, self.pending = self.pending, []
        for histogram, values in zip(self._times, RequestTimes.of(pending), strict=True):
            histogram.update_all(values)
        self._request_bytes.update_all([stamps[7] for stamps in pending])
        if self._conversions is not None and self._temporary_memory is not None:
            self._conversions.update_all([stamps[8] / _NS_PER_MS for stamps in pending])
            self._temporary_memory.update_all([stamps[9] for stamps in pending])

    def fold_brief(self, pending: list[Brief]) -> None:
        """Counts requests that waited for nothing."""
        local, sending, size = zip(*pending, strict=True)
        local_ms, send_ms = _in_ms(local), _in_ms(sending)
        nothing = [0.0] * len(pending)
        queue_time, local_time, remote, throttle, response_queue, response_send, total = self._times
        for histogram in (queue_time, remote, throttle, response_queue):
            histogram.update_all(nothing)
        local_time.update_all(local_ms)
        response_send.update_all(send_ms)
        total.update_all([a + b for a, b in zip(local_ms, send_ms, strict=True)])
        self._request_bytes.update_all(size)
        self._had_no_conversions(len(size))

    def fold_parked(self) -> None:
        """Counts requests that were parked once."""
        parked, self.parked = self.parked, []
        local, remote, queued, sending, size = zip(*parked, strict=True)
        parts = (_in_ms(local), _in_ms(remote), _in_ms(queued), _in_ms(sending))
        nothing = [0.0] * len(parked)
        queue_time, local_time, remote_time, throttle, response_queue, response_send, total = (
            self._times
        )
        queue_time.update_all(nothing)
        throttle.update_all(nothing)
        for histogram, values in zip(
            (local_time, remote_time, response_queue, response_send), parts, strict=True
        ):
            histogram.update_all(values)
        total.update_all([a + b + c + d for a, b, c, d in zip(*parts, strict=True)])
        self._request_bytes.update_all(size)
        self._had_no_conversions(len(size))

    def _had_no_conversions(self, count: int) -> None:
        if self._conversions is not None and self._temporary_memory is not None:
            self._conversions.update_all([0.0] * count)
            self._temporary_memory.update_all([0] * count)


def _in_ms(times_ns: tuple[int, ...]) -> list[float]:
    return [ns / _NS_PER_MS if ns > 0 else 0.0 for ns in times_ns]


class _VersionMetrics:
    """The counts of one version of an API."""

    __slots__ = ("api", "api_key", "brief", "meter", "success_count")

    def __init__(self, api_key: ApiKey, meter: Meter, api: _ApiMetrics) -> None:
        self.api_key = api_key
        self.meter = meter
        self.api = api
        self.brief: list[Brief] = []  # Waited for nothing, and is not counted yet.
        self.success_count = 0  # Of these and their one error code, NONE.


class RequestMetrics:
    """Counts finished requests; instruments are made when an API is first used.

    Args:
        fold_later: Asked, once per list, to call `fold` within about a second.
    """

    def __init__(self, registry: MetricRegistry, fold_later: Callable[[], object]) -> None:
        self._registry = registry
        self._fold_later = fold_later
        self._is_fold_due = False
        self._by_name: dict[str, _ApiMetrics] = {}
        self._by_version: dict[tuple[int, int], _VersionMetrics] = {}
        self._errors: dict[tuple[int, int], Meter] = {}
        registry.before_reading(self._fold_all)

    def request_done(self, request: Request, end_ns: int) -> None:
        """Counts a request that was answered, or will never be, at `end_ns`."""
        header = request.header
        version = self._by_version.get((header.api_key, header.api_version))
        if version is None:
            version = self._add_version(header.api_key, header.api_version)
        if not self._is_fold_due:
            self._is_fold_due = True
            self._fold_later()
        if request.is_answered_at_once and request.metrics_name is None:
            complete_ns = request.response_complete_ns
            brief = version.brief
            brief.append(
                (
                    complete_ns - request.start_ns,
                    end_ns - complete_ns,
                    len(request.payload) - request.body_offset,
                )
            )
            if request.errors is ONE_SUCCESS:
                version.success_count += 1
            elif request.errors is not None:
                self._count_all_errors(request)
            if len(brief) >= _MAX_PENDING:
                self._fold_brief(version)
            return
        version.meter.count += 1
        api = version.api
        if (
            request.response_dequeue_ns >= 0
            and request.dequeue_ns == request.start_ns
            and request.api_remote_complete_ns < 0
            and not (request.message_conversions_ns or request.temporary_memory_bytes)
        ):
            self._parked_request_done(request, api, end_ns)
            return
        stamps = (
            request.start_ns,
            request.dequeue_ns,
            request.api_local_complete_ns,
            request.api_remote_complete_ns,
            request.response_complete_ns,
            request.response_dequeue_ns,
            end_ns,
            len(request.payload) - request.body_offset,
            request.message_conversions_ns,
            request.temporary_memory_bytes,
        )
        api.pending.append(stamps)
        if len(api.pending) >= _MAX_PENDING:
            api.fold()
        self._count_all_errors(request)
        if request.metrics_name is not None:
            other = self._of_name(request.metrics_name)
            other.pending.append(stamps)
            if len(other.pending) >= _MAX_PENDING:
                other.fold()

    def _parked_request_done(self, request: Request, api: _ApiMetrics, end_ns: int) -> None:
        local_ns, complete_ns = request.api_local_complete_ns, request.response_complete_ns
        dequeued_ns = request.response_dequeue_ns
        parked = (
            local_ns - request.start_ns,
            complete_ns - local_ns,
            dequeued_ns - complete_ns,
            end_ns - dequeued_ns,
            len(request.payload) - request.body_offset,
        )
        api.parked.append(parked)
        if len(api.parked) >= _MAX_PENDING:
            api.fold_parked()
        if request.errors is not None:
            self._count_all_errors(request)
        if request.metrics_name is not None:
            other = self._of_name(request.metrics_name)
            other.parked.append(parked)
            if len(other.parked) >= _MAX_PENDING:
                other.fold_parked()

    def _count_all_errors(self, request: Request) -> None:
        if request.errors is not None:
            for code, count in request.errors.items():
                self.count_errors(request.header.api_key, code, count)

    def fold(self) -> None:
        """Brings the histograms up to date, as was asked for."""
        self._is_fold_due = False
        self._fold_all()

    def _fold_all(self) -> None:
        for version in self._by_version.values():
            if version.brief:
                self._fold_brief(version)
        for api in self._by_name.values():
            if api.pending:
                api.fold()
            if api.parked:
                api.fold_parked()

    def _fold_brief(self, version: _VersionMetrics) -> None:
        brief, version.brief = version.brief, []
        version.meter.count += len(brief)
        version.api.fold_brief(brief)
        count, version.success_count = version.success_count, 0
        if count:
            self.count_errors(version.api_key, ErrorCode.NONE, count)

    def count_errors(self, api_key: ApiKey, code: ErrorCode, count: int = 1) -> None:
        """Counts error codes of a response, NONE too."""
        meter = self._errors.get((api_key, code))
        if meter is None:
            group = self._registry.group(
                "kafka.network", "RequestMetrics", request=api_name(api_key)
            )
            meter = self._errors[api_key, code] = group.meter("ErrorsPerSec", error=code.name)
        meter.count += count

    def _add_version(self, api_key: ApiKey, version: int) -> _VersionMetrics:
        label = str(version)
        if version not in API_SUPPORT[api_key].parsed:
            # An ApiVersions request may carry any of 65536: they are counted as one.
            version, label = _UNKNOWN_VERSION, "unknown"
        found = self._by_version.get((api_key, version))
        if found is None:
            name = api_name(api_key)
            group = self._registry.group("kafka.network", "RequestMetrics", request=name)
            meter = group.meter("RequestsPerSec", version=label)
            found = _VersionMetrics(api_key, meter, self._of_name(name))
            self._by_version[int(api_key), version] = found
        return found

    def _of_name(self, name: str) -> _ApiMetrics:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = _ApiMetrics(self._registry, name)
        return found


# Folded at this length at the latest.
_MAX_PENDING: Final = 256
# Replaces every version that is not served; not on the wire, where versions below 0 are refused.
_UNKNOWN_VERSION: Final = -1
