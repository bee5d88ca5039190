"""Client quotas: who is counted with whom, how long they wait, what is forgotten.

The vectors Q1 to Q10 are those of the specification of quotas.
"""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from odradek.broker.config import QuotaSettings
from odradek.broker.quotas import usage as quota_usage
from odradek.broker.quotas.client_quotas import ClientQuotas
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import QuotaEntity
from odradek.metrics import MetricRegistry, render_prometheus
from odradek.network.request import Request
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.headers import RequestHeader
from odradek.security.principal import Principal
from odradek.testing import ManualClock
from tests.unit.network.network_fakes import FakeConnection

ALL_CLIENTS = QuotaEntity((("client-id", None),))
ALL_USERS = QuotaEntity((("user", None),))


def request(user: str = "ANONYMOUS", client_id: str = "c") -> Request:
    connection = FakeConnection()
    connection.context = replace(connection.context, principal=Principal("User", user))
    header = RequestHeader(ApiKey.PRODUCE, 9, 1, client_id)
    return Request(connection, header, memoryview(b""), 0, 0)


class Bench:
    """Quotas with a clock in hand."""

    def __init__(self, settings: QuotaSettings | None = None) -> None:
        self.clock = ManualClock(monotonic_ms=1_000_000)
        self.metrics = MetricRegistry(self.clock, Random(1))
        self.quotas = ClientQuotas(
            settings or QuotaSettings(), clock=self.clock, metrics=self.metrics
        )

    def set(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self.quotas.update(quotas)


def bench(key: str, bound: float, settings: QuotaSettings | None = None) -> Bench:
    made = Bench(settings)
    made.set({ALL_CLIENTS: {key: bound}})
    return made


@pytest.mark.parametrize(
    ("records", "throttle_ms"),
    [
        pytest.param([(0, 10_000)], 0, id="13:Q1"),
        pytest.param([(0, 15_000)], 5_000, id="13:Q2"),
        pytest.param([(0, 1_000), (500, 20_000)], 10_500, id="13:Q3"),
    ],
)
def test_byte_rates(records: list[tuple[int, int]], throttle_ms: int) -> None:
    made = bench("producer_byte_rate", 1000)
    passed_ms = 0
    for at_ms, size in records:
        made.clock.advance(at_ms - passed_ms)
        passed_ms = at_ms
        found = made.quotas.produce_throttle_ms(request(), size)

    assert found == throttle_ms


def test_request_time_is_capped_at_one_window() -> None:
    """13:Q4: 30 s at a bound of 50 % would be 50 s of waiting; one sample is the most."""
    made = bench("request_percentage", 50)

    assert made.quotas.request_throttle_ms(request(), 30_000_000_000) == 1_000


class TestMutations:
    def test_a_large_request_passes_and_is_paid_for_afterwards(self) -> None:
        """13:Q5"""
        settings = QuotaSettings(controller_window_count=100)
        made = bench("controller_mutation_rate", 5, settings)
        quota = made.quotas.mutation_quota(request(), is_strict=False)

        quota.take(560)

        assert quota.throttle_ms() == 12_000

    def test_strict_refuses_while_it_is_overdrawn(self) -> None:
        """13:Q6"""
        made = bench("controller_mutation_rate", 5)
        first = made.quotas.mutation_quota(request(), is_strict=True)
        first.take(60)
        assert first.throttle_ms() == 0
        second = made.quotas.mutation_quota(request(), is_strict=True)

        with pytest.raises(ApiError) as refusal:
            second.take(1)

        assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert int(refusal.value.code) == 89
        assert second.throttle_ms() == 1_000

    def test_the_time_spent_meanwhile_is_taken_off(self) -> None:
        made = bench("controller_mutation_rate", 5)
        quota = made.quotas.mutation_quota(request(), is_strict=False)
        quota.take(60)

        made.clock.advance(400)

        assert quota.throttle_ms() == 600

    def test_without_a_quota_everything_passes(self) -> None:
        quota = Bench().quotas.mutation_quota(request(), is_strict=True)

        for _ in range(3):
            quota.take(1_000_000)

        assert quota.throttle_ms() == 0


class TestFetch:
    def test_the_largest_answer_that_can_ever_pass(self) -> None:
        """13:Q7"""
        made = bench("consumer_byte_rate", 1000)

        assert made.quotas.max_fetch_bytes(request()) == 10_000
        assert Bench().quotas.max_fetch_bytes(request()) is None

    def test_an_answer_that_has_to_wait_is_not_counted(self) -> None:
        made = bench("consumer_byte_rate", 1000)
        assert made.quotas.fetch_throttle_ms(request(), 10_000) == 0

        assert made.quotas.fetch_throttle_ms(request(), 5_000) == 5_000

        made.clock.advance(5_000)
        assert made.quotas.fetch_throttle_ms(request(), 0) == 0


class TestWhoIsCountedWithWhom:
    def test_users_come_before_clients(self) -> None:
        """13:Q8"""
        made = Bench()
        made.set(
            {
                ALL_USERS: {"producer_byte_rate": 100},
                QuotaEntity((("client-id", "c"),)): {"producer_byte_rate": 200},
            }
        )

        assert made.quotas.produce.bound("u", "c") == 100

    def test_a_default_gives_each_user_a_bucket(self) -> None:
        """13:Q9"""
        made = Bench()
        made.set({ALL_USERS: {"producer_byte_rate": 1000}})

        assert made.quotas.produce_throttle_ms(request("a"), 15_000) == 5_000
        assert made.quotas.produce_throttle_ms(request("b"), 10_000) == 0

    def test_all_clients_of_a_user_share_its_bucket(self) -> None:
        """13:Q10"""
        made = Bench()
        made.set({QuotaEntity((("user", "a"),)): {"producer_byte_rate": 1000}})

        assert made.quotas.produce_throttle_ms(request("a", "c1"), 10_000) == 0
        assert made.quotas.produce_throttle_ms(request("a", "c2"), 5_000) == 5_000


class TestLife:
    def test_without_quotas_nothing_is_kept(self) -> None:
        made = Bench()

        assert made.quotas.produce_throttle_ms(request(), 10**9) == 0
        assert made.quotas.fetch_throttle_ms(request(), 10**9) == 0
        assert made.quotas.request_throttle_ms(request(), 10**12) == 0
        assert "byte_rate{" not in render_prometheus(made.metrics)

    def test_a_changed_bound_counts_at_once_and_history_is_kept(self) -> None:
        made = bench("producer_byte_rate", 1000)
        assert made.quotas.produce_throttle_ms(request(), 10_000) == 0

        made.set({ALL_CLIENTS: {"producer_byte_rate": 500}})

        assert made.quotas.produce_throttle_ms(request(), 0) == 10_000

    def test_a_quota_that_is_gone_limits_nobody(self) -> None:
        made = bench("producer_byte_rate", 1)
        assert made.quotas.produce_throttle_ms(request(), 10_000) > 0

        made.set({})

        assert made.quotas.produce_throttle_ms(request(), 10_000) == 0

    @pytest.mark.parametrize("bound", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_bound_nobody_could_mean_is_no_bound(self, bound: float) -> None:
        made = bench("consumer_byte_rate", bound)

        assert made.quotas.fetch_throttle_ms(request(), 10**9) == 0
        assert made.quotas.max_fetch_bytes(request()) is None

    def test_old_samples_are_forgotten(self) -> None:
        made = bench("producer_byte_rate", 1000)
        made.quotas.produce_throttle_ms(request(), 50_000)

        made.clock.advance(11_001)

        assert made.quotas.produce_throttle_ms(request(), 0) == 0

    def test_a_bucket_is_shown_until_nobody_used_it_for_an_hour(self) -> None:
        made = bench("producer_byte_rate", 1000)
        made.quotas.produce_throttle_ms(request(client_id="c"), 15_000)

        page = render_prometheus(made.metrics)
        labels = '{user="",client_id="c"}'
        assert f"kafka_server_produce_byte_rate{labels} 1500" in page
        assert f"kafka_server_produce_throttle_time{labels} 5000" in page
        assert "kafka_server_produce_queue_size 1" in page

        made.clock.advance(3_599_999)
        made.quotas.expire()
        assert labels in render_prometheus(made.metrics)
        made.clock.advance(1)
        made.quotas.expire()
        page = render_prometheus(made.metrics)
        assert labels not in page
        assert "kafka_server_produce_queue_size 0" in page

    def test_buckets_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(quota_usage, "MAX_BUCKETS", 2)
        made = bench("producer_byte_rate", 1000)

        for client_id in ("a", "b", "a", "c"):
            made.quotas.produce_throttle_ms(request(client_id=client_id), 1)

        page = render_prometheus(made.metrics)
        assert 'client_id="a"' in page
        assert 'client_id="b"' not in page
        assert 'client_id="c"' in page
