"""The coordinator of a group or of a transactional id: looked up, asked, and looked up again.

Every method here tries once; the caller decides whether to try again. After an answer that says the
coordinator has moved, and after a lost connection, the next call looks it up again. Requests have a
connection of their own, on a lane, where no other request keeps them waiting.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, ClassVar, Final, TypeVar

from odradek.client.client import Client
from odradek.client.connections import wait_for_place
from odradek.client.errors import CallTimeoutError
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import (
    ApiError,
    DecodeError,
    DisconnectedError,
    ErrorCode,
    RequestTimedOutError,
)
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.enums import CoordinatorType
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

__all__ = ["CoordinatorLink"]

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)

# FindCoordinator: the first version that names several keys.
_SEVERAL_KEYS: Final = 4

_MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

_NOUNS: Final = {
    CoordinatorType.GROUP: "group",
    CoordinatorType.TRANSACTION: "transactional id",
}


class CoordinatorLink:
    """See the module's docstring. A subclass says what kind of key it has, and the lane.

    Args:
        key: The id of the group, or the transactional id.
    """

    _type: ClassVar[CoordinatorType]
    _lane: ClassVar[str]

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self.key = key
        # For messages, as "group 'g'".
        self._what = f"{_NOUNS[self._type]} {key!r}"
        self._node_id: int | None = None
        # Held by the call that looks it up; others wait for its result.
        self._finding = asyncio.Lock()

    @property
    def is_known(self) -> bool:
        return self._node_id is not None

    def forget(self, why: object) -> None:
        """Looks it up again before the next request."""
        if self._node_id is not None:
            noun = _NOUNS[self._type].capitalize()
            logger.info("%s %s: coordinator %d: %s", noun, self.key, self._node_id, why)
            self._node_id = None

    async def find(self, deadline: Deadline) -> int:
        """Its broker, looked up once if it is not known.

        Raises:
            ApiError: It cannot be found, for now or for good.
        """
        if self._node_id is not None:
            return self._node_id
        try:
            # The call that looks it up may have a later deadline than this one.
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await self._finding.acquire()
        except TimeoutError:
            raise CallTimeoutError(
                f"coordinator of {self._what}: not found in {deadline.timeout_ms} ms"
            ) from None
        try:
            if self._node_id is None:
                self._node_id = await self._find(deadline)
            return self._node_id
        finally:
            self._finding.release()

    async def _find(self, deadline: Deadline) -> int:
        client = self._client
        connection = await client.any_connection(deadline)
        if connection.version_for(ApiKey.FIND_COORDINATOR) >= _SEVERAL_KEYS:
            request = FindCoordinatorRequest(key_type=self._type, coordinator_keys=(self.key,))
        else:
            request = FindCoordinatorRequest(key=self.key, key_type=self._type)
        response = await client.ask(
            connection, ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, deadline
        )
        # One answer for the key, nested or not.
        answer = response.coordinators[0] if response.coordinators else response
        if answer.error_code != ErrorCode.NONE:
            what = f"coordinator of {self._what}"
            raise api_error(answer.error_code, answer.error_message, what)
        if answer.node_id not in client.cluster.nodes:
            await client.refresh((), deadline)
        if answer.node_id not in client.cluster.nodes:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"coordinator of {self._what}: broker {answer.node_id} is not there",
            )
        return answer.node_id

    async def connection(
        self, deadline: Deadline, *, lane: str | None = None
    ) -> OutboundConnection:
        """The connection to it.

        Raises:
            ApiError: It cannot be found or reached.
        """
        node_id = await self.find(deadline)
        try:
            return await self._client.connection_to(
                node_id, deadline, lane=self._lane if lane is None else lane
            )
        except ApiError as error:
            self.forget(error)
            if error.code is ErrorCode.BROKER_NOT_AVAILABLE:
                # The broker left the cluster. Its keys get another coordinator.
                raise ApiError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"coordinator of {self._what}: {error}"
                ) from error
            raise

    def drop_connection(self) -> None:
        """Ends the connection, and with it the requests that wait there for an answer."""
        if self._node_id is not None:
            connection = self._client.opened_connection(self._node_id, lane=self._lane)
            if connection is not None:
                connection.close("the answers are no longer wanted")

    async def ask(
        self,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        timeout_ms: int | None = None,
        lane: str | None = None,
        within: VersionRange | None = None,
    ) -> M:
        """Sends one request, once. The caller looks at errors inside of the answer.

        Args:
            timeout_ms: How long the answer may take; `request.timeout.ms` if not given.
            within: The versions that can carry the request; all if not given.

        Raises:
            ApiError: It cannot be found, the connection ended, or the time is over.
        """
        answer = await self.send(
            api_key, request, answer_type, deadline, timeout_ms=timeout_ms, lane=lane, within=within
        )
        return await answer

    async def send(
        self,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        timeout_ms: int | None = None,
        lane: str | None = None,
        within: VersionRange | None = None,
    ) -> Coroutine[Any, Any, M]:
        """Sends a request; returns an awaitable of the answer as soon as it is sent.

        Requests of one lane are served in the order in which they are sent.

        Raises:
            ApiError: As `ask`.
        """
        connection = await self.connection(deadline, lane=lane)
        version = connection.version_for(api_key, within)
        if timeout_ms is None:
            timeout_ms = max(min(deadline.left_ms(), self._client.options.request_timeout_ms), 1)
        try:
            await wait_for_place(connection, deadline)
            answer = connection.send(
                api_key, version, encode_message_parts(request, version), timeout_ms=timeout_ms
            )
        except (DisconnectedError, RequestTimedOutError) as error:
            self.forget(error)
            raise
        return self._read(connection, api_key, version, answer, answer_type)

    async def _read(
        self,
        connection: OutboundConnection,
        api_key: ApiKey,
        version: int,
        answer: "asyncio.Future[memoryview]",
        answer_type: type[M],
    ) -> M:
        try:
            _, response = parse_response(await answer, api_key, version)
        except DecodeError as error:
            connection.close(f"a bad answer to {api_key.name} v{version}: {error}")
            self.forget(error)
            raise DisconnectedError(f"{connection} gave a bad answer: {error}") from error
        except (DisconnectedError, RequestTimedOutError) as error:
            self.forget(error)
            raise
        assert isinstance(response, answer_type), "the registry gave another class"
        return response

    def check(self, code: int, what: str) -> None:
        """Raises the error of an answer; a coordinator that has moved is forgotten.

        Raises:
            ApiError: The answer is an error.
        """
        if code == ErrorCode.NONE:
            return
        error = api_error(code, None, f"{self._what}: {what}")
        if error.code in _MOVED:
            self.forget(error)
        raise error
