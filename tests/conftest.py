"""What holds for every test."""

import signal


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start.

    A run in a shell's background inherits an ignored SIGINT and would hand that on.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
