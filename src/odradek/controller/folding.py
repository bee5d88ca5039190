"""Folding of durable changes into the controller's context. Pure.

`apply_committed` is the one entry point for committed changes: the driver calls it with the outcome
of its own commits, and a controller that follows a metadata log would call it with the changes that
others committed. It sends nothing, reads nothing, and decides nothing; the requests to brokers are
computed afterwards, from the context and the committed changes.

States of the two machines are no part of it: they record how far this controller has acted on the
durable state, and a new controller derives them from the context (`initial_states`). Configs,
quotas, access rules and credentials do not change the context: brokers act on them, the controller
does not.
"""

from dataclasses import replace

from odradek.controller.context import ControllerContext
from odradek.metadata.changes import (
    AssignmentChanged,
    Atomic,
    Change,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeletionCancelled,
    TopicDeletionRequested,
    TopicRemoved,
)
from odradek.metadata.ports import Committed, PartitionRecord, TopicRecord

__all__ = ["apply_committed", "committed_record"]

_UNREAD = -1  # Incarnation of a topic whose node was not read since we wrote it.


def apply_committed(context: ControllerContext, committed: Committed) -> None:
    """Applies one durable change to the context; idempotent."""
    change, version = committed
    _apply(context, change, version)


def _apply(context: ControllerContext, change: Change, version: int) -> None:
    match change:
        case TopicCreated() | PartitionsAdded() | AssignmentChanged():
            _put_topic(context, change, version)
        case PartitionChanged(tp=tp):
            context.partition_leadership[tp] = committed_record(change, version)
        case TopicDeletionRequested(topic=topic):
            context.queue_topic_deletion([topic])
        case TopicDeletionCancelled(topic=topic):
            context.unqueue_topic_deletion([topic])
        case TopicRemoved(topic=topic):
            context.remove_topic(topic)
        case Atomic(changes=changes):
            for part in changes:
                _apply(context, part, version)
        case _:
            pass


def _put_topic(
    context: ControllerContext,
    change: TopicCreated | PartitionsAdded | AssignmentChanged,
    version: int,
) -> None:
    is_same = context.topic_ids.get(change.topic) == change.topic_id
    incarnation = context.topic_incarnations.get(change.topic) if is_same else None
    context.put_topic(
        change.topic,
        TopicRecord(
            topic_id=change.topic_id,
            assignment=change.assignment,
            version=version,
            incarnation=_UNREAD if incarnation is None else incarnation,
        ),
    )


def committed_record(change: PartitionChanged, version: int) -> PartitionRecord:
    """A durable change of a partition as the context keeps it."""
    return PartitionRecord(
        replace(change.state, partition_version=version), change.controller_epoch
    )
