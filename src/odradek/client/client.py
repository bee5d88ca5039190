"""Requests to a cluster: to any broker, to the controller, to the leaders of partitions.

The producer, the consumer, the administrator and the command line send their requests here. Rules:

1. The first connection must succeed at once: a wrong address is reported in a second, not in a
   minute. Connections that are lost later are opened again until the call's deadline.
2. Each API is spoken in the newest version that the broker and we know.
3. A retriable error is followed by a pause and another attempt; one that says so, or a lost
   connection, by new metadata first.
4. A request that changes something is not sent again after a lost connection, unless the caller
   says that doing it twice is harmless: whether it was done is unknown.

Belongs to the loop it was opened on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from random import Random
from types import TracebackType
from typing import Final, Self, TypeVar

from odradek.client.cluster import Cluster, TopicView
from odradek.client.connections import Connections, wait_for_place
from odradek.client.errors import CallTimeoutError
from odradek.client.options import ClientOptions
from odradek.client.retry import Deadline, backoff_ms
from odradek.clock import Clock, SystemClock
from odradek.errors import ApiError, DisconnectedError, ErrorCode, RequestTimedOutError
from odradek.model import TopicPartition
from odradek.network.outbound import OutboundConnection
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

__all__ = ["Client"]

# Ten years, for a timeout that is infinite.
MAX_TIMEOUT_S: Final = 315_360_000

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Client:
    """See the module's docstring. An async context manager."""

    def __init__(
        self,
        options: ClientOptions,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self._rng = rng or Random()  # noqa: S311 - spreads load, guards nothing
        self._connections = Connections(options, self._rng)
        self._cluster = Cluster()
        # Monotonic milliseconds at which each topic was last described by a broker.
        self._told_at_ms: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def connect(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as callers
        """Connects to one broker and learns of the others: rule 1.

        Raises:
            ApiError: No broker of the bootstrap list answers.
        """
        await self._refresh((), self.deadline_after(timeout))

    def close(self) -> None:
        """Ends every connection. A second call does nothing."""
        self._connections.close()

    @property
    def cluster(self) -> Cluster:
        """The cluster, as brokers last described it."""
        return self._cluster

    def feature(self, name: str) -> int:
        """The level of a feature of the cluster, as brokers told it last; 0 if there is none."""
        return self._connections.features.get(name, 0)

    def deadline(self, timeout_ms: int | None = None) -> Deadline:
        """The deadline of a call that begins now."""
        return Deadline(
            self.clock, self.options.api_timeout_ms if timeout_ms is None else timeout_ms
        )

    def deadline_after(self, timeout: float | None) -> Deadline:
        """The same for a timeout in seconds, as callers of the public clients give it.

        Raises:
            ValueError: It is negative.
        """
        if timeout is None:
            return self.deadline()
        if not timeout >= 0:
            raise ValueError(f"timeout={timeout!r}: expected seconds, at least 0, or None")
        return self.deadline(int(min(timeout, MAX_TIMEOUT_S) * 1000))

    # Requests

    async def ask(
        self,
        connection: OutboundConnection,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        within: VersionRange | None = None,
    ) -> M:
        """One request on one connection, tried once.

        Raises:
            ApiError: The connection ended, the time is over, or the broker lacks the API.
        """
        version = connection.version_for(api_key, within)
        await wait_for_place(connection, deadline)
        timeout_ms = max(min(deadline.left_ms(), self.options.request_timeout_ms), 1)
        response = await connection.request(api_key, request, version, timeout_ms=timeout_ms)
        assert isinstance(response, answer_type), "the registry gave another class"
        return response

    async def ask_any(
        self,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        repeatable: bool = True,
    ) -> M:
        """A request that every broker can answer."""

        async def connect() -> OutboundConnection:
            return await self._connections.to_any(self._cluster.nodes.values(), deadline)

        return await self._ask_through(
            connect, api_key, request, answer_type, deadline, repeatable=repeatable
        )

    async def ask_broker(
        self,
        node_id: int,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        repeatable: bool = True,
        lane: str = "",
    ) -> M:
        """A request for one broker."""

        async def connect() -> OutboundConnection:
            return await self.connection_to(node_id, deadline, lane=lane)

        return await self._ask_through(
            connect, api_key, request, answer_type, deadline, repeatable=repeatable
        )

    async def ask_controller(
        self,
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        repeatable: bool = False,
    ) -> M:
        """A request for the broker that is the controller now."""

        async def connect() -> OutboundConnection:
            if self._cluster.controller_id not in self._cluster.nodes:
                await self._refresh((), deadline)
            if self._cluster.controller_id not in self._cluster.nodes:
                raise ApiError(
                    ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no controller at the moment"
                )
            return await self.connection_to(self._cluster.controller_id, deadline)

        return await self._ask_through(
            connect, api_key, request, answer_type, deadline, repeatable=repeatable
        )

    async def connection_to(
        self, node_id: int, deadline: Deadline, *, lane: str = ""
    ) -> OutboundConnection:
        """The connection to a broker; another `lane` is another connection, see `Connections`.

        Raises:
            ApiError: BROKER_NOT_AVAILABLE, the cluster has no such broker; or it does not answer.
        """
        node = self._cluster.nodes.get(node_id)
        if node is None:
            await self.refresh((), deadline)
            node = self._cluster.nodes.get(node_id)
        if node is None:
            known = ", ".join(map(str, sorted(self._cluster.nodes))) or "none"
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"no broker {node_id}; there are: {known}"
            )
        return await self._connections.to(node.host, node.port, deadline, lane=lane)

    def opened_connection(self, node_id: int, *, lane: str = "") -> OutboundConnection | None:
        """The connection to a broker if there is one already."""
        node = self._cluster.nodes.get(node_id)
        return None if node is None else self._connections.opened(node.host, node.port, lane)

    async def any_connection(self, deadline: Deadline) -> OutboundConnection:
        """A connection to any broker."""
        return await self._connections.to_any(self._cluster.nodes.values(), deadline)

    async def _ask_through(
        self,
        connect: Callable[[], Awaitable[OutboundConnection]],
        api_key: ApiKey,
        request: Message,
        answer_type: type[M],
        deadline: Deadline,
        *,
        repeatable: bool,
    ) -> M:
        async def attempt() -> M:
            connection = await connect()
            try:
                return await self.ask(connection, api_key, request, answer_type, deadline)
            except (DisconnectedError, RequestTimedOutError) as error:
                if repeatable:
                    raise
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{api_key.name}: whether it was done is unknown: {error}",
                ) from error

        return await self.retry(api_key.name, attempt, deadline)

    async def retry(self, what: str, attempt: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Tries until it succeeds, fails for good, or the time is over.

        Raises:
            ApiError: As `attempt` raised it, if trying again does not help.
            CallTimeoutError: The time is over; the message has the last failure.
        """
        before: ApiError | None = None
        for pause_ms in self.pauses_ms():
            try:
                return await attempt()
            except ApiError as error:
                if not error.code.retriable:
                    raise
                if deadline.left_ms() <= pause_ms:
                    # The failure before it explains more than the end of the time does.
                    is_cut = isinstance(error, RequestTimedOutError)
                    reason = before if is_cut and before is not None else error
                    raise CallTimeoutError(
                        f"{what}: gave up after {deadline.timeout_ms} ms: {reason}", reason
                    ) from reason
                before = error
                needs_metadata = error.code.refresh_metadata
            await asyncio.sleep(pause_ms / 1000)
            if needs_metadata:
                await self.refresh((), deadline)
        raise AssertionError("pauses never end")

    def pauses_ms(self) -> Iterator[int]:
        """The pauses between the attempts of one call, without end."""
        options = self.options
        return backoff_ms(options.retry_backoff_ms, options.retry_backoff_max_ms, self._rng)

    # Metadata

    async def topic(
        self, name: str, *, create: bool = False, deadline: Deadline | None = None
    ) -> TopicView:
        """A topic, described completely.

        Args:
            create: Whether the cluster may create it, if it does so at all.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, there is none; or the error of a broker's answer.
        """
        deadline = deadline or self.deadline()
        known = self._cluster.topics.get(name)
        if known is not None and not self._is_old(name):
            return known
        unknown_until = deadline.within(self.options.unknown_topic_timeout_ms)

        async def look_up() -> TopicView:
            errors = await self._refresh((name,), deadline, create=create)
            code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic = self._cluster.topics.get(name)
            if topic is not None:
                return topic
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not unknown_until.left_ms():
                raise _UnknownTopic(name)
            raise ApiError(code, f"topic {name!r}: {code.name}")

        try:
            return await self.retry(f"metadata of topic {name!r}", look_up, deadline)
        except _UnknownTopic:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist"
            ) from None
        except CallTimeoutError as error:
            cause = error.__cause__
            if not isinstance(cause, ApiError):
                raise
            if cause.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise ApiError(
                cause.code, f"topic {name!r} does not exist, after {deadline.timeout_ms} ms"
            ) from None

    async def topics(
        self, names: Collection[str] | None = None, deadline: Deadline | None = None
    ) -> dict[str, TopicView | ApiError]:
        """Topics as a broker describes them now, all of them if none is named; creates nothing.

        A topic that does not exist has its own error, without another attempt.
        """
        deadline = deadline or self.deadline()

        async def look_up() -> dict[str, ErrorCode]:
            return await self._refresh(names, deadline)

        errors = await self.retry("metadata", look_up, deadline)
        found: dict[str, TopicView | ApiError] = {}
        for name in sorted(self._cluster.topics if names is None else set(names)):
            topic = self._cluster.topics.get(name)
            if topic is not None:
                found[name] = topic
            else:
                code = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                found[name] = ApiError(code, _topic_error(name, code))
        return found

    async def refresh(self, names: Collection[str], deadline: Deadline) -> None:
        """Looks topics up once; a failure shows in the request that needs them."""
        try:
            await self._refresh(names, deadline)
        except ApiError as error:
            if not error.code.retriable:
                raise

    def forget_leader(self, tp: TopicPartition, node_id: int) -> None:
        """Takes note that a broker does not lead a partition, or cannot be reached."""
        self._cluster = self._cluster.without_leader(tp, node_id=node_id)

    def _is_old(self, name: str) -> bool:
        told_at_ms = self._told_at_ms.get(name)
        if told_at_ms is None:
            return True
        return self.clock.monotonic_ms() - told_at_ms >= self.options.metadata_max_age_ms

    async def _refresh(
        self, names: Collection[str] | None, deadline: Deadline, *, create: bool = False
    ) -> dict[str, ErrorCode]:
        """Asks one broker once; returns the errors of single topics."""
        connection = await self.any_connection(deadline)
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        response = await self.ask(connection, ApiKey.METADATA, request, MetadataResponse, deadline)
        self._cluster, errors = self._cluster.merged(response, names)
        now_ms = self.clock.monotonic_ms()
        for topic in response.topics:
            if topic.name is not None:
                self._told_at_ms[topic.name] = now_ms
        return errors


class _UnknownTopic(Exception):  # noqa: N818 - leaves the retries of `topic`, and goes no further
    pass


def _topic_error(name: str, code: ErrorCode) -> str:
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {name!r} does not exist"
    return f"topic {name!r}: {code.name}"
