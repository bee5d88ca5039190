"""DescribeClientQuotas and AlterClientQuotas."""

import math

import pytest

from odradek.broker.handlers.alter_client_quotas import handle_alter_client_quotas
from odradek.broker.handlers.describe_client_quotas import handle_describe_client_quotas
from odradek.broker.settings.alterations import MAX_ALTERED
from odradek.errors import ErrorCode
from odradek.metadata.image import QuotaEntity
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, FakeConnection

Entity = list[tuple[str, str | None]]
RATE = "producer_byte_rate"


def entry(entity: Entity, *ops: tuple[str, float | None]) -> RequestEntryData:
    return RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def alter(
    broker: BrokerFixture,
    *entries: RequestEntryData,
    validate_only: bool = False,
    version: int = 1,
) -> list[int]:
    answer = broker.ask(
        handle_alter_client_quotas,
        ApiKey.ALTER_CLIENT_QUOTAS,
        AlterClientQuotasRequest(entries=entries, validate_only=validate_only),
        version,
        AlterClientQuotasResponse,
    )
    named = [[(p.entity_type, p.entity_name) for p in row.entity] for row in answer.entries]
    assert named == [[(p.entity_type, p.entity_name) for p in row.entity] for row in entries]
    return [row.error_code for row in answer.entries]


def describe(
    broker: BrokerFixture,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int = 1,
) -> DescribeClientQuotasResponse:
    message = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ],
        strict=strict,
    )
    return broker.ask(
        handle_describe_client_quotas,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        message,
        version,
        DescribeClientQuotasResponse,
    )


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_and_removed(version: int) -> None:
    broker = BrokerFixture()
    changes = entry(
        [("user", "u"), ("client-id", None)], (RATE, 1000), ("request_percentage", None)
    )
    assert alter(broker, changes, version=version) == [0]
    [change] = broker.port.quotas
    assert change.entity == QuotaEntity((("client-id", None), ("user", "u")))
    assert change.values == {RATE: 1000.0, "request_percentage": None}


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(entry([], (RATE, 1)), id="empty entity"),
        pytest.param(entry([("group", "g")], (RATE, 1)), id="unknown type"),
        pytest.param(entry([("user", "u"), ("user", "v")], (RATE, 1)), id="type twice"),
        pytest.param(entry([("ip", "1.2.3.4"), ("user", "u")], (RATE, 1)), id="ip with others"),
        pytest.param(
            entry([("ip", "somewhere")], ("connection_creation_rate", 1)), id="no address"
        ),
        pytest.param(entry([("user", "u")], ("no_such_key", 1)), id="unknown key"),
        pytest.param(entry([("user", "u")], ("connection_creation_rate", 1)), id="key of an ip"),
        pytest.param(entry([("user", "u")], ("no_such_key", None)), id="removing an unknown key"),
        pytest.param(entry([("user", "u")], (RATE, 0.0)), id="zero"),
        pytest.param(entry([("user", "u")], (RATE, -1.0)), id="negative"),
        pytest.param(entry([("user", "u")], (RATE, 1.5)), id="not integral"),
        pytest.param(entry([("user", "u")], (RATE, 2.0**63)), id="out of range"),
        pytest.param(entry([("user", "u")], (RATE, math.nan)), id="NaN"),
        pytest.param(entry([("user", "u")], (RATE, math.inf)), id="infinite"),
    ],
)
def test_what_cannot_be_is_refused_and_the_rest_done(bad: RequestEntryData) -> None:
    broker = BrokerFixture()
    good = entry([("client-id", "c")], (RATE, 1))
    assert alter(broker, bad, good) == [ErrorCode.INVALID_REQUEST, 0]
    assert [change.entity for change in broker.port.quotas] == [QuotaEntity((("client-id", "c"),))]


def test_an_entity_that_comes_twice_is_refused_both_times() -> None:
    broker = BrokerFixture()
    one = entry([("user", "u"), ("client-id", "c")], (RATE, 1))
    other = entry([("client-id", "c"), ("user", "u")], (RATE, 2))
    assert alter(broker, one, other) == [ErrorCode.INVALID_REQUEST] * 2
    assert not broker.port.quotas


def test_validation_alone_stores_nothing() -> None:
    broker = BrokerFixture()
    assert alter(broker, entry([("user", "u")], (RATE, 1)), validate_only=True) == [0]
    assert not broker.port.quotas


def test_what_is_not_stored_is_said() -> None:
    broker = BrokerFixture()
    broker.port.codes = [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR]
    entries = [entry([("user", name)], (RATE, 1)) for name in ("u", "v")]
    assert alter(broker, *entries) == [0, ErrorCode.UNKNOWN_SERVER_ERROR]


def users(count: int) -> list[RequestEntryData]:
    return [entry([("user", f"u{number}")], (RATE, 1)) for number in range(count)]


def test_many_entities_are_few_writes() -> None:
    """02 §12: each write is a sync of the store."""
    broker = BrokerFixture()
    assert alter(broker, *users(120)) == [0] * 120
    assert broker.port.writes == [20] * 6


def test_too_many_entities_are_refused_together() -> None:
    """02 §12: one request does not keep administrators waiting for minutes."""
    broker = BrokerFixture()
    assert alter(broker, *users(MAX_ALTERED)) == [0] * MAX_ALTERED
    broker.port.writes.clear()
    entries = users(MAX_ALTERED + 1)
    assert alter(broker, *entries) == [ErrorCode.POLICY_VIOLATION] * len(entries)
    assert not broker.port.writes


def test_no_entity_is_written_for_a_client_that_is_gone() -> None:
    """02 §12."""
    broker = BrokerFixture()
    request = broker.request(
        ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries=users(120)), 1
    )
    assert isinstance(request.connection, FakeConnection)
    connection = request.connection
    broker.port.on_write = lambda: setattr(connection, "is_closed", True)
    broker.call(handle_alter_client_quotas, request)
    assert broker.port.writes == [20]


@pytest.fixture
def quoted() -> BrokerFixture:
    broker = BrokerFixture()
    broker.publish_quota(("user", "u"), producer_byte_rate=1, consumer_byte_rate=2)
    broker.publish_quota(("user", None), producer_byte_rate=3)
    broker.publish_quota(("client-id", "c"), ("user", "u"), producer_byte_rate=4)
    broker.publish_quota(("ip", "1.2.3.4"), connection_creation_rate=5)
    return broker


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "strict", "values"),
    [
        ([], False, [4, 5, 3, 2]),
        ([], True, []),
        ([("user", 2, None)], False, [4, 3, 2]),
        ([("user", 2, None)], True, [3, 2]),
        ([("user", 0, "u")], True, [2]),
        ([("user", 1, None)], False, [3]),
        ([("client-id", 0, "c"), ("user", 0, "u")], True, [4]),
        ([("ip", 2, None)], False, [5]),
        ([("user", 0, "nobody")], False, []),
    ],
)
def test_filters(
    quoted: BrokerFixture,
    components: list[tuple[str, int, str | None]],
    strict: bool,
    values: list[int],
    version: int,
) -> None:
    answer = describe(quoted, *components, strict=strict, version=version)
    assert answer.error_code == 0
    # The first value by key tells the entities above apart.
    assert [row.values[0].value for row in answer.entries or ()] == values


def test_an_entry_in_full(quoted: BrokerFixture) -> None:
    [row] = describe(quoted, ("user", 0, "u"), strict=True).entries or ()
    assert [(part.entity_type, part.entity_name) for part in row.entity] == [("user", "u")]
    assert [(v.key, v.value) for v in row.values] == [
        ("consumer_byte_rate", 2.0),
        ("producer_byte_rate", 1.0),
    ]


@pytest.mark.parametrize(
    "components",
    [
        [("user", 2, None), ("user", 1, None)],
        [("group", 2, None)],
        [("ip", 2, None), ("user", 2, None)],
        [("user", 3, None)],
        [("user", 0, None)],
    ],
)
def test_filters_that_mean_nothing(
    quoted: BrokerFixture, components: list[tuple[str, int, str | None]]
) -> None:
    answer = describe(quoted, *components)
    assert (answer.error_code, answer.entries) == (ErrorCode.INVALID_REQUEST, None)
