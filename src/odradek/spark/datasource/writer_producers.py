"""Producers of a worker process: one per set of settings, kept from task to task.

A Python worker of Spark serves many tasks, and a stream writes several times a second: to connect
and to request a producer id each time would be most of the work. Spark does not inform a worker
that its query has ended, so a producer that no task has used for `IDLE_S` is closed with its
connections and its thread.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from odradek.client.producer.blocking import Producer

__all__ = ["IDLE_S", "ProducerCache", "leased_producer"]

IDLE_S: Final = 20

# How long closing may take: a cluster that is gone lets it hang.
_CLOSE_TIMEOUT_S: Final = 10

_Settings = tuple[tuple[str, str], ...]


class _Alarm(Protocol):
    def start(self) -> None: ...
    def cancel(self) -> None: ...


def _daemon_timer(delay_s: float, work: Callable[[], None]) -> _Alarm:
    timer = threading.Timer(delay_s, work)
    timer.daemon = True  # A worker that ends does not wait for it.
    return timer


class ProducerCache:
    """See the module's docstring. At most one task at a time has a producer.

    Args:
        make: Opens a producer.
        alarm: Makes a timer that calls a function after a delay in seconds.
    """

    def __init__(
        self,
        make: Callable[[dict[str, str]], Producer],
        alarm: Callable[[float, Callable[[], None]], _Alarm] = _daemon_timer,
    ) -> None:
        self._make = make
        self._alarm = alarm
        self._lock = threading.Lock()
        self._idle: dict[_Settings, tuple[Producer, _Alarm]] = {}

    @contextlib.contextmanager
    def lease(self, settings: _Settings) -> Iterator[Producer]:
        """Lends a producer for the block. If the block fails, the producer is not used again."""
        with self._lock:
            producer, alarm = self._idle.pop(settings, (None, None))
        if alarm is not None:
            alarm.cancel()
        if producer is None:
            producer = self._make(dict(settings))
        try:
            yield producer
        except BaseException:
            producer.close(timeout=0)
            raise
        self._put_back(settings, producer)

    def _put_back(self, settings: _Settings, producer: Producer) -> None:
        alarm = self._alarm(IDLE_S, lambda: self._close(settings, producer))
        with self._lock:
            older, _ = self._idle.pop(settings, (None, None))
            self._idle[settings] = (producer, alarm)
            alarm.start()
        if older is not None:  # Two tasks ran at once, in threads.
            older.close(timeout=_CLOSE_TIMEOUT_S)

    def _close(self, settings: _Settings, producer: Producer) -> None:
        with self._lock:
            kept, _ = self._idle.get(settings, (None, None))
            if kept is not producer:
                return  # A task uses it, or has used it since.
            del self._idle[settings]
        producer.close(timeout=_CLOSE_TIMEOUT_S)


_cache: Final = ProducerCache(Producer)
leased_producer = _cache.lease
