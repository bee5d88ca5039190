"""Bytes over sockets: listeners, connections and the way of a request to its handler and back.

This package knows frames and headers, not the semantics of any API.
"""

from odradek.network.authentication import AuthenticationStep, Authenticator, ListenerSecurity
from odradek.network.config import ListenerLimits, NetworkConfig
from odradek.network.endpoint import published_endpoints
from odradek.network.outbound import OutboundConnection, OutboundOptions
from odradek.network.rate import SampledRate
from odradek.network.request import (
    ClientInformation,
    CloseConnectionResponse,
    ConnectionContext,
    NoOpResponse,
    Request,
    Response,
    SendResponse,
    is_valid_client_information,
)
from odradek.network.request_channel import Handler, RequestChannel
from odradek.network.send_queue import Chunk, FileRegion
from odradek.network.socket_server import SocketServer

__all__ = [
    "AuthenticationStep",
    "Authenticator",
    "Chunk",
    "ClientInformation",
    "CloseConnectionResponse",
    "ConnectionContext",
    "FileRegion",
    "Handler",
    "ListenerLimits",
    "ListenerSecurity",
    "NetworkConfig",
    "NoOpResponse",
    "OutboundConnection",
    "OutboundOptions",
    "Request",
    "RequestChannel",
    "Response",
    "SampledRate",
    "SendResponse",
    "SocketServer",
    "is_valid_client_information",
    "published_endpoints",
]
