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
"""

from typing import Final, NamedTuple

from odradek.errors import ErrorCode
from odradek.metrics import Histogram, Meter, MetricRegistry
from odradek.network.request import UNSET, Request
from odradek.protocol.api_keys import ApiKey

__all__ = ["RequestMetrics", "RequestTimes", "api_name"]

_NS_PER_MS: Final = 1_000_000
_CONVERTING_APIS: Final = ("Produce", "Fetch", "FetchConsumer", "FetchFollower")


def api_name(api_key: ApiKey) -> str:
    """Kafka's name of a request type: LEADER_AND_ISR is LeaderAndIsr."""
    return api_key.name.title().replace("_", "")


class RequestTimes(NamedTuple):
    """The parts of a request's time, in milliseconds."""

    request_queue_ms: float
    local_ms: float
    remote_ms: float
    throttle_ms: float
    response_queue_ms: float
    response_send_ms: float
    total_ms: float

    @classmethod
    def of(cls, request: Request, end_ns: int) -> "RequestTimes":
        start = request.start_ns
        complete = request.response_complete_ns
        dequeue = request.dequeue_ns if request.dequeue_ns != UNSET else start
        local = request.api_local_complete_ns
        if local == UNSET:
            local = complete
        remote = request.api_remote_complete_ns
        if remote == UNSET:
            remote = complete
        response_dequeue = request.response_dequeue_ns
        if response_dequeue == UNSET:
            response_dequeue = complete
        return cls(
            _ms(dequeue - start),
            _ms(local - dequeue),
            _ms(remote - local),
            _ms(complete - remote),
            _ms(response_dequeue - complete),
            _ms(end_ns - response_dequeue),
            _ms(end_ns - start),
        )


def _ms(duration_ns: int) -> float:
    return duration_ns / _NS_PER_MS if duration_ns > 0 else 0.0


class _ApiMetrics:
    """The instruments of one request name."""

    __slots__ = ("_conversions", "_request_bytes", "_temporary_memory", "_times")

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
        self._times = tuple(group.histogram(time_name) for time_name in self._TIME_NAMES)
        self._request_bytes = group.histogram("RequestBytes")
        self._conversions: Histogram | None = None
        self._temporary_memory: Histogram | None = None
        if name in _CONVERTING_APIS:
            self._conversions = group.histogram("MessageConversionsTimeMs")
            self._temporary_memory = group.histogram("TemporaryMemoryBytes")

    def update(self, request: Request, times: RequestTimes) -> None:
        for histogram, value in zip(self._times, times, strict=True):
            histogram.update(value)
        self._request_bytes.update(len(request.payload) - request.body_offset)
        if self._conversions is not None and self._temporary_memory is not None:
            self._conversions.update(request.message_conversions_ns / _NS_PER_MS)
            self._temporary_memory.update(request.temporary_memory_bytes)


class RequestMetrics:
    """Counts finished requests; instruments are made when an API is first used."""

    def __init__(self, registry: MetricRegistry) -> None:
        self._registry = registry
        self._by_name: dict[str, _ApiMetrics] = {}
        self._by_version: dict[tuple[int, int], tuple[Meter, _ApiMetrics]] = {}
        self._errors: dict[tuple[int, int], Meter] = {}

    def request_done(self, request: Request, end_ns: int) -> None:
        """Count a request that was answered, or will never be, at `end_ns`."""
        header = request.header
        found = self._by_version.get((header.api_key, header.api_version))
        if found is None:
            found = self._add_version(header.api_key, header.api_version)
        found[0].count += 1
        times = RequestTimes.of(request, end_ns)
        found[1].update(request, times)
        if request.metrics_name is not None:
            self._of_name(request.metrics_name).update(request, times)

    def count_errors(self, api_key: ApiKey, code: ErrorCode, count: int = 1) -> None:
        """Count error codes of a response, NONE too."""
        meter = self._errors.get((api_key, code))
        if meter is None:
            group = self._registry.group(
                "kafka.network", "RequestMetrics", request=api_name(api_key)
            )
            meter = self._errors[api_key, code] = group.meter("ErrorsPerSec", error=code.name)
        meter.count += count

    def _add_version(self, api_key: ApiKey, version: int) -> tuple[Meter, _ApiMetrics]:
        name = api_name(api_key)
        group = self._registry.group("kafka.network", "RequestMetrics", request=name)
        found = group.meter("RequestsPerSec", version=str(version)), self._of_name(name)
        # An ApiVersions request may carry any version: 65536 of them are not worth remembering.
        if len(self._by_version) < MAX_VERSIONS:
            self._by_version[int(api_key), version] = found
        return found

    def _of_name(self, name: str) -> _ApiMetrics:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = _ApiMetrics(self._registry, name)
        return found


# Twice of all versions of all APIs.
MAX_VERSIONS: Final = 2_000
