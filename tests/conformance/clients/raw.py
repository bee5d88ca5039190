"""A connection that sends what it is told to, in any version, byte for byte if need be."""

import itertools
import socket
import struct
from types import TracebackType
from typing import Self

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_request, parse_response
from odradek.protocol.headers import RequestHeader
from odradek.protocol.schema import Message

__all__ = ["RawConnection"]

_TIMEOUT_S = 90


class RawConnection:
    """A blocking connection to a broker on this machine."""

    def __init__(self, port: int, *, client_id: str = "raw") -> None:
        self._client_id = client_id
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def call(self, api_key: ApiKey, version: int, request: Message) -> Message:
        """Sends a request and returns the answer to it."""
        sent_id = next(self._correlation_ids)
        self.send_request(api_key, version, sent_id, request)
        correlation_id, response = parse_response(self.receive_frame(), api_key, version)
        assert correlation_id == sent_id
        return response

    def send_request(
        self, api_key: ApiKey, version: int, correlation_id: int, request: Message
    ) -> None:
        header = RequestHeader(api_key, version, correlation_id, self._client_id)
        self.send_frame(encode_request(header, request))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_frame(self, payload: bytes) -> None:
        self.send(struct.pack(">i", len(payload)) + payload)

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def is_closed_by_peer(self) -> bool:
        """Waits for the end of the stream; whether nothing came before it."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            assert chunk, f"the broker closed the connection {len(data)} bytes into {count}"
            data += chunk
        return data
