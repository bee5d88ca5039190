"""What an application asked to read: topics, a pattern, or partitions by hand. Pure.

The three exclude each other until `unsubscribe`. Topics and patterns need a group, which decides
who reads which partition; partitions by hand need none.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from odradek.client.cluster import Cluster
from odradek.model import TopicPartition

__all__ = ["NO_LISTENER", "RebalanceListener", "SubscriptionState"]


class RebalanceListener(Protocol):
    """Told of changes of the assignment, from within `poll`. Methods may be coroutines in aio."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> object:
        """Partitions came; positions may be sought here."""
        ...

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> object:
        """Partitions are about to go; offsets can still be committed."""
        ...

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> object:
        """Partitions are gone already: others may have them, nothing can be committed."""
        ...


class _NoListener:
    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> object:
        """Nobody listens."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> object:
        """Nobody listens."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> object:
        """Nobody listens."""


NO_LISTENER: RebalanceListener = _NoListener()


class SubscriptionState:
    """See the module's docstring."""

    def __init__(self, *, exclude_internal: bool = True) -> None:
        self._exclude_internal = exclude_internal
        self._topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.is_manual = False
        self.listener: RebalanceListener = NO_LISTENER

    @property
    def topics(self) -> frozenset[str]:
        """Topics by name; for a pattern those that matched last."""
        return self._topics

    @property
    def is_automatic(self) -> bool:
        """Whether a group assigns the partitions."""
        return not self.is_manual and (self.pattern is not None or bool(self._topics))

    def subscribe(self, topics: Iterable[str], listener: RebalanceListener | None) -> None:
        """By name, in place of what was subscribed to before.

        Raises:
            ValueError: Partitions were assigned by hand.
        """
        self._check_not("assign", is_refused=self.is_manual)
        names = frozenset(topics)
        if not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"topics {sorted(map(repr, names))}: expected names")
        self._topics = names
        self.pattern = None
        self.listener = listener or NO_LISTENER

    def subscribe_pattern(
        self, pattern: re.Pattern[str] | str, listener: RebalanceListener | None
    ) -> None:
        """All topics whose whole name matches, those that come later too.

        Raises:
            ValueError: Partitions were assigned by hand.
            re.error: The text is no regular expression.
        """
        self._check_not("assign", is_refused=self.is_manual)
        self.pattern = re.compile(pattern)
        self._topics = frozenset()
        self.listener = listener or NO_LISTENER

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """By hand.

        Raises:
            ValueError: Topics were subscribed to.
        """
        self._check_not("subscribe", is_refused=self.is_automatic)
        self.is_manual = bool(partitions)

    def clear(self) -> None:
        """Nothing."""
        self._topics = frozenset()
        self.pattern = None
        self.is_manual = False
        self.listener = NO_LISTENER

    def match(self, cluster: Cluster) -> bool:
        """Lets the pattern find its topics again; returns whether they changed."""
        if self.pattern is None:
            return False
        found = frozenset(
            name
            for name, topic in cluster.topics.items()
            if self.pattern.fullmatch(name) and not (topic.is_internal and self._exclude_internal)
        )
        is_changed = found != self._topics
        self._topics = found
        return is_changed

    @staticmethod
    def _check_not(other: str, *, is_refused: bool) -> None:
        if is_refused:
            raise ValueError(
                f"{other} was called before; topics, a pattern and partitions by hand exclude "
                "each other: call unsubscribe first"
            )
