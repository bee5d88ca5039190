"""The file of reassignments: JSON as Kafka's tools read and write it. Pure.

::

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}

`log_dirs` may be there, as Kafka's tool writes it: for each replica the absolute path of a data
directory of its broker, or `any`: then the broker chooses the directory, or the replica stays in
its own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odradek.model import ReplicaId, TopicPartition

__all__ = [
    "ReassignmentFileError",
    "ReassignmentPlan",
    "encode_reassignments",
    "parse_reassignments",
]

_ANY = "any"

_EXAMPLE = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'


class ReassignmentFileError(ValueError):
    """The file has another form; the message names what was expected and found."""


class ReassignmentPlan(NamedTuple):
    """The targets of a file."""

    replicas: dict[TopicPartition, tuple[int, ...]]
    directories: dict[ReplicaId, str]  # Of those replicas for which it names one.


def encode_reassignments(
    targets: Mapping[TopicPartition, Sequence[int]],
    directories: Mapping[ReplicaId, str] | None = None,
) -> dict[str, Any]:
    """The document of these targets, in order of partitions."""
    rows = []
    for tp in sorted(targets):
        row: dict[str, Any] = {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(targets[tp]),
        }
        paths = [(directories or {}).get(ReplicaId(tp, broker), _ANY) for broker in targets[tp]]
        if set(paths) - {_ANY}:
            row["log_dirs"] = paths
        rows.append(row)
    return {"version": 1, "partitions": rows}


def parse_reassignments(text: str) -> ReassignmentPlan:
    """The target replicas of each partition, and their directories.

    Raises:
        ReassignmentFileError: It is no such document.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReassignmentFileError(f"expected JSON like {_EXAMPLE}: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ReassignmentFileError(f"expected an object like {_EXAMPLE}")
    if document.get("version", 1) != 1:
        raise ReassignmentFileError(f"expected version 1, found {document['version']!r:.40}")
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    directories: dict[ReplicaId, str] = {}
    for number, row in enumerate(document["partitions"]):
        tp, replicas, paths = _parse_row(row, f"partitions[{number}]")
        if tp in targets:
            raise ReassignmentFileError(f"partition {tp} is there twice")
        targets[tp] = replicas
        directories |= {
            ReplicaId(tp, broker): path
            for broker, path in zip(replicas, paths, strict=True)
            if path != _ANY
        }
    if not targets:
        raise ReassignmentFileError("expected at least one partition, found none")
    return ReassignmentPlan(targets, directories)


def _parse_row(row: object, where: str) -> tuple[TopicPartition, tuple[int, ...], Sequence[str]]:
    if not isinstance(row, dict):
        raise ReassignmentFileError(f"{where}: expected an object, found {row!r:.40}")
    topic, partition, replicas = (row.get(key) for key in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or not topic:
        raise ReassignmentFileError(f"{where}: topic: expected a name, found {topic!r:.40}")
    if not isinstance(partition, int) or not _is_number(partition):
        raise ReassignmentFileError(
            f"{where}: partition: expected a number, found {partition!r:.40}"
        )
    if not isinstance(replicas, list) or not all(map(_is_number, replicas)):
        raise ReassignmentFileError(
            f"{where}: replicas: expected a list of broker ids, found {replicas!r:.40}"
        )
    paths = row.get("log_dirs")
    if paths is None:
        paths = [_ANY] * len(replicas)
    if (
        not isinstance(paths, list)
        or len(paths) != len(replicas)
        or not all(isinstance(one, str) and (one == _ANY or one.startswith("/")) for one in paths)
    ):
        raise ReassignmentFileError(
            f'{where}: log_dirs: expected "any" or an absolute path for each replica, found'
            f" {paths!r:.80}"
        )
    return TopicPartition(topic, partition), tuple(replicas), paths


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31
