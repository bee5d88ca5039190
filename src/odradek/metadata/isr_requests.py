"""ISR changes that leaders request of the controller, and its answers. Pure."""

import uuid
from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.model import LeaderAndIsr

__all__ = ["IsrResult", "WantedIsr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedIsr:
    """The ISR that a leader wants for one partition, which the topic's name or its id names."""

    topic: str  # Empty if the id names the topic.
    topic_id: uuid.UUID | None
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_version: int  # That the change replaces.
    # The registrations of the members that the leader knows, by broker.
    broker_epochs: Mapping[int, int] = field(default_factory=dict)


class IsrResult(NamedTuple):
    """The outcome for one partition: an error, or the state that is stored now."""

    error: ErrorCode
    state: LeaderAndIsr | None = None
