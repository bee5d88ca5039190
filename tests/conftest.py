"""What holds for every test."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.foreign_clients import FORGIVEN, runs_foreign_client
from tests.support.zookeeper import ZooKeeperProcess, missing_zookeeper, running_zookeeper

# The gate gives the same verdict on the same code; `make fuzz` goes looking for new examples.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("ODRADEK_EXAMPLES", "gate"))


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start.

    A run in a shell's background inherits an ignored SIGINT and would hand that on.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Forgive foreign clients what they forget, in the tests that run them."""
    for item in items:
        module = getattr(item, "module", None)
        if module is not None and runs_foreign_client(module):
            item.add_marker(pytest.mark.foreign_clients)
            for rule in FORGIVEN:
                item.add_marker(pytest.mark.filterwarnings(rule))


def pytest_collection_finish() -> None:
    """Make collections quick: what is there now, all modules and tests, is in use for ever."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _garbage_of_a_module() -> Iterator[None]:
    """A test that forgets a file or a connection fails its own module, not a later one."""
    yield
    gc.collect()
    if not gc.get_freeze_count():  # A module that measures has thawed all.
        gc.freeze()


@pytest.fixture(autouse=True)
def _garbage_of_foreign_clients(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a foreign client forgot is found in the test that ran it, where it is forgiven."""
    yield
    if request.node.get_closest_marker("foreign_clients") is not None:
        gc.collect()


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperProcess]:
    """One server for all tests of a process; each takes a chroot of its own."""
    if (why := missing_zookeeper()) is not None:
        pytest.skip(why)
    with running_zookeeper() as server:
        yield server
