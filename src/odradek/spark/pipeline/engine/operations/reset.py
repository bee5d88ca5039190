"""Deletes the progress of queries: the next run begins anew.

All checkpoints are checked before the first is deleted, so that an active run keeps all of them.
The groups are deleted, too: their offsets would be wrong until the first batch of the next run.
"""

from collections.abc import Sequence

from odradek import Admin
from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.spark.pipeline.engine.operations.checkpoint import CheckpointFolder, Notes
from odradek.spark.pipeline.engine.operations.clusters import Cluster, clusters_of
from odradek.spark.pipeline.engine.operations.positions import position_text
from odradek.spark.pipeline.engine.running.query_plans import QueryPlan
from odradek.spark.pipeline.graph.model import Pipeline, StartPosition

__all__ = ["reset_queries"]

_TIMEOUT_S = 10.0


def reset_queries(
    pipeline: Pipeline, plans: Sequence[QueryPlan], to: StartPosition | None
) -> tuple[str, ...]:
    """Deletes the checkpoints and groups of queries.

    Args:
        pipeline: The pipeline of the queries.
        plans: The queries.
        to: Where the next run begins; None: where the sources say.

    Returns:
        Warnings about groups that could not be deleted.

    Raises:
        CheckpointHeldError: A run is active; nothing was changed.
    """
    folders = [CheckpointFolder(plan.checkpoint) for plan in plans]
    for folder in folders:
        folder.refuse_if_held()
    for plan, folder in zip(plans, folders, strict=True):
        folder.forget()
        if to is not None:
            start = position_text(to)
            folder.take(Notes(pipeline.name, plan.name, fingerprint={}, start=start))
            folder.release()
    groups: dict[Cluster, list[str]] = {}
    for plan in plans:
        for cluster in clusters_of(pipeline, plan.name):
            groups.setdefault(cluster, []).append(plan.group)
    return tuple(
        warning for cluster, held in groups.items() for warning in _forget_groups(cluster, held)
    )


def _forget_groups(cluster: Cluster, groups: Sequence[str]) -> tuple[str, ...]:
    try:
        with Admin(dict(cluster)) as admin:
            found = admin.delete_groups(groups, timeout=_TIMEOUT_S)
    except OdradekError as error:
        return (f"the groups {', '.join(groups)} still show the old positions: {error}",)
    return tuple(
        f"the group {group} still shows the old position: {error}"
        for group, error in found.items()
        if isinstance(error, ApiError) and error.code is not ErrorCode.GROUP_ID_NOT_FOUND
    )
