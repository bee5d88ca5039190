"""The administrator's calls: one for everything that a broker serves, and bad input refused."""

from collections.abc import Callable
from typing import Any

import pytest

import odradek
from odradek import aio
from odradek.broker.dispatch import HANDLERS
from odradek.client.admin import AclOperation
from odradek.protocol.api_keys import ApiKey
from odradek.security.operations import parse_operation_bits

# What asks for each API that a broker serves to administrators.
ADMIN_CALLS = {
    ApiKey.LIST_OFFSETS: {"list_offsets"},
    ApiKey.METADATA: {"list_topics", "describe_topics", "describe_topics_by_id"},
    ApiKey.OFFSET_FETCH: {"list_group_offsets"},
    ApiKey.OFFSET_COMMIT: {"alter_group_offsets"},
    ApiKey.LEAVE_GROUP: {"remove_group_members"},
    ApiKey.DESCRIBE_GROUPS: {"describe_groups"},
    ApiKey.LIST_GROUPS: {"list_groups"},
    ApiKey.DELETE_GROUPS: {"delete_groups"},
    ApiKey.OFFSET_DELETE: {"delete_group_offsets"},
    ApiKey.CREATE_TOPICS: {"create_topics"},
    ApiKey.DELETE_TOPICS: {"delete_topics", "delete_topics_by_id"},
    ApiKey.DELETE_RECORDS: {"delete_records"},
    ApiKey.DESCRIBE_CONFIGS: {"describe_configs"},
    ApiKey.ALTER_CONFIGS: {"alter_configs"},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"incremental_alter_configs"},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"alter_replica_log_dirs"},
    ApiKey.DESCRIBE_LOG_DIRS: {"describe_log_dirs"},
    ApiKey.CREATE_PARTITIONS: {"create_partitions"},
    ApiKey.ELECT_LEADERS: {"elect_leaders"},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"alter_partition_reassignments"},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"list_partition_reassignments"},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"describe_client_quotas"},
    ApiKey.ALTER_CLIENT_QUOTAS: {"alter_client_quotas"},
    ApiKey.DESCRIBE_CLUSTER: {"describe_cluster"},
    ApiKey.DESCRIBE_PRODUCERS: {"describe_producers"},
    ApiKey.LIST_CONFIG_RESOURCES: {"list_config_resources"},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"describe_topic_partitions"},
    ApiKey.API_VERSIONS: {"describe_api_versions", "describe_features"},
    ApiKey.WRITE_TXN_MARKERS: {"abort_transactions"},
    ApiKey.UPDATE_FEATURES: {"update_features"},
    ApiKey.DESCRIBE_TRANSACTIONS: {"describe_transactions"},
    ApiKey.LIST_TRANSACTIONS: {"list_transactions", "find_hanging_transactions"},
}
# What producers, consumers and members of groups ask for, and no administrator.
OF_OTHER_CLIENTS = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
}
# What brokers ask of each other, on a listener of their own.
OF_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}
# What the broker answers only to say that it has no access rules, credentials or logins.
OF_PROTECTION = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
}


def test_there_is_a_call_for_everything_that_the_broker_serves() -> None:
    """09:CL-31: an API that is added to the broker needs a row here, and a call."""
    assert set(HANDLERS) == ADMIN_CALLS.keys() | OF_OTHER_CLIENTS | OF_BROKERS | OF_PROTECTION
    named = set().union(*ADMIN_CALLS.values())
    public = {
        name for one in aio.Admin.__mro__[:-1] for name in vars(one) if not name.startswith("_")
    }
    assert public - {"start", "connect", "close"} == named
    assert all(callable(getattr(odradek.Admin, name)) for name in named)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda admin: admin.describe_topics_by_id([b"short"]), "expected 16 bytes"),
        (lambda admin: admin.describe_topics_by_id([bytes(16)]), "not all zeros"),
        (lambda admin: admin.delete_topics_by_id([b"x" * 17]), "expected 16 bytes"),
        (lambda admin: admin.describe_topic_partitions(limit=0), "at least 1 partition"),
        (lambda admin: admin.describe_cluster(timeout=-1), "at least 0"),
    ],
)
def test_bad_input_is_refused_before_anybody_is_asked(
    call: Callable[[odradek.Admin], Any], told: str
) -> None:
    with (
        odradek.Admin(bootstrap_servers="127.0.0.1:1") as admin,
        pytest.raises(ValueError, match=told),
    ):
        call(admin)


def test_operations_are_bits_by_their_number() -> None:
    bits = 1 << AclOperation.READ | 1 << AclOperation.DELETE
    both = frozenset({AclOperation.READ, AclOperation.DELETE})
    assert parse_operation_bits(bits) == both
    assert parse_operation_bits(bits | 1 << 30) == both
    assert parse_operation_bits(0) == frozenset()
    assert parse_operation_bits(-(1 << 31)) is None
