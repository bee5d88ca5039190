"""Answers of a coordinator, sent when none of its own steps is on the stack. Pure.

An answer may start its client's next request at once, and so the next decision about the same
state. So answers are queued while a decision is carried out, and sent after the outermost one;
answers added meanwhile follow in their order.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

__all__ = ["AnswerQueue"]

logger = logging.getLogger(__name__)


class AnswerQueue:
    """Answers that wait for the end of the outermost `with` block."""

    __slots__ = ("_depth", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[Any], object], object]] = deque()
        self._depth = 0

    def put(self, answers: Iterable[tuple[Any, object]]) -> None:
        """Queues pairs of a function and its only argument; called inside a block."""
        assert self._depth, "an answer is queued by a step of the coordinator"
        self._waiting.extend(answers)

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._depth > 1:
            self._depth -= 1
            return
        # Answers may make further decisions: at this depth those only add to the queue.
        try:
            while self._waiting:
                answer, reply = self._waiting.popleft()
                try:
                    answer(reply)
                except Exception:  # the border between requests
                    # Otherwise the remaining answers would wait until the next decision.
                    logger.exception("An answer of the coordinator failed")
        finally:
            self._depth -= 1
