"""What holds for every test."""

import os
import signal

from hypothesis import settings

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
