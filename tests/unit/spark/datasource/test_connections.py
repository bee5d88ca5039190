"""Connections that tasks share."""

from collections.abc import Mapping

import pytest

from odradek.spark.datasource.connections import IDLE_MS, ClusterConnection, ConnectionCache
from odradek.testing import ManualClock


class FakeConnection(ClusterConnection):
    """Reaches nobody."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class QuietCache(ConnectionCache):
    """Closes only when told, so that a test decides when."""

    __slots__ = ()

    def _start_closer(self) -> None:
        pass


def cache(clock: ManualClock) -> ConnectionCache:
    return QuietCache(connect=FakeConnection, clock=clock)


def test_tasks_share_a_connection_per_cluster_and_settings() -> None:
    """12:SP-36."""
    shared = cache(ManualClock())
    with shared.lease({"a": "1", "b": "2"}) as one:
        pass
    with shared.lease({"b": "2", "a": "1"}) as two, shared.lease({"a": "2"}) as three:
        assert one is two
        assert three is not one


def test_what_nobody_uses_is_closed() -> None:
    """12:SP-45: well within a minute; what is in use stays."""
    clock = ManualClock()
    shared = cache(clock)
    with shared.lease({"a": "1"}) as unused, shared.lease({"a": "2"}) as used:
        pass
    with shared.lease({"a": "2"}):
        clock.advance(IDLE_MS - 1)
        assert shared.close_idle() == 1
        assert shared.count == 2
        clock.advance(1)
        assert shared.close_idle() == IDLE_MS
        assert shared.count == 1
    assert isinstance(unused, FakeConnection)
    assert isinstance(used, FakeConnection)
    assert (unused.is_closed, used.is_closed) == (True, False)
    clock.advance(IDLE_MS)
    assert shared.close_idle() is None
    assert used.is_closed
    assert shared.count == 0
    assert IDLE_MS < 60_000


def test_a_stream_that_stops_closes_what_it_has() -> None:
    """12:SP-45."""
    shared = cache(ManualClock())
    with shared.lease({"a": "1"}) as connection:
        shared.close_unused()
        assert shared.count == 1
    shared.close_unused()
    assert isinstance(connection, FakeConnection)
    assert connection.is_closed


def test_a_failing_task_gives_its_connection_back() -> None:
    clock = ManualClock()
    shared = cache(clock)
    with pytest.raises(KeyError), shared.lease({"a": "1"}):
        raise KeyError
    clock.advance(IDLE_MS)
    assert shared.close_idle() is None


def test_a_child_process_starts_with_nothing() -> None:
    """12:SP-36: and leaves the parent's alone."""
    shared = cache(ManualClock())
    with shared.lease({"a": "1"}) as connection:
        shared.forget()
        assert shared.count == 0
    assert isinstance(connection, FakeConnection)
    assert not connection.is_closed
