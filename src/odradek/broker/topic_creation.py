"""Topics that are created because a request names them.

The client gets LEADER_NOT_AVAILABLE, refreshes its metadata, and finds the topic once it exists; no
request waits for it, and after a failure the topic does not appear. A request during a creation
starts no second one, and a repeated failure of an internal topic is logged once: clients repeat
their requests.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import NewTopic, TopicResult
from odradek.tasks import Tasks

__all__ = ["MAX_CREATIONS", "AutoTopicCreator"]

logger = logging.getLogger(__name__)

# Creations under way; further ones start when their client repeats its request. The controller
# creates topics one after another, so more at a time would only lengthen its queue.
MAX_CREATIONS: Final = 100


class AutoTopicCreator:
    """Creates topics with the broker's defaults, and internal topics with settings of their own.

    Args:
        create: Has the active controller create topics, wherever it is.
        tasks: Runs the creations.
        internal: Describes the internal topics, by name, at the moment of their creation.
    """

    def __init__(
        self,
        create: Callable[[Sequence[NewTopic]], Awaitable[Sequence[TopicResult]]],
        tasks: Tasks,
        internal: Mapping[str, Callable[[], NewTopic]] = MappingProxyType({}),
    ) -> None:
        self._create_topics = create
        self._tasks = tasks
        self._internal = internal
        # The last error of each internal topic that could not be created.
        self._failures: dict[str, str] = {}
        self._under_way: set[str] = set()

    def would_start(self, topic: str) -> bool:
        """Whether the topic's creation is not under way, and the limit permits one more."""
        return topic not in self._under_way and len(self._under_way) < MAX_CREATIONS

    def start_creation(self, topic: str) -> None:
        """Begins to create a topic, unless that is under way."""
        if not self.would_start(topic):
            return
        self._under_way.add(topic)
        self._tasks.spawn(self._create(topic))

    async def _create(self, topic: str) -> None:
        describe = self._internal.get(topic)
        wanted = NewTopic(name=topic) if describe is None else describe()
        try:
            [result] = await self._create_topics([wanted])
        except ApiError as error:
            self._note_failure(topic, str(error))
        else:
            if result.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._failures.pop(topic, None)
            else:
                self._note_failure(topic, f"{result.error.name} {result.message}")
        finally:
            self._under_way.discard(topic)

    def _note_failure(self, topic: str, why: str) -> None:
        if topic in self._internal:  # The number of other names is unlimited.
            if self._failures.get(topic) == why:
                return
            self._failures[topic] = why
        logger.warning("Topic %s was requested, but cannot be created: %s", topic, why)
