"""Topics that are created because a request names them.

Whoever asks is told LEADER_NOT_AVAILABLE, refreshes, and finds the topic once it is there; nobody
waits for it here, and a failure shows as the topic staying away. Asking again while a creation is
under way starts no second one, and the same failure again is not logged again: clients keep asking.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import NewTopic
from odradek.metadata.ports import ControllerApi
from odradek.tasks import Tasks

__all__ = ["MAX_CREATIONS", "AutoTopicCreator"]

logger = logging.getLogger(__name__)

# Creations under way; further ones wait for their client to ask again. The controller makes them
# one after another, so more at a time would only lengthen its queue.
MAX_CREATIONS: Final = 100


class AutoTopicCreator:
    """Makes topics with the broker's defaults; those it keeps its own state in, as they must be.

    Args:
        controller: Makes them, if it is the active one; if not, the topic stays away.
        tasks: Runs what takes a while.
        internal: Topics that are made otherwise, by name.
    """

    def __init__(
        self,
        controller: ControllerApi,
        tasks: Tasks,
        internal: Mapping[str, NewTopic] = MappingProxyType({}),
    ) -> None:
        self._controller = controller
        self._tasks = tasks
        self._internal = internal
        # Why each internal topic could not be made the last time.
        self._failures: dict[str, str] = {}
        self._under_way: set[str] = set()

    def would_start(self, topic: str) -> bool:
        """Whether the topic is not under way yet, and there is room for one more."""
        return topic not in self._under_way and len(self._under_way) < MAX_CREATIONS

    def start_creation(self, topic: str) -> None:
        """Begins to create a topic, unless that is under way."""
        if not self.would_start(topic):
            return
        self._under_way.add(topic)
        self._tasks.spawn(self._create(topic))

    async def _create(self, topic: str) -> None:
        wanted = self._internal.get(topic) or NewTopic(name=topic)
        try:
            [result] = await self._controller.create_topics([wanted], validate_only=False)
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
        if topic in self._internal:  # Other names have no end.
            if self._failures.get(topic) == why:
                return
            self._failures[topic] = why
        logger.warning("Topic %s is asked for, but cannot be created: %s", topic, why)
