"""Watches as a server has them: what fires which, and what is armed again on a new link."""

from odradek.coordination.store import WatchEvent, WatchKind
from odradek.coordination.zookeeper.watch_registry import WatchRegistry


def test_each_kind_of_change_fires_its_watches_once() -> None:
    watches = WatchRegistry()
    events: list[WatchEvent] = []
    watches.add_data("/d", events.append)
    watches.add_absent("/a", events.append)
    watches.add_child("/c", events.append)
    for kind, path in (
        (WatchKind.CHILDREN, "/d"),
        (WatchKind.CHANGED, "/c"),
        (WatchKind.CHANGED, "/other"),
    ):
        watches.fire(WatchEvent(kind, path))
    assert events == []
    expected = [
        WatchEvent(WatchKind.CHANGED, "/d"),
        WatchEvent(WatchKind.CREATED, "/a"),
        WatchEvent(WatchKind.CHILDREN, "/c"),
    ]
    for event in expected * 2:
        watches.fire(event)
    assert events == expected
    assert len(watches) == 0


def test_one_function_hears_of_a_deletion_once() -> None:
    watches = WatchRegistry()
    events: list[WatchEvent] = []
    for add in (watches.add_data, watches.add_data, watches.add_child):
        add("/x", events.append)
    watches.fire(WatchEvent(WatchKind.DELETED, "/x"))
    assert events == [WatchEvent(WatchKind.DELETED, "/x")]


def test_a_watch_that_raises_does_not_stop_the_others() -> None:
    watches = WatchRegistry()
    events: list[WatchEvent] = []

    def fails(_event: WatchEvent) -> None:
        raise ValueError("a bug")

    watches.add_data("/x", fails)
    watches.add_data("/x", events.append)
    watches.fire(WatchEvent(WatchKind.CHANGED, "/x"))
    assert len(events) == 1


def test_a_watch_may_be_set_again_while_it_fires() -> None:
    watches = WatchRegistry()
    events: list[WatchEvent] = []

    def again(event: WatchEvent) -> None:
        events.append(event)
        watches.add_data("/x", again)

    watches.add_data("/x", again)
    for _ in range(3):
        watches.fire(WatchEvent(WatchKind.CHANGED, "/x"))
    assert len(events) == 3


def test_lists_hold_every_path_in_portions_that_fit_a_request() -> None:
    watches = WatchRegistry()
    ignored: list[WatchEvent] = []
    for number in range(20_000):
        watches.add_data(f"/d{number}", ignored.append)
    watches.add_absent("/a", ignored.append)
    watches.add_child("/c", ignored.append)
    portions = list(watches.lists(lambda path: f"/chroot/of/some/length{path}"))

    assert len(portions) > 1
    for kinds in portions:
        assert sum(len(path) + 4 for paths in kinds for path in paths) < 256 * 1024
    data, absent, child = ([path for kinds in portions for path in kinds[i]] for i in range(3))
    assert len(data) == len(set(data)) == 20_000
    assert (absent, child) == (["/chroot/of/some/length/a"], ["/chroot/of/some/length/c"])
    watches.clear()
    assert list(watches.lists(str)) == []
