"""Work on the logs of followed partitions whose steps run on storage threads.

A partition has at most one piece of work under way. Work that has begun runs to its end, also if
the partition is no longer followed: a role change waits for that (`when_idle`), so that no two
changes of a log overlap.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from odradek.model import TopicPartition
from odradek.storage.log.services import BackgroundTasks, Steps, run_beside

__all__ = ["LocalWork"]

_T = TypeVar("_T")


class LocalWork:
    """The work under way.

    Args:
        tasks: Runs the steps that block.
    """

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        # What to call when the work on a partition has ended.
        self._under_way: dict[TopicPartition, list[Callable[[], None]]] = {}

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._under_way

    def begin(
        self, tp: TopicPartition, steps: Steps[_T], done: Callable[[Exception | None], None]
    ) -> None:
        """Takes the steps; `done` gets the error, if they failed."""
        assert tp not in self._under_way, f"{tp}: work is under way"
        self._under_way[tp] = []

        def end(error: Exception | None) -> None:
            waiting = self._under_way.pop(tp)
            try:
                done(error)
            finally:
                for then in waiting:
                    then()

        run_beside(self._tasks, [_without_result(steps)], end, at_once=1)

    def when_idle(self, partitions: Iterable[TopicPartition], then: Callable[[], None]) -> None:
        """Calls `then` once no work on these partitions is under way, possibly at once."""
        busy = [tp for tp in partitions if tp in self._under_way]
        count = len(busy)
        if not count:
            then()
            return

        def count_down() -> None:
            nonlocal count
            count -= 1
            if not count:
                then()

        for tp in busy:
            self._under_way[tp].append(count_down)


def _without_result(steps: Steps[_T]) -> Steps[None]:
    yield from steps
