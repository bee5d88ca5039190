"""Times of requests from their stamps."""

import random
from collections.abc import Callable

import pytest

from odradek.errors import ErrorCode
from odradek.metrics import Histogram, Meter, MetricName, MetricRegistry, render_prometheus
from odradek.network.request import ONE_SUCCESS, UNSET, Request, is_valid_client_information
from odradek.network.request_metrics import RequestMetrics, RequestTimes, api_name
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.headers import RequestHeader
from odradek.testing import ManualClock
from tests.unit.network.network_fakes import make_request

MS = 1_000_000


def ms_of(*stamps_ms: int) -> tuple[float, ...]:
    stamps = [stamp if stamp == UNSET else stamp * MS for stamp in stamps_ms]
    start, dequeue, local, remote, complete, response_dequeue, end = stamps
    times = RequestTimes.of(
        [(start, dequeue, local, remote, complete, response_dequeue, end, 0, 0, 0)]
    )
    return tuple(column[0] / MS for column in times)


@pytest.mark.parametrize(
    ("stamps_ms", "times_ms"),
    [
        pytest.param((0, 2, 5, 9, 9, 10, 12), (2, 3, 4, 0, 1, 2, 12), id="02:N-23"),
        pytest.param((0, 2, 5, UNSET, 9, 10, 12), (2, 3, 4, 0, 1, 2, 12), id="remote-unset"),
        pytest.param((0, 2, UNSET, UNSET, 9, 10, 12), (2, 7, 0, 0, 1, 2, 12), id="local-unset"),
        pytest.param((0, UNSET, 5, 5, 5, UNSET, 8), (0, 5, 0, 0, 0, 3, 8), id="never-queued"),
        pytest.param((5, 4, 6, 6, 6, 6, 6), (0, 2, 0, 0, 0, 0, 1), id="negative-is-0"),
    ],
)
def test_times_follow_from_stamps(stamps_ms: tuple[int, ...], times_ms: tuple[float, ...]) -> None:
    assert ms_of(*stamps_ms) == times_ms


def test_a_response_ends_the_handlers_part_unless_it_has_ended() -> None:
    """02:N-24."""
    early, late = make_request(), make_request()
    late.api_local_complete_ns = 3
    early.complete(7)
    late.complete(7)

    assert early.api_local_complete_ns == early.response_complete_ns == 7
    assert (late.api_local_complete_ns, late.response_complete_ns) == (3, 7)


def make_metrics() -> tuple[RequestMetrics, MetricRegistry, list[Callable[[], None]]]:
    registry = MetricRegistry(ManualClock(), random.Random(1))
    asked: list[Callable[[], None]] = []
    metrics = RequestMetrics(registry, lambda: asked.append(metrics.fold))
    return metrics, registry, asked


def histogram(registry: MetricRegistry, name: str, request: str) -> Histogram:
    found = registry.get(
        MetricName("kafka.network", "RequestMetrics", name, (("request", request),))
    )
    assert isinstance(found, Histogram)
    return found


def test_finished_requests_show_after_folding() -> None:
    metrics, registry, asked = make_metrics()
    for _ in range(3):
        request = make_request(api_key=ApiKey.FETCH)
        request.metrics_name = "FetchFollower"
        request.complete(4 * MS)
        metrics.request_done(request, 10 * MS)
    assert len(asked) == 1
    asked[0]()

    for name in ("Fetch", "FetchFollower"):
        total = histogram(registry, "TotalTimeMs", name).snapshot()
        assert (total.count, total.max) == (3, 10)
        assert histogram(registry, "ResponseSendTimeMs", name).snapshot().max == 6
        assert histogram(registry, "RequestBytes", name).snapshot().max == 5
        assert histogram(registry, "TemporaryMemoryBytes", name).count == 3
    tags = (("request", "Fetch"), ("version", "0"))
    meter = registry.get(MetricName("kafka.network", "RequestMetrics", "RequestsPerSec", tags))
    assert isinstance(meter, Meter)
    assert meter.count == 3


def answered_at_once(registry_key: ApiKey = ApiKey.PRODUCE) -> Request:
    request = make_request(api_key=registry_key)
    request.is_answered_at_once = True
    request.response_complete_ns = 4 * MS
    request.errors = ONE_SUCCESS
    return request


def test_a_request_that_waited_for_nothing_counts_as_any_other() -> None:
    """02:N-23: three numbers say as much as seven stamps."""
    pages = []
    for is_brief in (True, False):
        metrics, registry, asked = make_metrics()
        for _ in range(300):  # More than are kept, so that some are folded before.
            request = answered_at_once()
            request.is_answered_at_once = is_brief
            request.dequeue_ns = request.start_ns
            metrics.request_done(request, 10 * MS)
        assert len(asked) == 1
        asked[0]()
        pages.append(render_prometheus(registry))

    assert pages[0] == pages[1]
    assert 'requestmetrics_errors_total{request="Produce",error="NONE"} 300' in pages[0]


def test_a_request_that_was_parked_once_counts_as_any_other() -> None:
    """02:N-23: five numbers say as much as seven stamps."""
    pages = []
    for is_remote_end_stamped in (False, True):
        metrics, registry, asked = make_metrics()
        for _ in range(300):  # More than are kept, so that some are folded before.
            request = make_request(api_key=ApiKey.FETCH)
            request.metrics_name = "FetchConsumer"
            request.errors = {ErrorCode.NONE: 2}
            request.dequeue_ns = request.start_ns
            request.api_local_complete_ns = 1 * MS
            request.response_complete_ns = 4 * MS
            request.response_dequeue_ns = 5 * MS
            if is_remote_end_stamped:  # What counts where it is not: all seven stamps are kept.
                request.api_remote_complete_ns = request.response_complete_ns
            metrics.request_done(request, 10 * MS)
        asked[0]()
        remote = histogram(registry, "RemoteTimeMs", "FetchConsumer").snapshot()
        assert (remote.count, remote.max) == (300, 3)
        pages.append(render_prometheus(registry))

    assert pages[0] == pages[1]
    assert 'requestmetrics_errors_total{request="Fetch",error="NONE"} 600' in pages[0]


def test_versions_that_nobody_serves_count_as_one() -> None:
    """An ApiVersions request may carry any version, and each would stay for ever."""
    metrics, registry, _ = make_metrics()
    for version in range(-5, 2_000):
        request = answered_at_once(ApiKey.API_VERSIONS)
        request.header = RequestHeader(ApiKey.API_VERSIONS, version, 1, "")
        metrics.request_done(request, 10 * MS)
    metrics.fold()

    assert histogram(registry, "TotalTimeMs", "ApiVersions").count == 2_005
    rows = [row for row in render_prometheus(registry).splitlines() if "version=" in row]
    served = API_SUPPORT[ApiKey.API_VERSIONS].parsed.last + 1
    assert len(rows) == served + 1
    (unknown,) = (row for row in rows if 'version="unknown"' in row)
    assert unknown.endswith(f" {2_005 - served}")


def test_who_reads_sees_what_is_done() -> None:
    metrics, registry, asked = make_metrics()
    request = make_request()
    request.complete(1)
    metrics.request_done(request, 2)

    page = render_prometheus(registry)

    assert 'kafka_network_requestmetrics_totaltimems_count{request="Heartbeat"} 1\n' in page
    metrics.request_done(request, 2)
    assert len(asked) == 1


def test_a_long_list_is_folded_at_once() -> None:
    metrics, registry, asked = make_metrics()
    for _ in range(600):
        request = make_request()
        request.complete(1)
        metrics.request_done(request, 2)

    assert len(asked) == 1
    assert histogram(registry, "TotalTimeMs", "Heartbeat").count == 512


def test_errors_are_counted_by_name() -> None:
    metrics, registry, _ = make_metrics()
    metrics.count_errors(ApiKey.PRODUCE, ErrorCode.NONE, 2)
    metrics.count_errors(ApiKey.PRODUCE, ErrorCode.NONE)

    tags = (("request", "Produce"), ("error", "NONE"))
    meter = registry.get(MetricName("kafka.network", "RequestMetrics", "ErrorsPerSec", tags))
    assert isinstance(meter, Meter)
    assert meter.count == 3


@pytest.mark.parametrize(
    ("key", "name"),
    [(ApiKey.LEADER_AND_ISR, "LeaderAndIsr"), (ApiKey.API_VERSIONS, "ApiVersions")],
)
def test_names_of_apis_are_kafkas(key: ApiKey, name: str) -> None:
    assert api_name(key) == name


@pytest.mark.parametrize(
    ("name", "version", "valid"),
    [
        ("librdkafka", "2.3.0", True),
        ("a", "1", True),
        ("bad name!", "1", False),
        ("-a", "1", False),
        ("a.", "1", False),
        ("", "1", False),
        ("a", "", False),
        ("a\n", "1", False),
    ],
)
def test_names_of_client_software(name: str, version: str, valid: bool) -> None:
    assert is_valid_client_information(name, version) is valid
