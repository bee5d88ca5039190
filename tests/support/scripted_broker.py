"""A broker on loopback that says what a test tells it to: for clients and their bad days."""

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from odradek.client import Client, ClientOptions
from odradek.errors import ErrorCode
from odradek.network import CloseConnectionResponse, NoOpResponse, Request, Response, SendResponse
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.envelope import encode_response, parse_request
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.schema import Message
from tests.support.network import Server, serving

# What to do with a request: answer it, or hang up.
HANG_UP = "hang up"
Answer = Message | str | Callable[[Any], Message | str | None]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def told_topic(name: str, *, partitions: int = 1, leader: int = 0, leader_epoch: int = 0) -> Any:
    """A topic as a Metadata answer tells it."""
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id(name),
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=leader_epoch,
                replica_nodes=(leader,),
                isr_nodes=(leader,),
            )
            for index in range(partitions)
        ],
    )


def missing_topic(name: str, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> Any:
    return MetadataResponseTopic(error_code=code, name=name)


class ScriptedBroker:
    """Answers ApiVersions and Metadata by itself, other requests from its script.

    Each API has a queue of answers; the last one stays. Requests of an API in `slow` wait for
    `answer_held`, and so does what comes behind them on the same connection.
    """

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {}
        self.script: dict[ApiKey, deque[Answer]] = defaultdict(deque)
        self.requests: list[tuple[ApiKey, int, Any]] = []
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        # The finalized levels of the cluster's features.
        self.features: dict[str, int] = {}
        self.slow: set[ApiKey] = set()
        self.held: list[Request] = []
        self.server: Server | None = None

    def will_answer(self, api_key: ApiKey, *answers: Answer) -> None:
        self.script[api_key].extend(answers)

    def received(self, api_key: ApiKey) -> list[Any]:
        return [request for key, _, request in self.requests if key is api_key]

    @property
    def port(self) -> int:
        assert self.server is not None
        return self.server.port()

    def handle(self, request: Request) -> Response | None:
        if request.header.api_key in self.slow:
            self.held.append(request)
            return None
        return self._response(request)

    def answer_held(self) -> None:
        """Answer what waits."""
        assert self.server is not None
        held, self.held = self.held, []
        for request in held:
            self.server.socket_server.data_channel.send_response(self._response(request))

    def _response(self, request: Request) -> Response:
        # Batches are views into the connection's buffer.
        header, message = parse_request(bytes(request.payload))
        self.requests.append((header.api_key, header.api_version, message))
        answer = self._answer(header.api_key, message)
        if answer is None:
            return NoOpResponse(request)
        if isinstance(answer, str):
            return CloseConnectionResponse(request)
        return SendResponse(request, [encode_response(header, answer)])

    def _answer(self, api_key: ApiKey, message: Message) -> Message | str | None:
        queue = self.script[api_key]
        if queue:
            answer = queue.popleft() if len(queue) > 1 else queue[0]
            return answer(message) if callable(answer) else answer
        if isinstance(message, MetadataRequest):
            return self.metadata(message)
        assert api_key is ApiKey.API_VERSIONS, f"the script has no answer to {api_key.name}"
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, support in API_SUPPORT.items()
                for first, last in [
                    self.versions.get(key, (support.parsed.first, support.parsed.last))
                ]
            ],
            finalized_features_epoch=len(self.features),
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in self.features.items()
            ],
        )

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        asked: Sequence[str] = (
            list(self.topics)
            if request.topics is None
            else [topic.name for topic in request.topics if topic.name is not None]
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.port)],
            cluster_id="scripted",
            controller_id=0,
            topics=[self.topics.get(name) or missing_topic(name) for name in asked],
        )


@asynccontextmanager
async def scripted() -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker()
    async with serving(broker.handle) as server:
        broker.server = server
        yield broker


@asynccontextmanager
async def client_of(broker: ScriptedBroker, **options: Any) -> AsyncIterator[Client]:
    """A client that waits a millisecond where others wait a tenth of a second."""
    defaults = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "api_timeout_ms": 5_000}
    bootstrap = (("127.0.0.1", broker.port),)
    async with Client(ClientOptions(bootstrap=bootstrap, **defaults | options)) as client:
        yield client
