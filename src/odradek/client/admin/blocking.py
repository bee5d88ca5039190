"""`odradek.Admin`: describes and changes a cluster, for plain scripts and threads."""

import ssl
from collections.abc import Mapping

from odradek.client.admin import admin as awaited
from odradek.client.blocking import Blocking, blocking

__all__ = ["Admin"]


class Admin(Blocking[awaited.Admin]):
    """Describes and changes a cluster.

    ::

        with Admin(bootstrap_servers="localhost:9092") as admin:
            results = admin.create_topics([NewTopic(name="orders", partition_count=4)])

    Every item has its own result, a value or an `ApiError`: a failure affects no other item. Every
    call takes a `timeout` in seconds (default: `default.api.timeout.ms`) and raises `TimeoutError`
    with the last failure. May be used by several threads.

    Args: As `odradek.aio.Admin`.

    Raises:
        ConfigError: A setting is unknown or cannot be used.
    """

    _what = "admin"

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        ssl_context: ssl.SSLContext | None = None,
        **keywords: object,
    ) -> None:
        super().__init__(
            awaited.Admin(config, ssl_context=ssl_context, surroundings=None, **keywords)
        )

    connect = blocking(awaited.Admin.connect)
    create_topics = blocking(awaited.Admin.create_topics)
    delete_topics = blocking(awaited.Admin.delete_topics)
    delete_topics_by_id = blocking(awaited.Admin.delete_topics_by_id)
    create_partitions = blocking(awaited.Admin.create_partitions)
    list_topics = blocking(awaited.Admin.list_topics)
    describe_topics = blocking(awaited.Admin.describe_topics)
    describe_topics_by_id = blocking(awaited.Admin.describe_topics_by_id)
    describe_topic_partitions = blocking(awaited.Admin.describe_topic_partitions)
    delete_records = blocking(awaited.Admin.delete_records)
    list_offsets = blocking(awaited.Admin.list_offsets)
    describe_producers = blocking(awaited.Admin.describe_producers)
    list_transactions = blocking(awaited.Admin.list_transactions)
    describe_transactions = blocking(awaited.Admin.describe_transactions)
    find_hanging_transactions = blocking(awaited.Admin.find_hanging_transactions)
    abort_transactions = blocking(awaited.Admin.abort_transactions)
    describe_configs = blocking(awaited.Admin.describe_configs)
    incremental_alter_configs = blocking(awaited.Admin.incremental_alter_configs)
    alter_configs = blocking(awaited.Admin.alter_configs)
    list_config_resources = blocking(awaited.Admin.list_config_resources)
    describe_client_quotas = blocking(awaited.Admin.describe_client_quotas)
    alter_client_quotas = blocking(awaited.Admin.alter_client_quotas)
    describe_cluster = blocking(awaited.Admin.describe_cluster)
    alter_replica_log_dirs = blocking(awaited.Admin.alter_replica_log_dirs)
    describe_log_dirs = blocking(awaited.Admin.describe_log_dirs)
    describe_api_versions = blocking(awaited.Admin.describe_api_versions)
    describe_features = blocking(awaited.Admin.describe_features)
    update_features = blocking(awaited.Admin.update_features)
    elect_leaders = blocking(awaited.Admin.elect_leaders)
    alter_partition_reassignments = blocking(awaited.Admin.alter_partition_reassignments)
    list_partition_reassignments = blocking(awaited.Admin.list_partition_reassignments)
    list_groups = blocking(awaited.Admin.list_groups)
    describe_groups = blocking(awaited.Admin.describe_groups)
    delete_groups = blocking(awaited.Admin.delete_groups)
    remove_group_members = blocking(awaited.Admin.remove_group_members)
    list_group_offsets = blocking(awaited.Admin.list_group_offsets)
    alter_group_offsets = blocking(awaited.Admin.alter_group_offsets)
    delete_group_offsets = blocking(awaited.Admin.delete_group_offsets)
