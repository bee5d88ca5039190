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
request only leaves its times in lists; the lists are folded into the histograms when they are long,
or a second after their first entry, or before the histograms are read. A request that waited for
nothing, as most, leaves three numbers: all its other times are 0. One that was parked once, and had
no slot, throttle or conversion, leaves five. Of any other request all stamps are kept.
"""

from collections.abc import Callable, Sequence
from operator import add
from typing import Final, NamedTuple, TypeAlias

from odradek.errors import ErrorCode
from odradek.metrics import Histogram, Meter, MetricRegistry
from odradek.network.request import ONE_SUCCESS, Request
from odradek.protocol.api_keys import API_SUPPORT, ApiKey

__all__ = ["RequestMetrics", "RequestTimes", "api_name"]

_CONVERTING_APIS: Final = ("Produce", "Fetch", "FetchConsumer", "FetchFollower")


def api_name(api_key: ApiKey) -> str:
    """Kafka's name of a request type: LEADER_AND_ISR is LeaderAndIsr."""
    return api_key.name.title().replace("_", "")


# A finished request. Stations in nanoseconds, -1 where it did not pass: start, dequeue, local
# complete, remote complete, response complete, response dequeue, end; then the bytes of its body,
# nanoseconds spent on conversions, bytes of temporary memory. Plain, since each request makes one.
Stamps: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]


class RequestTimes(NamedTuple):
    """The parts of many requests' times, in nanoseconds: one column per histogram."""

    request_queue_ns: list[int]
    local_ns: list[int]
    remote_ns: list[int]
    throttle_ns: list[int]
    response_queue_ns: list[int]
    response_send_ns: list[int]
    total_ns: list[int]

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
            _elapsed_ns(start, dequeue),
            _elapsed_ns(dequeue, local),
            _elapsed_ns(local, remote),
            _elapsed_ns(remote, complete),
            _elapsed_ns(complete, response_dequeue),
            _elapsed_ns(response_dequeue, end),
            _elapsed_ns(start, end),
        )


def _or_else(stamps: tuple[int, ...], otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """The stamps, where they were set."""
    if min(stamps) >= 0:
        return stamps
    return tuple(
        stamp if stamp >= 0 else other for stamp, other in zip(stamps, otherwise, strict=True)
    )


def _elapsed_ns(begun: tuple[int, ...], ended: tuple[int, ...]) -> list[int]:
    return [max(end - begin, 0) for begin, end in zip(begun, ended, strict=True)]


class _ApiMetrics:
    """The instruments of one request name, and what is not folded into them yet.

    Args:
        parent: Whose requests these are, too: they are counted under both names.
    """

    __slots__ = (
        "_conversions",
        "_parent",
        "_request_bytes",
        "_temporary_memory",
        "_times",
        "local_ns",
        "pending",
        "queued_ns",
        "remote_ns",
        "sending_ns",
        "size",
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

    def __init__(
        self, registry: MetricRegistry, name: str, parent: "_ApiMetrics | None" = None
    ) -> None:
        group = registry.group("kafka.network", "RequestMetrics", request=name)
        self.pending: list[Stamps] = []
        # Of requests that were parked once: nanoseconds in the handler, parked, until the
        # connection took the answer up, and until that was handed to the kernel; bytes of the body.
        self.local_ns: list[int] = []
        self.remote_ns: list[int] = []
        self.queued_ns: list[int] = []
        self.sending_ns: list[int] = []
        self.size: list[int] = []
        self._parent = parent
        self._times = tuple(group.times_ms(time_name) for time_name in self._TIME_NAMES)
        self._request_bytes = group.histogram("RequestBytes")
        self._conversions: Histogram | None = None
        self._temporary_memory: Histogram | None = None
        if name in _CONVERTING_APIS:
            self._conversions = group.times_ms("MessageConversionsTimeMs")
            self._temporary_memory = group.histogram("TemporaryMemoryBytes")

    def fold(self) -> None:
        """Counts requests of which all stamps are kept."""
        pending, self.pending = self.pending, []
        if self._parent is not None:
            self._parent.count(pending)
        self.count(pending)

    def count(self, pending: Sequence[Stamps]) -> None:
        """Counts requests by their stamps."""
        for histogram, values in zip(self._times, RequestTimes.of(pending), strict=True):
            histogram.update_all(values)
        self._request_bytes.update_all([stamps[7] for stamps in pending])
        if self._conversions is not None and self._temporary_memory is not None:
            self._conversions.update_all([stamps[8] for stamps in pending])
            self._temporary_memory.update_all([stamps[9] for stamps in pending])

    def count_brief(self, local_ns: list[int], sending_ns: list[int], size: list[int]) -> None:
        """Counts requests that waited for nothing."""
        nothing = len(size)
        queue_time, local_time, remote, throttle, response_queue, response_send, total = self._times
        queue_time.add_zeros(nothing)
        local_time.update_all(local_ns)
        remote.add_zeros(nothing)
        throttle.add_zeros(nothing)
        response_queue.add_zeros(nothing)
        response_send.update_all(sending_ns)
        total.update_all(list(map(add, local_ns, sending_ns)))
        self._request_bytes.update_all(size)
        self._had_no_conversions(nothing)

    def fold_parked(self) -> None:
        """Counts requests that were parked once."""
        local_ns, self.local_ns = self.local_ns, []
        remote_ns, self.remote_ns = self.remote_ns, []
        queued_ns, self.queued_ns = self.queued_ns, []
        sending_ns, self.sending_ns = self.sending_ns, []
        size, self.size = self.size, []
        total_ns = list(map(add, map(add, local_ns, remote_ns), map(add, queued_ns, sending_ns)))
        if self._parent is not None:
            self._parent.count_parked(local_ns, remote_ns, queued_ns, sending_ns, total_ns, size)
        self.count_parked(local_ns, remote_ns, queued_ns, sending_ns, total_ns, size)

    def count_parked(
        self,
        local_ns: list[int],
        remote_ns: list[int],
        queued_ns: list[int],
        sending_ns: list[int],
        total_ns: list[int],
        size: list[int],
    ) -> None:
        """Counts requests that were parked once, by the parts of their times."""
        queue_time, local_time, remote, throttle, response_queue, response_send, total = self._times
        queue_time.add_zeros(len(size))
        local_time.update_all(local_ns)
        remote.update_all(remote_ns)
        throttle.add_zeros(len(size))
        response_queue.update_all(queued_ns)
        response_send.update_all(sending_ns)
        total.update_all(total_ns)
        self._request_bytes.update_all(size)
        self._had_no_conversions(len(size))

    def _had_no_conversions(self, count: int) -> None:
        if self._conversions is not None and self._temporary_memory is not None:
            self._conversions.add_zeros(count)
            self._temporary_memory.add_zeros(count)


class _VersionMetrics:
    """The counts of one version of an API."""

    __slots__ = ("api", "api_key", "local_ns", "meter", "sending_ns", "size", "success_count")

    def __init__(self, api_key: ApiKey, meter: Meter, api: _ApiMetrics) -> None:
        self.api_key = api_key
        self.meter = meter
        self.api = api
        # Of requests that waited for nothing, and are not counted yet: nanoseconds in the handler,
        # nanoseconds until the answer was handed to the kernel, bytes of the body.
        self.local_ns: list[int] = []
        self.sending_ns: list[int] = []
        self.size: list[int] = []
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
            version.local_ns.append(complete_ns - request.start_ns)
            version.sending_ns.append(end_ns - complete_ns)
            sizes = version.size
            sizes.append(len(request.payload) - request.body_offset)
            if request.errors is ONE_SUCCESS:
                version.success_count += 1
            elif request.errors is not None:
                self._count_all_errors(request)
            if len(sizes) >= _MAX_PENDING:
                self._fold_brief(version)
            return
        version.meter.count += 1
        if request.errors is not None:
            self._count_all_errors(request)
        api = version.api
        if request.metrics_name is not None:
            api = self._of_name(request.metrics_name, api)
        if (
            request.response_dequeue_ns >= 0
            and request.dequeue_ns == request.start_ns
            and request.api_remote_complete_ns < 0
            and not (request.message_conversions_ns or request.temporary_memory_bytes)
        ):
            local_ns, complete_ns = request.api_local_complete_ns, request.response_complete_ns
            dequeued_ns = request.response_dequeue_ns
            api.local_ns.append(local_ns - request.start_ns)
            api.remote_ns.append(complete_ns - local_ns if complete_ns > local_ns else 0)
            api.queued_ns.append(dequeued_ns - complete_ns)
            api.sending_ns.append(end_ns - dequeued_ns)
            sizes = api.size
            sizes.append(len(request.payload) - request.body_offset)
            if len(sizes) >= _MAX_PENDING:
                api.fold_parked()
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

    def _count_all_errors(self, request: Request) -> None:
        errors = request.errors
        if errors is not None:
            for code, count in errors.items():
                self.count_errors(request.header.api_key, code, count)

    def fold(self) -> None:
        """Brings the histograms up to date, as was asked for."""
        self._is_fold_due = False
        self._fold_all()

    def _fold_all(self) -> None:
        for version in self._by_version.values():
            if version.size:
                self._fold_brief(version)
        for api in self._by_name.values():
            if api.pending:
                api.fold()
            if api.size:
                api.fold_parked()

    def _fold_brief(self, version: _VersionMetrics) -> None:
        local_ns, version.local_ns = version.local_ns, []
        sending_ns, version.sending_ns = version.sending_ns, []
        size, version.size = version.size, []
        version.meter.count += len(size)
        version.api.count_brief(local_ns, sending_ns, size)
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

    def _of_name(self, name: str, parent: _ApiMetrics | None = None) -> _ApiMetrics:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = _ApiMetrics(self._registry, name, parent)
        return found


# Folded at this length at the latest.
_MAX_PENDING: Final = 256
# Replaces every version that is not served; not on the wire, where versions below 0 are refused.
_UNKNOWN_VERSION: Final = -1
