"""A call that a timer makes."""

from collections.abc import Callable

from odradek.purgatory import TimerTask

__all__ = ["TimerCall"]


class TimerCall(TimerTask):
    """Calls a function once its delay has passed."""

    __slots__ = ("_callback",)

    def __init__(self, delay_ms: int, callback: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._callback = callback

    def run(self) -> None:
        self._callback()
