"""What is spoken, accepted and advertised."""

import pytest

from odradek.protocol.api_keys import API_SUPPORT, ApiKey, ApiSupport, is_flexible

ROWS = [pytest.param(support, id=key.name) for key, support in API_SUPPORT.items()]


def advertised(key: ApiKey) -> tuple[int, int]:
    versions = API_SUPPORT[key].advertised
    return versions.first, versions.last


@pytest.mark.parametrize("support", ROWS)
def test_ranges_lie_within_each_other(support: ApiSupport) -> None:
    """The table's part of the row rules of 11 section 14: no row has min above max."""
    assert support.advertised
    assert support.parsed.first <= support.accepted.first <= support.advertised.first
    assert support.advertised.last <= support.accepted.last <= support.parsed.last


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.PRODUCE,
        ApiKey.JOIN_GROUP,
        ApiKey.FIND_COORDINATOR,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_GROUPS,
    ],
)
def test_minimum_old_clients_look_for(key: ApiKey) -> None:
    """Old librdkafka loses compression, groups or SASL where these do not begin at 0."""
    assert advertised(key)[0] == 0


@pytest.mark.parametrize(
    ("key", "first", "last"),
    [
        (ApiKey.PRODUCE, 0, 13),
        (ApiKey.FETCH, 4, 18),
        (ApiKey.LIST_OFFSETS, 1, 11),
        (ApiKey.METADATA, 0, 13),
        (ApiKey.OFFSET_COMMIT, 2, 10),
        (ApiKey.OFFSET_FETCH, 1, 10),
        (ApiKey.FIND_COORDINATOR, 0, 6),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2),
        (ApiKey.DESCRIBE_LOG_DIRS, 1, 5),
        (ApiKey.DESCRIBE_CLUSTER, 0, 2),
        (ApiKey.API_VERSIONS, 0, 4),
        (ApiKey.END_TXN, 0, 5),
        (ApiKey.TXN_OFFSET_COMMIT, 0, 5),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4),
        (ApiKey.LEADER_AND_ISR, 2, 7),
        (ApiKey.STOP_REPLICA, 1, 4),
        (ApiKey.UPDATE_METADATA, 5, 8),
    ],
)
def test_advertised_range(key: ApiKey, first: int, last: int) -> None:
    assert advertised(key) == (first, last)


def test_refused_versions_are_accepted_all_the_same() -> None:
    """Fetch 0-3 gets an answer with an error, so it must pass the header."""
    assert 0 in API_SUPPORT[ApiKey.FETCH].accepted
    assert 0 in API_SUPPORT[ApiKey.OFFSET_FOR_LEADER_EPOCH].accepted


def test_inter_broker_rows() -> None:
    between = [key for key, support in API_SUPPORT.items() if support.inter_broker]
    assert between == [4, 5, 6, 7, 56, 67]


def test_rows_without_a_flexible_version() -> None:
    rigid = [key for key, support in API_SUPPORT.items() if support.flexible_from is None]
    assert rigid == [ApiKey.SASL_HANDSHAKE, ApiKey.OFFSET_DELETE]
    assert not is_flexible(ApiKey.SASL_HANDSHAKE, 1)


def test_all_93_keys_have_a_name() -> None:
    assert [int(key) for key in ApiKey] == list(range(93))
