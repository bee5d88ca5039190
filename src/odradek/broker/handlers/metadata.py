"""Metadata: brokers, topics and leaders, from the published image; creates topics on demand."""

import uuid
from collections import Counter

from odradek.broker.authorization import (
    CLUSTER_NAME,
    NOT_ASKED,
    Operation,
    ResourceType,
    cluster_operations,
    topic_operations,
)
from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.broker.quotas import MutationQuota
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import TopicMetadata as CachedTopic
from odradek.metadata.topic_names import find_name_problem
from odradek.network.request import Request, Response, SendResponse
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.metadata import (
    BrokerTuple,
    TopicMetadata,
    encode_metadata_response,
    parse_metadata_request,
)
from odradek.protocol.primitives import ZERO_UUID

__all__ = ["handle_metadata"]

_FIRST_NULL_IS_ALL_VERSION = 1
_FIRST_LISTENER_ERROR_VERSION = 6
_FIRST_ID_VERSION = 12
NO_CONTROLLER = -1


def handle_metadata(request: Request, context: BrokerContext) -> Response:
    """Answers from one image, the one that is published now."""
    version = request.header.api_version
    view = parse_metadata_request(request.payload, request.body_offset, version)
    listener = request.context.listener
    cache = context.cache
    image = cache.image
    wanted = view.topics
    mutations = context.quotas.mutation_quota(request, is_strict=True)
    if wanted is None or (version < _FIRST_NULL_IS_ALL_VERSION and not wanted):
        # Who may not know of a topic is not told that there is one.
        names = [name for name in sorted(image.topics) if _may_describe(name, request, context)]
        topics = [_known(topic, context) for topic in _read(names, request, context)]
    elif any(name is None or topic_id != ZERO_UUID for topic_id, name in wanted):
        topics = _by_id([topic_id for topic_id, _ in wanted], request, context)
    else:
        names = list(dict.fromkeys(name for _, name in wanted if name is not None))
        may_create = view.allow_auto_topic_creation
        topics = _by_name(names, request, context, mutations if may_create else None)
    if view.include_topic_authorized_operations:
        topics = [_with_operations(topic, request, context) for topic in topics]
    brokers: list[BrokerTuple] = [
        (node.id, node.host, node.port, node.rack) for node in cache.get_alive_nodes(listener)
    ]
    errors = [topic.error_code for topic in topics]
    errors += [partition[0] for topic in topics for partition in topic.partitions]
    request.errors = Counter(map(ErrorCode, errors))
    controller_id = image.controller_id
    header = request.header
    body = encode_metadata_response(
        version,
        brokers=brokers,
        cluster_id=context.cluster_id,
        controller_id=NO_CONTROLLER if controller_id is None else controller_id,
        topics=topics,
        throttle_time_ms=request_throttle_ms(request, context, other_ms=mutations.throttle_ms()),
        cluster_authorized_operations=cluster_operations(context.authorizer, request)
        if view.include_cluster_authorized_operations
        else NOT_ASKED,
    )
    start = encode_response_header(header.api_key, version, header.correlation_id)
    return SendResponse(request, [start + body])


def _may_describe(name: str, request: Request, context: BrokerContext) -> bool:
    return context.authorizer.is_allowed(request, Operation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(name: str, request: Request, context: BrokerContext) -> bool:
    allowed = context.authorizer.is_allowed
    return allowed(request, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or allowed(
        request, Operation.CREATE, ResourceType.TOPIC, name
    )


def _read(names: list[str], request: Request, context: BrokerContext) -> list[CachedTopic]:
    version = request.header.api_version
    return context.cache.get_topic_metadata(
        names,
        request.context.listener,
        error_unavailable_endpoints=version == 0,
        error_unavailable_listeners=version >= _FIRST_LISTENER_ERROR_VERSION,
    )


def _with_operations(
    topic: TopicMetadata, request: Request, context: BrokerContext
) -> TopicMetadata:
    """With what the client may do, unless it may not even know of the topic."""
    if topic.name is None or topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic
    operations = topic_operations(context.authorizer, request, topic.name)
    return topic._replace(authorized_operations=operations)


def _by_name(
    names: list[str], request: Request, context: BrokerContext, mutations: MutationQuota | None
) -> list[TopicMetadata]:
    topics = []
    for name in names:
        is_visible = _may_describe(name, request, context)
        found = _read([name], request, context) if is_visible else []
        if found:
            topics.append(_known(found[0], context))
            continue
        if is_visible:
            error = _create_or_refuse(name, request, context, mutations)
        else:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics.append(TopicMetadata(error, name, ZERO_UUID, name in context.internal_topics, ()))
    return topics


def _create_or_refuse(
    name: str, request: Request, context: BrokerContext, mutations: MutationQuota | None
) -> ErrorCode:
    """What is told of a topic that is not there, and perhaps will be soon.

    Args:
        mutations: What the client may create; None if it does not want to.
    """
    if find_name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if mutations is None or not context.auto_create_topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not _may_create(name, request, context):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if context.topic_creator.would_start(name):
        try:
            if name not in context.internal_topics:  # Those are made once, for the broker itself.
                mutations.take(context.broker_settings().topics.num_partitions)
        except ApiError:
            # The client asks again, as it does while the topic is made, and waits in between.
            return ErrorCode.LEADER_NOT_AVAILABLE
        context.topic_creator.start_creation(name)
    return ErrorCode.LEADER_NOT_AVAILABLE


def _by_id(topic_ids: list[bytes], request: Request, context: BrokerContext) -> list[TopicMetadata]:
    """Ids were given: names beside them are ignored, and before 12 the request is invalid."""
    if request.header.api_version < _FIRST_ID_VERSION:
        return [
            TopicMetadata(ErrorCode.INVALID_REQUEST, "", topic_id, False, ())
            for topic_id in topic_ids
        ]
    topics = []
    for topic_id in topic_ids:
        if topic_id == ZERO_UUID:
            continue
        name = context.cache.get_topic_name(uuid.UUID(bytes=topic_id))
        found = [] if name is None else _read([name], request, context)
        if name is not None and not _may_describe(name, request, context):
            # An id gives nothing away; the name behind it would.
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topics.append(TopicMetadata(error, None, topic_id, False, ()))
        elif found:
            topics.append(_known(found[0], context))
        else:
            topics.append(TopicMetadata(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id, False, ()))
    return topics


def _known(topic: CachedTopic, context: BrokerContext) -> TopicMetadata:
    return TopicMetadata(
        ErrorCode.NONE,
        topic.name,
        ZERO_UUID if topic.id is None else topic.id.bytes,
        topic.name in context.internal_topics,
        [
            (p.error, p.partition, p.leader, p.leader_epoch, p.replicas, p.isr, p.offline_replicas)
            for p in topic.partitions
        ],
    )
