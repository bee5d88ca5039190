"""The subscription of an application: topics, a pattern, or partitions by hand. Pure.

The three exclude each other until `unsubscribe`. Topics and patterns need a group, which assigns
partitions to its members; partitions by hand need none.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from odradek.client.cluster import Cluster
from odradek.model import TopicPartition

__all__ = ["NO_LISTENER", "RebalanceListener", "SubscriptionState"]


class RebalanceListener(Protocol):
    """Called when the assignment changes, from within `poll`. Methods may be coroutines in aio."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> object:
        """Called when partitions were assigned; it may seek."""
        ...

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> object:
        """Called before partitions are revoked; offsets can still be committed."""
        ...

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> object:
        """Called when partitions were lost: other members may have them, commits are refused."""
        ...


class _NoListener:
    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> object:
        """Does nothing."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> object:
        """Does nothing."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> object:
        """Does nothing."""


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
        """Subscribes to topics by name, in place of an earlier subscription.

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
        """Subscribes to all topics whose whole name matches, those created later too.

        Raises:
            ValueError: Partitions were assigned by hand.
            re.error: The text is no regular expression.
        """
        self._check_not("assign", is_refused=self.is_manual)
        self.pattern = re.compile(pattern)
        self._topics = frozenset()
        self.listener = listener or NO_LISTENER

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Takes partitions that are assigned by hand.

        Raises:
            ValueError: Topics were subscribed to.
        """
        self._check_not("subscribe", is_refused=self.is_automatic)
        self.is_manual = bool(partitions)

    def clear(self) -> None:
        """Ends every kind of subscription."""
        self._topics = frozenset()
        self.pattern = None
        self.is_manual = False
        self.listener = NO_LISTENER

    def match(self, cluster: Cluster) -> bool:
        """Matches the pattern against the topics again; returns whether the result changed."""
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
