"""What holds for every test."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

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


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperProcess]:
    """One server for all tests of a process; each takes a chroot of its own."""
    if (why := missing_zookeeper()) is not None:
        pytest.skip(why)
    with running_zookeeper() as server:
        yield server
