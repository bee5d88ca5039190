"""DescribeUserScramCredentials: users with SCRAM credentials; mechanisms, never secrets.

This broker has no SASL and makes no credentials, so usually there are none; tools request them
together with a user's quotas. Credentials that another broker left in the store are shown.
"""

from collections import Counter
from collections.abc import Mapping

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import ScramCredential, ScramKey
from odradek.network.request import Request
from odradek.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.security.operations import Operation

__all__ = ["handle_describe_user_scram_credentials"]


@in_slices
def handle_describe_user_scram_credentials(request: Request, context: BrokerContext) -> Steps:
    """Answers from one image; null or an empty list means all users (13 section 5.2)."""
    message = body_of(DescribeUserScramCredentialsRequest, request)
    try:
        check_allowed(context.authorizer, request, Operation.DESCRIBE)
    except ApiError as error:
        refusal = DescribeUserScramCredentialsResponse(
            error_code=error.code, error_message=str(error)
        )
        return reply_throttled(request, refusal, context)
    stored = _by_user(context.cache.image.scram)
    asked = Counter(user.name for user in message.users or ())
    names = list(asked) or sorted(stored)
    rows = []
    for name in names:
        rows.append(_row(name, stored, is_repeated=asked[name] > 1))
        yield
    response = DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=rows
    )
    return (yield from reply_in_slices(request, response, context))


def _by_user(stored: Mapping[ScramKey, ScramCredential]) -> dict[str, list[CredentialInfo]]:
    users: dict[str, list[CredentialInfo]] = {}
    for user, mechanism in sorted(stored):
        iterations = stored[ScramKey(user, mechanism)].iterations
        info = CredentialInfo(mechanism=mechanism, iterations=iterations)
        users.setdefault(user, []).append(info)
    return users


def _row(
    name: str, stored: Mapping[str, list[CredentialInfo]], *, is_repeated: bool
) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message="the user is named twice in the request",
        )
    if name not in stored:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message="the user has no SCRAM credentials",
        )
    return DescribeUserScramCredentialsResult(
        user=name, error_code=ErrorCode.NONE, error_message=None, credential_infos=stored[name]
    )
