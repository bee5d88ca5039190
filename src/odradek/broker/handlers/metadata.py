"""Metadata: brokers, topics and leaders, from the published image; creates topics on demand."""

import uuid
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from functools import partial

from odradek.broker.authorization import allowed_operations, cluster_operations, is_allowed
from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.broker.quotas.client_quotas import MutationQuota
from odradek.broker.slices import Steps, body_of, in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import TopicMetadata
from odradek.metadata.image import ClusterImage
from odradek.metadata.topic_names import find_name_problem
from odradek.network.request import Request, SendResponse
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.metadata import (
    BrokerTuple,
    MetadataTopic,
    MetadataView,
    encode_metadata_frame,
    encode_topic_metadata,
    parse_metadata_request,
)
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.primitives import ZERO_UUID
from odradek.security.operations import NOT_ASKED, Operation, ResourceType

__all__ = ["handle_metadata"]

_FIRST_NULL_IS_ALL_VERSION = 1
_FIRST_LISTENER_ERROR_VERSION = 6
_FIRST_ID_VERSION = 12
NO_CONTROLLER = -1


@in_slices
def handle_metadata(request: Request, context: BrokerContext) -> Steps:
    """Answers from the image that is published when the request arrives."""
    version = request.header.api_version
    if request.parsed is None:
        view = parse_metadata_request(request.payload, request.body_offset, version)
    else:
        view = yield from _view_of(body_of(MetadataRequest, request))
    cache = context.cache
    image = cache.image
    # Before the topics, which are read in slices: the answer is about one moment.
    brokers: list[BrokerTuple] = [
        (node.id, node.host, node.port, node.rack)
        for node in cache.get_alive_nodes(request.context.listener)
    ]
    mutations = context.quotas.mutation_quota(request, is_strict=True)
    chunks: list[bytes] = []
    errors: Counter[ErrorCode] = Counter()
    for topic in _find_topics(view, image, mutations, request, context):
        if topic is not None:
            if view.include_topic_authorized_operations:
                topic = _with_operations(topic, request, context)
            errors[ErrorCode(topic.error_code)] += 1
            errors.update(ErrorCode(partition[0]) for partition in topic.partitions)
            chunks.append(encode_topic_metadata(version, topic))
        yield
    request.errors = errors
    controller_id = image.controller_id
    header = request.header
    before, after = encode_metadata_frame(
        version,
        brokers=brokers,
        cluster_id=context.cluster_id,
        controller_id=NO_CONTROLLER if controller_id is None else controller_id,
        topic_count=len(chunks),
        throttle_time_ms=request_throttle_ms(request, context, other_ms=mutations.throttle_ms()),
        cluster_authorized_operations=cluster_operations(context.authorizer, request)
        if view.include_cluster_authorized_operations
        else NOT_ASKED,
    )
    start = encode_response_header(header.api_key, version, header.correlation_id)
    return SendResponse(request, [b"".join([start, before, *chunks, after])])


def _view_of(message: MetadataRequest) -> Generator[None, None, MetadataView]:
    topics: list[tuple[bytes, str | None]] | None = None
    if message.topics is not None:
        topics = []
        for topic in message.topics:
            topics.append((topic.topic_id, topic.name))
            yield
    return MetadataView(
        topics,
        message.allow_auto_topic_creation,
        message.include_cluster_authorized_operations,
        message.include_topic_authorized_operations,
    )


def _find_topics(
    view: MetadataView,
    image: ClusterImage,
    mutations: MutationQuota,
    request: Request,
    context: BrokerContext,
) -> Iterator[MetadataTopic | None]:
    """The topics of the answer, one after another; None for one that is skipped."""
    wanted = view.topics
    if wanted is None or (request.header.api_version < _FIRST_NULL_IS_ALL_VERSION and not wanted):
        return _all(image, request, context)
    if any(name is None or topic_id != ZERO_UUID for topic_id, name in wanted):
        topic_ids = dict.fromkeys(topic_id for topic_id, _ in wanted)
        return _by_id(topic_ids, image, request, context)
    names = dict.fromkeys(name for _, name in wanted if name is not None)
    may_create = view.allow_auto_topic_creation
    return _by_name(names, image, request, context, mutations if may_create else None)


def _all(
    image: ClusterImage, request: Request, context: BrokerContext
) -> Iterator[MetadataTopic | None]:
    for name in context.cache.get_sorted_topics(image):
        # A topic is hidden from clients that may not describe it.
        if _may_describe(name, request, context):
            yield _known(_read(name, image, request, context), context)
        else:
            yield None


def _may_describe(name: str, request: Request, context: BrokerContext) -> bool:
    return is_allowed(context.authorizer, request, Operation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(name: str, request: Request, context: BrokerContext) -> bool:
    may = partial(is_allowed, context.authorizer, request, Operation.CREATE)
    return may() or may(ResourceType.TOPIC, name)


def _read(
    name: str, image: ClusterImage, request: Request, context: BrokerContext
) -> TopicMetadata | None:
    version = request.header.api_version
    found = context.cache.get_topic_metadata(
        [name],
        request.context.listener,
        image=image,
        error_unavailable_endpoints=version == 0,
        error_unavailable_listeners=version >= _FIRST_LISTENER_ERROR_VERSION,
    )
    return found[0] if found else None


def _with_operations(
    topic: MetadataTopic, request: Request, context: BrokerContext
) -> MetadataTopic:
    """The row with the client's operations, unless it may not describe the topic."""
    if topic.name is None or topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic
    operations = allowed_operations(context.authorizer, request, ResourceType.TOPIC, topic.name)
    return topic._replace(authorized_operations=operations)


def _by_name(
    names: Iterable[str],
    image: ClusterImage,
    request: Request,
    context: BrokerContext,
    mutations: MutationQuota | None,
) -> Iterator[MetadataTopic | None]:
    for name in names:
        is_visible = _may_describe(name, request, context)
        known = _known(_read(name, image, request, context) if is_visible else None, context)
        if known is not None:
            yield known
            continue
        if is_visible:
            error = _create_or_refuse(name, request, context, mutations)
        else:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        yield MetadataTopic(error, name, ZERO_UUID, name in context.internal_topics, ())


def _create_or_refuse(
    name: str, request: Request, context: BrokerContext, mutations: MutationQuota | None
) -> ErrorCode:
    """The error for a topic that does not exist; may start its creation.

    Args:
        mutations: The client's quota of creations; None if the request forbids creation.
    """
    if find_name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if mutations is None or not context.auto_create_topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not _may_create(name, request, context):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if context.topic_creator.would_start(name):
        try:
            if name not in context.internal_topics:  # These are created once, for the broker.
                mutations.take(context.broker_settings().topics.num_partitions)
        except ApiError:
            # The client tries again after a pause, as it does while a topic is created.
            return ErrorCode.LEADER_NOT_AVAILABLE
        context.topic_creator.start_creation(name)
    return ErrorCode.LEADER_NOT_AVAILABLE


def _by_id(
    topic_ids: Iterable[bytes], image: ClusterImage, request: Request, context: BrokerContext
) -> Iterator[MetadataTopic | None]:
    """The topics by id: names in the request are ignored; before version 12 it is invalid."""
    is_valid = request.header.api_version >= _FIRST_ID_VERSION
    for topic_id in topic_ids:
        if not is_valid:
            yield MetadataTopic(ErrorCode.INVALID_REQUEST, "", topic_id, False, ())
            continue
        if topic_id == ZERO_UUID:
            yield None
            continue
        name = image.topic_names.get(uuid.UUID(bytes=topic_id))
        if name is not None and not _may_describe(name, request, context):
            # An id discloses nothing; the name would.
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            yield MetadataTopic(error, None, topic_id, False, ())
            continue
        known = _known(None if name is None else _read(name, image, request, context), context)
        unknown = MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id, False, ())
        yield unknown if known is None else known


def _known(topic: TopicMetadata | None, context: BrokerContext) -> MetadataTopic | None:
    if topic is None:
        return None
    return MetadataTopic(
        ErrorCode.NONE,
        topic.name,
        ZERO_UUID if topic.id is None else topic.id.bytes,
        topic.name in context.internal_topics,
        [
            (p.error, p.partition, p.leader, p.leader_epoch, p.replicas, p.isr, p.offline_replicas)
            for p in topic.partitions
        ],
    )
