"""ApiVersions: what a client says of itself is remembered."""

import pytest

from odradek.broker.dispatch import HANDLERS
from odradek.network.request import ClientInformation, Request, SendResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, FakeConnection


class RememberingConnection(FakeConnection):
    def __init__(self) -> None:
        super().__init__()
        self.registered: list[ClientInformation] = []

    def register_client(self, information: ClientInformation) -> None:
        self.registered.append(information)


@pytest.mark.parametrize(
    ("version", "name", "registered"),
    [
        (3, "librdkafka", [ClientInformation("librdkafka", "2.16.0")]),
        (4, "x" * 65, [ClientInformation("x" * 64, "2.16.0")]),
        (3, "no name!", []),
        (2, "", []),
    ],
)
def test_the_software_of_a_client_is_registered(
    version: int, name: str, registered: list[ClientInformation]
) -> None:
    message = ApiVersionsRequest(client_software_name=name, client_software_version="2.16.0")
    connection = RememberingConnection()
    body = encode_message(message, version)
    header = RequestHeader(ApiKey.API_VERSIONS, version, 1, "test")
    request = Request(connection, header, memoryview(body), 0, 0)

    response = HANDLERS[ApiKey.API_VERSIONS](request, BrokerFixture().context)

    assert isinstance(response, SendResponse)
    assert connection.registered == registered
