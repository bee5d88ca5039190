"""The requests by which the controller of a store engine announces its decisions to brokers.

An engine whose brokers read a metadata log needs none of them.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

__all__ = ["ControlRequest", "ControlRequestHandler", "ControlResponse"]

ControlRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
ControlResponse: TypeAlias = LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
ControlRequestHandler: TypeAlias = Callable[[ControlRequest], Awaitable[ControlResponse]]
