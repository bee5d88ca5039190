"""Requests about access rules, SCRAM and SASL, none of which this broker has."""

from typing import Any

import pytest

from odradek.broker.dispatch import HANDLERS
from odradek.errors import ErrorCode
from odradek.metadata.delta import ClusterDelta
from odradek.metadata.image import ScramCredential, ScramKey
from odradek.network.request import SendResponse
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.schema import Message
from odradek.security.operations import Operation, ResourceType
from odradek.security.principal import Principal
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, parsed

ACL_REQUESTS: dict[ApiKey, Message] = {
    ApiKey.DESCRIBE_ACLS: DescribeAclsRequest(resource_type_filter=1),
    ApiKey.CREATE_ACLS: CreateAclsRequest(
        creations=[AclCreation(resource_name="t"), AclCreation(resource_name="u")]
    ),
    ApiKey.DELETE_ACLS: DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter()]),
}
RIGHTS = {
    ApiKey.DESCRIBE_ACLS: Operation.DESCRIBE,
    ApiKey.CREATE_ACLS: Operation.ALTER,
    ApiKey.DELETE_ACLS: Operation.ALTER,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Operation.DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Operation.ALTER,
}


class Denying:
    """Denies one operation on the cluster."""

    def __init__(self, operation: Operation) -> None:
        self.denied = operation

    def is_allowed(
        self,
        _principal: Principal,
        _host: str,
        operation: Operation,
        resource: ResourceType,
        _name: str,
    ) -> bool:
        return (operation, resource) != (self.denied, ResourceType.CLUSTER)


def ask(broker: BrokerFixture, key: ApiKey, message: Message, version: int | None = None) -> Any:
    version = API_SUPPORT[key].accepted.last if version is None else version
    response = broker.call(HANDLERS[key], broker.request(key, message, version))
    assert isinstance(response, SendResponse)
    return parsed(response, Message)


def codes(key: ApiKey, answer: Any) -> list[int]:
    if key is ApiKey.DESCRIBE_ACLS:
        assert not answer.resources
        return [answer.error_code]
    rows = answer.results if key is ApiKey.CREATE_ACLS else answer.filter_results
    return [row.error_code for row in rows]


ACL_VERSIONS = [
    (key, version)
    for key in ACL_REQUESTS
    for version in range(API_SUPPORT[key].accepted.first, API_SUPPORT[key].accepted.last + 1)
]


@pytest.mark.parametrize(("key", "version"), ACL_VERSIONS)
def test_access_rules_are_disabled_in_every_version(key: ApiKey, version: int) -> None:
    """13 section 11: without an authorizer SECURITY_DISABLED, for each thing that was asked."""
    answer = ask(BrokerFixture(), key, ACL_REQUESTS[key], version)
    expected = 1 if key is ApiKey.DESCRIBE_ACLS else 2
    assert codes(key, answer) == [ErrorCode.SECURITY_DISABLED] * expected


@pytest.mark.parametrize("key", ACL_REQUESTS)
def test_who_may_not_ask_for_access_rules_is_told_that(key: ApiKey) -> None:
    answer = ask(BrokerFixture(authorizer=Denying(RIGHTS[key])), key, ACL_REQUESTS[key])
    assert set(codes(key, answer)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def described(broker: BrokerFixture, *names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    users = [UserName(name=name) for name in names] if names else None
    answer = ask(
        broker,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest(users=users),
    )
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (row.user, row.error_code, [(i.mechanism, i.iterations) for i in row.credential_infos])
        for row in answer.results
    ]


def test_no_user_has_credentials() -> None:
    """13 section 5.2: an empty list, which `kafka-configs --entity-type users` asks for."""
    assert described(BrokerFixture()) == []
    assert described(BrokerFixture(), "u") == [("u", ErrorCode.RESOURCE_NOT_FOUND, [])]
    assert described(BrokerFixture(), "u", "u") == [("u", ErrorCode.DUPLICATE_RESOURCE, [])]


def test_credentials_that_another_broker_left_are_shown_without_secrets() -> None:
    broker = BrokerFixture()
    credential = ScramCredential(b"salt", b"stored", b"server", 8192)
    stored = dict.fromkeys((ScramKey("b", 2), ScramKey("b", 1), ScramKey("a", 1)), credential)
    broker.publish(ClusterDelta(scram=stored))
    assert described(broker) == [("a", 0, [(1, 8192)]), ("b", 0, [(1, 8192), (2, 8192)])]
    assert described(broker, "b") == [("b", 0, [(1, 8192), (2, 8192)])]


def test_who_may_not_describe_credentials_is_told_that() -> None:
    broker = BrokerFixture(authorizer=Denying(Operation.DESCRIBE))
    message = DescribeUserScramCredentialsRequest(users=None)
    answer = ask(broker, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, message)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def altered(broker: BrokerFixture) -> list[tuple[str, int]]:
    message = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name="gone", mechanism=1),
            ScramCredentialDeletion(name="odd", mechanism=9),
            ScramCredentialDeletion(name="twice", mechanism=1),
        ],
        upsertions=[
            ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"s")
            for name in ("twice", "new", "")
        ],
    )
    answer = ask(broker, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, message)
    return [(row.user, row.error_code) for row in answer.results]


def test_no_credential_is_made() -> None:
    """13 section 5.2: the checks in their order; no mechanism is served, so none can be set."""
    broker = BrokerFixture()
    assert altered(broker) == [
        ("gone", ErrorCode.RESOURCE_NOT_FOUND),
        ("odd", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("twice", ErrorCode.DUPLICATE_RESOURCE),
        ("new", ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("", ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ]
    assert described(broker) == []


def test_credentials_are_for_the_controller_and_for_who_may_alter_the_cluster() -> None:
    broker = BrokerFixture()
    broker.controller.is_active = False
    assert {code for _, code in altered(broker)} == {ErrorCode.NOT_CONTROLLER}
    denied = BrokerFixture(authorizer=Denying(Operation.ALTER))
    assert {code for _, code in altered(denied)} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_comes_out_of_turn_on_a_listener_without_sasl(version: int) -> None:
    """13 section 18: 34, and the connection stays open."""
    message = SaslHandshakeRequest(mechanism="PLAIN")
    answer = ask(BrokerFixture(), ApiKey.SASL_HANDSHAKE, message, version)
    assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_so_does_a_token(version: int) -> None:
    message = SaslAuthenticateRequest(auth_bytes=b"\0u\0xyzzy")
    answer = ask(BrokerFixture(), ApiKey.SASL_AUTHENTICATE, message, version)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert answer.auth_bytes == b""
    assert "xyzzy" not in answer.error_message
