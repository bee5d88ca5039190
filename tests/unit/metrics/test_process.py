"""The metrics of the process, as Prometheus' own libraries read them."""

import os
import resource
import threading
from random import Random

import prometheus_client
from prometheus_client.parser import text_string_to_metric_families

from odradek.metrics import MetricRegistry, render_prometheus
from odradek.metrics.process import register_process_metrics
from odradek.testing import ManualClock


def scraped() -> dict[str, tuple[str, dict[str, str], float]]:
    registry = MetricRegistry(ManualClock(), Random(1))
    register_process_metrics(registry, {"version": "1.2.3", "build": "pure"})
    families = text_string_to_metric_families(render_prometheus(registry))
    return {
        sample.name: (family.type, sample.labels, sample.value)
        for family in families
        for sample in family.samples
    }


def test_names_and_kinds_are_those_of_prometheus_own_library() -> None:
    theirs = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=theirs)
    expected = {
        sample.name: family.type for family in theirs.collect() for sample in family.samples
    }

    ours = {name: kind for name, (kind, _, _) in scraped().items()}

    assert expected.items() <= ours.items()
    assert len(expected) >= 4


def test_values_are_those_of_this_process() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    values = {name: value for name, (_, _, value) in scraped().items()}

    assert values["process_cpu_seconds_total"] >= before.ru_utime + before.ru_stime
    assert values["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 3 <= values["process_open_fds"] < values["process_max_fds"]
    assert values["process_resident_memory_bytes"] > 1 << 20
    assert values["process_virtual_memory_bytes"] >= values["process_resident_memory_bytes"]
    assert values["process_num_threads"] >= threading.active_count() > 0
    assert values["process_start_time_seconds"] <= os.stat("/proc/self").st_mtime + 1


def test_the_build_is_in_labels() -> None:
    _, labels, value = scraped()["odradek_build_info"]
    assert value == 1
    assert labels["version"] == "1.2.3"
    assert labels["build"] == "pure"
    assert labels["python"][:2] == "3."
