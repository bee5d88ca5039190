"""Quotas as administrators name them: entities, keys, values, filters, precedence."""

import pytest

from odradek.broker.quotas.entities import (
    Bucket,
    EntityMatch,
    check_quota,
    check_quota_key,
    ip_connection_rates,
    matching_entities,
    quota_entity,
    resolve_quota,
)
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import QuotaEntity
from odradek.protocol.enums import QuotaMatchType

USER = QuotaEntity((("user", "u"),))
IP = QuotaEntity((("ip", "10.0.0.1"),))

# The levels of precedence, strongest first, with the bucket of user u and client c.
LEVELS: list[tuple[tuple[tuple[str, str | None], ...], Bucket]] = [
    ((("client-id", "c"), ("user", "u")), Bucket("u", "c")),
    ((("client-id", None), ("user", "u")), Bucket("u", "c")),
    ((("user", "u"),), Bucket("u", None)),
    ((("client-id", "c"), ("user", None)), Bucket("u", "c")),
    ((("client-id", None), ("user", None)), Bucket("u", "c")),
    ((("user", None),), Bucket("u", None)),
    ((("client-id", "c"),), Bucket(None, "c")),
    ((("client-id", None),), Bucket(None, "c")),
]


@pytest.mark.parametrize("strongest", range(len(LEVELS)))
def test_the_first_level_that_has_the_key_counts(strongest: int) -> None:
    bounds = {
        QuotaEntity(components): float(level + 1)
        for level, (components, _) in enumerate(LEVELS)
        if level >= strongest
    }

    assert resolve_quota(bounds, "u", "c") == (LEVELS[strongest][1], strongest + 1)


def test_others_have_no_limit() -> None:
    bounds = {USER: 1.0, QuotaEntity((("client-id", "x"), ("user", "v"))): 2.0}

    assert resolve_quota(bounds, "v", "c") is None


def test_an_entity_is_sorted() -> None:
    entity = quota_entity([("user", "u"), ("client-id", None)])

    assert entity.components == (("client-id", None), ("user", "u"))


@pytest.mark.parametrize(
    "components",
    [
        pytest.param([], id="empty"),
        pytest.param([("group", "g")], id="unknown-type"),
        pytest.param([("user", "a"), ("user", "b")], id="type-twice"),
        pytest.param([("ip", "10.0.0.1"), ("user", "a")], id="ip-with-others"),
        pytest.param([("ip", "here")], id="no-address"),
        pytest.param([("user", "")], id="empty-name"),
    ],
)
def test_entities_that_cannot_be(components: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ApiError) as refusal:
        quota_entity(components)

    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        pytest.param(USER, "no_such_rate", 1.0, id="unknown-key"),
        pytest.param(USER, "connection_creation_rate", 1.0, id="key-of-ip"),
        pytest.param(IP, "producer_byte_rate", 1.0, id="key-of-user"),
        pytest.param(USER, "producer_byte_rate", 0.0, id="zero"),
        pytest.param(USER, "producer_byte_rate", -1.0, id="negative"),
        pytest.param(USER, "request_percentage", float("nan"), id="nan"),
        pytest.param(USER, "request_percentage", float("inf"), id="infinite"),
        pytest.param(USER, "consumer_byte_rate", 1.5, id="fraction"),
        pytest.param(USER, "producer_byte_rate", 1e19, id="beyond-64-bits"),
        pytest.param(IP, "connection_creation_rate", 2.0**31, id="beyond-32-bits"),
    ],
)
def test_quotas_that_cannot_be(entity: QuotaEntity, key: str, value: float) -> None:
    with pytest.raises(ApiError) as refusal:
        check_quota(entity, key, value)

    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_quotas_that_can_be() -> None:
    check_quota(USER, "request_percentage", 12.5)
    check_quota(USER, "controller_mutation_rate", 0.5)
    check_quota(USER, "producer_byte_rate", 1024.0)
    check_quota(IP, "connection_creation_rate", 5.0)
    check_quota_key(USER, "consumer_byte_rate")


QUOTAS = {
    entity: {"producer_byte_rate": 1.0}
    for entity in (
        USER,
        QuotaEntity((("user", None),)),
        QuotaEntity((("client-id", "c"), ("user", "u"))),
        QuotaEntity((("client-id", "c"),)),
    )
}


@pytest.mark.parametrize(
    ("filters", "is_strict", "found"),
    [
        pytest.param([], False, [0, 1, 2, 3], id="all"),
        pytest.param([], True, [], id="nothing-and-no-more"),
        pytest.param([EntityMatch("user", QuotaMatchType.EXACT, "u")], False, [0, 2], id="exact"),
        pytest.param([EntityMatch("user", QuotaMatchType.EXACT, "u")], True, [0], id="strict"),
        pytest.param([EntityMatch("user", QuotaMatchType.DEFAULT, None)], True, [1], id="default"),
        pytest.param([EntityMatch("user", QuotaMatchType.ANY, None)], True, [0, 1], id="any"),
        pytest.param(
            [
                EntityMatch("user", QuotaMatchType.ANY, None),
                EntityMatch("client-id", QuotaMatchType.EXACT, "c"),
            ],
            False,
            [2],
            id="both",
        ),
    ],
)
def test_filters(filters: list[EntityMatch], is_strict: bool, found: list[int]) -> None:
    entities = list(QUOTAS)

    assert matching_entities(QUOTAS, filters, is_strict=is_strict) == [
        entities[index] for index in found
    ]


@pytest.mark.parametrize("types", [["user", "user"], ["planet"], ["ip", "user"]])
def test_filters_that_cannot_be(types: list[str]) -> None:
    filters = [EntityMatch(kind, QuotaMatchType.ANY, None) for kind in types]

    with pytest.raises(ApiError) as refusal:
        matching_entities(QUOTAS, filters, is_strict=False)

    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_connection_rates_by_address() -> None:
    quotas = {
        IP: {"connection_creation_rate": 5.0},
        QuotaEntity((("ip", None),)): {"connection_creation_rate": 7.0},
        USER: {"producer_byte_rate": 1.0},
    }

    assert ip_connection_rates(quotas) == (7, {"10.0.0.1": 5})
    assert ip_connection_rates({}) == (2**31 - 1, {})
