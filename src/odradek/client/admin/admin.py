"""`odradek.aio.Admin`: describes and changes a cluster, awaited."""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

import ssl
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from odradek.client.admin import (
    api_versions,
    cluster,
    configs,
    features,
    groups,
    producers,
    quotas,
    reassignments,
    topic_descriptions,
)
from odradek.client.admin import records as record_calls
from odradek.client.admin import topics as topic_calls
from odradek.client.admin.api_versions import BrokerVersions
from odradek.client.admin.cluster import ClusterDescription, LogDir
from odradek.client.admin.configs import ConfigEntry, ConfigOperation, ConfigResource
from odradek.client.admin.features import FeatureDescription
from odradek.client.admin.groups import GroupDescription, GroupListing
from odradek.client.admin.producers import ProducerState
from odradek.client.admin.quotas import QuotaEntity
from odradek.client.admin.reassignments import Reassignment
from odradek.client.admin.topic_descriptions import TopicPage
from odradek.client.admin.topics import CreatedTopic, NewPartitions, NewTopic
from odradek.client.admin.transaction_administration import TransactionAdministration
from odradek.client.client import Client
from odradek.client.cluster import TopicView
from odradek.client.config import ClientConfig, read_settings
from odradek.client.consumer.commits import OffsetAndMetadata
from odradek.client.offsets import FoundOffset, list_offsets
from odradek.client.options import client_options
from odradek.client.surroundings import ClientSurroundings
from odradek.config import Definition
from odradek.errors import ApiError
from odradek.model import ReplicaId, TopicPartition
from odradek.protocol.enums import ConfigResourceType, ElectionType, FeatureUpgrade, IsolationLevel

__all__ = ["Admin"]

_DEFINITION: Final = Definition(ClientConfig)


class Admin(TransactionAdministration):
    """Describes and changes a cluster.

    ::

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            results = await admin.create_topics([NewTopic(name="orders", partition_count=4)])

    Every item has its own result, a value or an `ApiError`: a failure affects no other item. Every
    call takes a `timeout` in seconds (default: `default.api.timeout.ms`) and raises `TimeoutError`
    with the last failure. A request that changes something is not repeated after
    a lost connection, unless to do it twice is harmless.

    Args:
        config: Settings under Kafka's names, as ``{"request.timeout.ms": 5000}``.
        ssl_context: Instead of the ``ssl.*`` settings.
        surroundings: Time, randomness and connections; without it, those of this process.
        keywords: Settings with underscores, as ``request_timeout_ms=5000``.

    Raises:
        ConfigError: A setting is unknown or cannot be used.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        ssl_context: ssl.SSLContext | None = None,
        surroundings: ClientSurroundings | None = None,
        **keywords: object,
    ) -> None:
        settings = read_settings(_DEFINITION, config, keywords)
        around = surroundings or ClientSurroundings.system()
        options = client_options(
            settings.build(ClientConfig), ssl_context=ssl_context, streams=around.streams
        )
        self._client = Client(options, clock=around.clock, rng=around.random)

    async def start(self) -> None:
        """Begins on the running loop. Nothing is connected before the first call."""

    async def connect(self, timeout: float | None = None) -> None:
        """Connects to a broker now. Optional: a wrong address is an error at once.

        Raises:
            ApiError: No broker of `bootstrap.servers` answers; each was tried once.
        """
        await self._client.connect(timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ARG002 - never waits
        """Ends every connection. A second call does nothing."""
        self._client.close()

    # Topics

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, CreatedTopic | ApiError]:
        """Creates topics; with `validate_only`, only checks whether that is possible."""
        return await topic_calls.create_topics(
            self._client, topics, validate_only=validate_only, deadline=self._until(timeout)
        )

    async def delete_topics(
        self, names: Sequence[str], *, timeout: float | None = None
    ) -> dict[str, ApiError | None]:
        """Deletes topics; None for each that is gone."""
        return await topic_calls.delete_topics(self._client, names, deadline=self._until(timeout))

    async def delete_topics_by_id(
        self, topic_ids: Sequence[bytes], *, timeout: float | None = None
    ) -> dict[bytes, ApiError | None]:
        """The same by topic id: another topic that has the name by now is kept.

        Raises:
            ValueError: An id is not of 16 bytes, or is all zeros.
        """
        return await topic_calls.delete_topics_by_id(
            self._client, topic_ids, deadline=self._until(timeout)
        )

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, int | ApiError]:
        """Grows topics to new totals of partitions; the result is the total."""
        return await topic_calls.create_partitions(
            self._client, totals, validate_only=validate_only, deadline=self._until(timeout)
        )

    async def list_topics(
        self, *, internal: bool = False, timeout: float | None = None
    ) -> list[str]:
        """The names of the topics, in order."""
        found = await self._client.topics(None, self._until(timeout))
        return [
            name
            for name, topic in found.items()
            if isinstance(topic, TopicView) and (internal or not topic.is_internal)
        ]

    async def describe_topics(
        self, names: Sequence[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, TopicView | ApiError]:
        """Topics with their partitions, leaders and replicas; all of them if none is named."""
        return await self._client.topics(names, self._until(timeout))

    async def describe_topics_by_id(
        self, topic_ids: Sequence[bytes], *, timeout: float | None = None
    ) -> dict[bytes, TopicView | ApiError]:
        """The same by topic id; one that does not exist is UNKNOWN_TOPIC_ID.

        Raises:
            ValueError: An id is not of 16 bytes, or is all zeros.
        """
        return await topic_descriptions.describe_topics_by_id(
            self._client, topic_ids, deadline=self._until(timeout)
        )

    async def describe_topic_partitions(
        self,
        names: Iterable[str] | None = None,
        *,
        start: TopicPartition | None = None,
        limit: int = 2000,
        timeout: float | None = None,
    ) -> TopicPage:
        """One page of topics in order of their names, of all of them if none is named.

        Args:
            start: Where the page begins: `next` of the page before.
            limit: Partitions of the page; a broker may send fewer.

        Raises:
            ValueError: The limit is not positive.
            ApiError: The broker refuses.
        """
        return await topic_descriptions.describe_topic_partitions(
            self._client, names, start=start, limit=limit, deadline=self._until(timeout)
        )

    # Records

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int | ApiError]:
        """Deletes the records before an offset (`HIGH_WATERMARK`: all); the first that is left."""
        return await record_calls.delete_records(
            self._client, before, deadline=self._until(timeout)
        )

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation_level: int = IsolationLevel.READ_UNCOMMITTED,
        timeout: float | None = None,
    ) -> dict[TopicPartition, FoundOffset | ApiError]:
        """The first offset at or after a time, or at `EARLIEST`, `LATEST`, `MAX_TIMESTAMP`."""
        return await list_offsets(
            self._client, timestamps, self._until(timeout), isolation_level=isolation_level
        )

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, list[ProducerState] | ApiError]:
        """The idempotent producers that each partition remembers, on its leader or on a broker."""
        return await producers.describe_producers(
            self._client, partitions, broker=broker, deadline=self._until(timeout)
        )

    # Settings

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        names: Collection[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, list[ConfigEntry] | ApiError]:
        """The settings of each resource, by name; all of them if none is named.

        Args:
            names: Settings to return; those that a resource does not have are left out.
            include_synonyms: Whether to return all settings that a value may come from.
            include_documentation: Whether to return the description of each setting.
        """
        return await configs.describe_configs(
            self._client,
            resources,
            names=names,
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
            deadline=self._until(timeout),
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigOperation]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, ApiError | None]:
        """Changes single settings, all of a resource or none; None for each that was changed."""
        return await configs.alter_configs(
            self._client, changes, validate_only=validate_only, deadline=self._until(timeout)
        )

    async def alter_configs(
        self,
        settings: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, ApiError | None]:
        """Replaces all dynamic settings of each resource: those not named have their default again.

        Older than `incremental_alter_configs`, and easily removes settings of other callers.
        """
        return await configs.replace_configs(
            self._client, settings, validate_only=validate_only, deadline=self._until(timeout)
        )

    async def list_config_resources(
        self, types: Sequence[ConfigResourceType] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """The resources with settings of their own, of all types if none is named."""
        return await configs.list_config_resources(
            self._client, types, deadline=self._until(timeout)
        )

    async def describe_client_quotas(
        self,
        components: Mapping[str, object] | None = None,
        *,
        strict: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of entities that match: by type a name, None (default) or `ANY_NAME`."""
        return await quotas.describe_client_quotas(
            self._client, components or {}, strict=strict, deadline=self._until(timeout)
        )

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, ApiError | None]:
        """Sets quotas, or removes those that are None; None for each entity that was changed."""
        return await quotas.alter_client_quotas(
            self._client, changes, validate_only=validate_only, deadline=self._until(timeout)
        )

    # The cluster

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, timeout: float | None = None
    ) -> ClusterDescription:
        """The brokers and the controller, and the allowed operations if they are asked for."""
        return await cluster.describe_cluster(
            self._client,
            include_authorized_operations=include_authorized_operations,
            deadline=self._until(timeout),
        )

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> dict[int, dict[str, LogDir | ApiError] | ApiError]:
        """The data directories of brokers and their replicas, of all brokers if none is named.

        Args:
            partitions: Those whose replicas to return; all of them if None.
        """
        return await cluster.describe_log_dirs(
            self._client, brokers, partitions=partitions, deadline=self._until(timeout)
        )

    async def alter_replica_log_dirs(
        self, targets: Mapping[ReplicaId, str], *, timeout: float | None = None
    ) -> dict[ReplicaId, ApiError | None]:
        """Begins to move replicas to other data directories of their brokers, by absolute path.

        None for each that has begun to move, or is there; `describe_log_dirs` shows the moves. A
        replica that its broker does not have yet (REPLICA_NOT_AVAILABLE) will be created there.
        """
        return await cluster.alter_replica_log_dirs(
            self._client, targets, deadline=self._until(timeout)
        )

    async def describe_api_versions(self, *, timeout: float | None = None) -> list[BrokerVersions]:
        """The requests that each broker serves."""
        deadline = self._until(timeout)
        await self._client.refresh((), deadline)
        return await api_versions.describe_api_versions(self._client, deadline=deadline)

    async def describe_features(self, *, timeout: float | None = None) -> list[FeatureDescription]:
        """The features of the cluster, such as ``transaction.version``, and their levels."""
        return await features.describe_features(self._client, deadline=self._until(timeout))

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade: FeatureUpgrade = FeatureUpgrade.UPGRADE,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, ApiError | None]:
        """Puts levels in force for the cluster; None for each feature that has its level.

        Args:
            levels: By feature; 0 takes it back.
            upgrade: Whether levels may fall.
            validate_only: Only checks whether that is possible.
        """
        return await features.update_features(
            self._client,
            levels,
            upgrade=upgrade,
            validate_only=validate_only,
            deadline=self._until(timeout),
        )

    async def elect_leaders(
        self,
        election_type: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, ApiError | None]:
        """Elects leaders, of all partitions if none is named; None for each that leads now."""
        return await cluster.elect_leaders(
            self._client, election_type, partitions, deadline=self._until(timeout)
        )

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, ApiError | None]:
        """Begins to move replicas; None for each partition whose move has begun.

        Args:
            targets: The brokers of each partition, the preferred leader first; None cancels.
            allow_replication_factor_change: Whether the number of replicas may change.

        Raises:
            ApiError: The whole request was refused.
        """
        return await reassignments.alter_partition_reassignments(
            self._client,
            targets,
            allow_replication_factor_change=allow_replication_factor_change,
            deadline=self._until(timeout),
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Partitions whose replicas move now."""
        return await reassignments.list_partition_reassignments(
            self._client, partitions, deadline=self._until(timeout)
        )

    # Groups

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """The groups of all brokers, by name."""
        return await groups.list_groups(
            self._client, states=states, types=types, deadline=self._until(timeout)
        )

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription | ApiError]:
        """Each group with its members, and the allowed operations if they are asked for."""
        return await groups.describe_groups(
            self._client,
            group_ids,
            include_authorized_operations=include_authorized_operations,
            deadline=self._until(timeout),
        )

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, ApiError | None]:
        """Deletes groups without members; None for each that is gone."""
        return await groups.delete_groups(self._client, group_ids, deadline=self._until(timeout))

    async def remove_group_members(
        self,
        group_id: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str = "removed by an administrator",
        timeout: float | None = None,
    ) -> dict[str, ApiError | None]:
        """Removes static members by their instance id, or all members; None for each that is out.

        Members without an instance id are named by their member id. A running one joins again.

        Raises:
            ApiError: There is no such group.
        """
        return await groups.remove_group_members(
            self._client, group_id, instance_ids, reason=reason, deadline=self._until(timeout)
        )

    async def list_group_offsets(
        self,
        group_ids: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | ApiError]:
        """The committed offsets of each group; partitions without an offset are left out.

        Args:
            group_ids: Groups, or partitions by group; None there means all of them.
            require_stable: Whether to wait for transactions that are about to move an offset.
        """
        return await groups.list_group_offsets(
            self._client, group_ids, require_stable=require_stable, deadline=self._until(timeout)
        )

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        """Commits for a group that has no members.

        Raises:
            ApiError: The group has members, or the offsets are refused.
        """
        await groups.alter_group_offsets(
            self._client, group_id, offsets, deadline=self._until(timeout)
        )

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, ApiError | None]:
        """Deletes committed offsets of partitions that the group does not read; None for each.

        Raises:
            ApiError: There is no such group.
        """
        return await groups.delete_group_offsets(
            self._client, group_id, partitions, deadline=self._until(timeout)
        )
