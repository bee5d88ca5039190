"""Limits of connections: addresses, listeners, broker, rates."""

import pytest

from odradek.errors import InvariantViolation
from odradek.network.connection_quotas import ConnectionQuotas, TooManyConnectionsError
from odradek.testing import ManualClock

CLIENTS = "CLIENTS"
BROKERS = "BROKERS"


def make_quotas(clock: ManualClock | None = None, **limits: int) -> ConnectionQuotas:
    quotas = ConnectionQuotas(
        clock or ManualClock(),
        per_ip_overrides={"10.0.0.9": 1},
        inter_broker_listener=BROKERS,
        **limits,
    )
    quotas.add_listener(CLIENTS)
    quotas.add_listener(BROKERS)
    return quotas


def test_the_third_of_two_is_refused_and_counts_until_closed() -> None:
    """02:N-19: per-IP limit 2."""
    quotas = make_quotas(max_per_ip=2)
    quotas.increment(CLIENTS, "10.0.0.1")
    quotas.increment(BROKERS, "10.0.0.1")
    quotas.increment(CLIENTS, "10.0.0.2")

    with pytest.raises(TooManyConnectionsError, match=r"10\.0\.0\.1 has 2"):
        quotas.increment(CLIENTS, "10.0.0.1")
    assert quotas.count_of_ip("10.0.0.1") == 3
    quotas.decrement(CLIENTS, "10.0.0.1")

    assert quotas.count_of_ip("10.0.0.1") == 2
    assert quotas.total == 3


def test_an_address_may_have_a_limit_of_its_own() -> None:
    quotas = make_quotas()
    quotas.increment(CLIENTS, "10.0.0.9")

    with pytest.raises(TooManyConnectionsError) as raised:
        quotas.increment(CLIENTS, "10.0.0.9")
    assert (raised.value.address, raised.value.limit) == ("10.0.0.9", 1)


def test_closing_what_was_never_counted_is_a_bug() -> None:
    with pytest.raises(InvariantViolation, match=r"10\.0\.0\.1"):
        make_quotas().decrement(CLIENTS, "10.0.0.1")


def test_an_address_without_connections_is_forgotten() -> None:
    quotas = make_quotas()
    quotas.increment(CLIENTS, "10.0.0.1")
    quotas.decrement(CLIENTS, "10.0.0.1")

    assert quotas.count_of_ip("10.0.0.1") == 0
    with pytest.raises(InvariantViolation):
        quotas.decrement(CLIENTS, "10.0.0.1")


def test_the_broker_limit_stops_clients_but_not_brokers() -> None:
    quotas = make_quotas(max_connections=1)
    quotas.increment(CLIENTS, "10.0.0.1")

    assert not quotas.has_slot(CLIENTS)
    assert quotas.has_slot(BROKERS)
    assert not quotas.is_exceeded(CLIENTS)
    quotas.increment(BROKERS, "10.0.0.2")
    assert quotas.is_exceeded(CLIENTS)
    assert not quotas.is_exceeded(BROKERS)


def test_the_only_listener_is_not_protected() -> None:
    quotas = ConnectionQuotas(ManualClock(), max_connections=1, inter_broker_listener=BROKERS)
    quotas.add_listener(BROKERS)
    quotas.increment(BROKERS, "10.0.0.1")

    assert not quotas.has_slot(BROKERS)


def test_a_listener_has_a_limit_of_its_own() -> None:
    quotas = make_quotas()
    quotas.update_listener_limits(BROKERS, max_connections=1)
    quotas.increment(BROKERS, "10.0.0.1")

    assert not quotas.has_slot(BROKERS)
    assert quotas.has_slot(CLIENTS)
    assert quotas.count(BROKERS) == 1


def test_a_waiting_listener_is_told_of_a_slot_once() -> None:
    quotas = make_quotas(max_connections=1)
    quotas.increment(CLIENTS, "10.0.0.1")
    told: list[str] = []
    quotas.when_slot_is_free(CLIENTS, lambda: told.append("free"))

    quotas.decrement(CLIENTS, "10.0.0.1")
    quotas.increment(CLIENTS, "10.0.0.1")
    quotas.decrement(CLIENTS, "10.0.0.1")

    assert told == ["free"]


def test_a_raised_limit_tells_those_who_wait() -> None:
    quotas = make_quotas(max_connections=0)
    told: list[str] = []
    quotas.when_slot_is_free(CLIENTS, lambda: told.append("free"))
    quotas.update_limits(max_per_ip=5, per_ip_overrides={}, max_creation_rate=9)
    assert told == []

    quotas.update_limits(max_connections=1)

    assert told == ["free"]


def test_a_listener_above_its_rate_pauses() -> None:
    clock = ManualClock()
    quotas = make_quotas(clock)
    quotas.update_listener_limits(CLIENTS, max_creation_rate=2)
    pauses = [quotas.accept_throttle_ms(CLIENTS) for _ in range(21)]

    # 21 within the ten seconds a fresh rate looks at are 2.1 per second, 5% above the bound.
    assert pauses == [0] * 20 + [500]
    assert quotas.accept_throttle_ms(BROKERS) == 0


def test_the_broker_rate_does_not_hold_the_inter_broker_listener() -> None:
    quotas = make_quotas(max_creation_rate=1)
    for _ in range(20):
        quotas.accept_throttle_ms(CLIENTS)

    assert quotas.accept_throttle_ms(CLIENTS) > 0
    assert quotas.accept_throttle_ms(BROKERS) == 0


def test_an_address_above_its_rate_is_delayed_and_not_counted() -> None:
    quotas = make_quotas()
    quotas.update_ip_rates(1, {"10.0.0.7": 100})
    assert [quotas.ip_throttle_ms("10.0.0.1") for _ in range(10)] == [0] * 10

    assert quotas.ip_throttle_ms("10.0.0.1") == 1000
    assert quotas.ip_throttle_ms("10.0.0.1") == 1000  # The one before does not count.
    assert quotas.ip_throttle_ms("10.0.0.7") == 0
