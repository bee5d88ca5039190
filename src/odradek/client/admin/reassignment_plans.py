"""The file of reassignments: JSON as Kafka's tools read and write it. Pure.

::

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}

`log_dirs` may be there, as Kafka's tool writes it, with `any` for each replica: a broker chooses
the directory.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.model import TopicPartition

__all__ = ["ReassignmentFileError", "encode_reassignments", "parse_reassignments"]

_EXAMPLE = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'


class ReassignmentFileError(ValueError):
    """The file has another form; the message names what was expected and found."""


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The document of these targets, in order of partitions."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(targets[tp])}
            for tp in sorted(targets)
        ],
    }


def parse_reassignments(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """The target replicas of each partition.

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
    for number, row in enumerate(document["partitions"]):
        tp, replicas = _parse_row(row, f"partitions[{number}]")
        if tp in targets:
            raise ReassignmentFileError(f"partition {tp} is there twice")
        targets[tp] = replicas
    if not targets:
        raise ReassignmentFileError("expected at least one partition, found none")
    return targets


def _parse_row(row: object, where: str) -> tuple[TopicPartition, tuple[int, ...]]:
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
    directories = row.get("log_dirs")
    if directories is not None and directories != ["any"] * len(replicas):
        raise ReassignmentFileError(
            f'{where}: log_dirs: expected "any" for each replica, found {directories!r:.40};'
            " the broker chooses the directory"
        )
    return TopicPartition(topic, partition), tuple(replicas)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31
