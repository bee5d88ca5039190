"""AlterUserScramCredentials: refused for each user, since this broker has no SASL.

Accepting a credential would suggest a login that no listener checks.
"""

from collections import Counter
from typing import Final

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.handlers._topic_changes import NOT_CONTROLLER_MESSAGE
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.network.request import Request
from odradek.protocol.enums import ScramMechanism
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from odradek.security.operations import Operation

__all__ = ["handle_alter_user_scram_credentials"]

_KNOWN_MECHANISMS: Final = frozenset(ScramMechanism)


@in_slices
def handle_alter_user_scram_credentials(request: Request, context: BrokerContext) -> Steps:
    """One row per user, in the order of their first mention (13 section 5.2)."""
    message = body_of(AlterUserScramCredentialsRequest, request)
    error: ApiError | None = None
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
        if not context.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
    except ApiError as refusal:
        error = refusal
    deleted = {row.name: row.mechanism for row in message.deletions}
    names = [row.name for row in message.deletions] + [row.name for row in message.upsertions]
    asked = Counter(names)
    rows = []
    for name, count in asked.items():
        why = error or _refusal(name, deleted.get(name), is_repeated=count > 1)
        row = AlterUserScramCredentialsResult(
            user=name, error_code=why.code, error_message=str(why)
        )
        rows.append(row)
        yield
    answer = AlterUserScramCredentialsResponse(results=rows)
    return (yield from reply_in_slices(request, answer, context))


def _refusal(name: str, deleted_mechanism: int | None, *, is_repeated: bool) -> ApiError:
    if is_repeated:
        return ApiError(ErrorCode.DUPLICATE_RESOURCE, "the user is named twice in the request")
    if not name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "expected a user, found an empty name")
    if deleted_mechanism in _KNOWN_MECHANISMS:
        return ApiError(ErrorCode.RESOURCE_NOT_FOUND, "the user has no such SCRAM credential")
    return ApiError(
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "this broker has no SASL, and no client could log in with the credential",
    )
