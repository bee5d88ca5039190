"""The request types, and the versions of each that are parsed, accepted and advertised.

Three ranges per API, each within the one before:

parsed      the codec knows it; clients and tests may use it
accepted    a broker answers it
advertised  a broker names it in its ApiVersions answer

A row is advertised once its handler is complete; the broker knows which handlers exist.
FindCoordinator must never be advertised without OffsetFetch: librdkafka 2.16 crashes on that.
"""

from enum import IntEnum
from typing import Final

from odradek.lazy_dataclass import dataclass
from odradek.protocol.versions import VersionRange

__all__ = ["API_SUPPORT", "ApiKey", "ApiSupport", "is_flexible"]


class ApiKey(IntEnum):
    """Kafka's request types, by the number that names them on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSupport:
    """The versions of one API."""

    parsed: VersionRange
    accepted: VersionRange
    advertised: VersionRange
    # First version with compact types and tagged fields; None if there is none.
    flexible_from: int | None
    # Between brokers only; advertised on the inter-broker listener alone.
    inter_broker: bool


def _api(
    parsed: str,
    *,
    flexible_from: int | None = None,
    accepted: str | None = None,
    advertised: str | None = None,
    inter_broker: bool = False,
) -> ApiSupport:
    accepted = accepted or parsed
    return ApiSupport(
        parsed=VersionRange.parse(parsed),
        accepted=VersionRange.parse(accepted),
        advertised=VersionRange.parse(advertised or accepted),
        flexible_from=flexible_from,
        inter_broker=inter_broker,
    )


API_SUPPORT: Final[dict[ApiKey, ApiSupport]] = {
    # 0-2 are refused per partition, but must be in the range: librdkafka before 2.11 compresses
    # with gzip, snappy and lz4 only if it sees Produce 0.
    ApiKey.PRODUCE: _api("0-13", flexible_from=9),
    # 0-3 are refused per partition, with an answer that old clients can read, and not advertised.
    ApiKey.FETCH: _api("0-18", flexible_from=12, advertised="4-18"),
    ApiKey.LIST_OFFSETS: _api("1-11", flexible_from=6),
    ApiKey.METADATA: _api("0-13", flexible_from=9),
    # Served from the version with broker epochs on; brokers before 2.2 sent older ones.
    ApiKey.LEADER_AND_ISR: _api("0-7", flexible_from=4, accepted="2-7", inter_broker=True),
    ApiKey.STOP_REPLICA: _api("0-4", flexible_from=2, accepted="1-4", inter_broker=True),
    ApiKey.UPDATE_METADATA: _api("0-8", flexible_from=6, accepted="5-8", inter_broker=True),
    ApiKey.CONTROLLED_SHUTDOWN: _api("0-3", flexible_from=3, advertised="1-3", inter_broker=True),
    ApiKey.OFFSET_COMMIT: _api("2-10", flexible_from=8),
    ApiKey.OFFSET_FETCH: _api("1-10", flexible_from=6),
    ApiKey.FIND_COORDINATOR: _api("0-6", flexible_from=3),
    # Must begin at 0: older librdkafka gives up groups otherwise.
    ApiKey.JOIN_GROUP: _api("0-9", flexible_from=6),
    ApiKey.HEARTBEAT: _api("0-4", flexible_from=4),
    ApiKey.LEAVE_GROUP: _api("0-5", flexible_from=4),
    ApiKey.SYNC_GROUP: _api("0-5", flexible_from=4),
    # Must begin at 0, as ListGroups: librdkafka's older group list sends it unasked.
    ApiKey.DESCRIBE_GROUPS: _api("0-6", flexible_from=5),
    ApiKey.LIST_GROUPS: _api("0-5", flexible_from=3),
    ApiKey.SASL_HANDSHAKE: _api("0-1"),
    ApiKey.API_VERSIONS: _api("0-4", flexible_from=3),
    ApiKey.CREATE_TOPICS: _api("2-7", flexible_from=5),
    ApiKey.DELETE_TOPICS: _api("1-6", flexible_from=4),
    ApiKey.DELETE_RECORDS: _api("0-2", flexible_from=2),
    ApiKey.INIT_PRODUCER_ID: _api("0-5", flexible_from=2),
    # 0-1 for followers older than 2.0.
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _api("0-4", flexible_from=4, advertised="2-4"),
    ApiKey.ADD_PARTITIONS_TO_TXN: _api("0-5", flexible_from=3),
    ApiKey.ADD_OFFSETS_TO_TXN: _api("0-4", flexible_from=3),
    ApiKey.END_TXN: _api("0-5", flexible_from=3),
    ApiKey.WRITE_TXN_MARKERS: _api("0-2", flexible_from=1),
    ApiKey.TXN_OFFSET_COMMIT: _api("0-5", flexible_from=3),
    ApiKey.DESCRIBE_ACLS: _api("1-3", flexible_from=2),
    ApiKey.CREATE_ACLS: _api("1-3", flexible_from=2),
    ApiKey.DELETE_ACLS: _api("1-3", flexible_from=2),
    ApiKey.DESCRIBE_CONFIGS: _api("1-4", flexible_from=4),
    ApiKey.ALTER_CONFIGS: _api("0-2", flexible_from=2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _api("1-2", flexible_from=2),
    ApiKey.DESCRIBE_LOG_DIRS: _api("1-5", flexible_from=2),
    ApiKey.SASL_AUTHENTICATE: _api("0-2", flexible_from=2),
    ApiKey.CREATE_PARTITIONS: _api("0-3", flexible_from=2),
    ApiKey.DELETE_GROUPS: _api("0-2", flexible_from=2),
    ApiKey.ELECT_LEADERS: _api("0-2", flexible_from=2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _api("0-1", flexible_from=1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _api("0-1", flexible_from=0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _api("0", flexible_from=0),
    ApiKey.OFFSET_DELETE: _api("0"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _api("0-1", flexible_from=1),
    ApiKey.ALTER_CLIENT_QUOTAS: _api("0-1", flexible_from=1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _api("0", flexible_from=0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _api("0", flexible_from=0),
    ApiKey.UPDATE_FEATURES: _api("0-2", flexible_from=0),
    ApiKey.ALTER_PARTITION: _api("0-3", flexible_from=0, inter_broker=True),
    ApiKey.DESCRIBE_CLUSTER: _api("0-2", flexible_from=0),
    ApiKey.DESCRIBE_PRODUCERS: _api("0", flexible_from=0),
    ApiKey.DESCRIBE_TRANSACTIONS: _api("0", flexible_from=0),
    ApiKey.LIST_TRANSACTIONS: _api("0-2", flexible_from=0),
    ApiKey.ALLOCATE_PRODUCER_IDS: _api("0", flexible_from=0, inter_broker=True),
    ApiKey.LIST_CONFIG_RESOURCES: _api("0-1", flexible_from=0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _api("0", flexible_from=0),
}


def is_flexible(api_key: ApiKey, version: int) -> bool:
    """Whether this version of an API, request and response alike, has tagged fields."""
    flexible_from = API_SUPPORT[api_key].flexible_from
    return flexible_from is not None and version >= flexible_from
