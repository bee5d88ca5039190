"""The protocol of systemd's `Type=notify`: one datagram per message to `$NOTIFY_SOCKET`.

Messages are lines of `KEY=value`: `READY=1` when clients are served, `STOPPING=1` when the stop
begins, `WATCHDOG=1` as a sign of life, `STATUS=…` for `systemctl status`. With `WatchdogSec` the
manager sets `$WATCHDOG_USEC`, and kills and restarts a service without a sign of life for so long.

The sign is sent by the event loop that serves the clients, so that a loop that hangs sends none.
Without the two variables nothing is sent.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

__all__ = ["ServiceManager"]

_US_PER_S: Final = 1_000_000
# Signs of life within the time after which the service counts as hung: two may come late.
_SIGNS_PER_LIMIT: Final = 3


class ServiceManager:
    """The service manager that has started this process, if one has.

    Args:
        environment: All variables.
        process_id: The process whose watchdog it is; of others nothing is expected.
    """

    def __init__(self, environment: Mapping[str, str], process_id: int | None = None) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        # An abstract socket: its name begins with a zero byte, which no variable can hold.
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._interval_s = _watchdog_interval_s(environment, process_id or os.getpid())
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, message: str) -> None:
        """Sends a message; a manager that cannot be reached is no reason to fail."""
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(message.encode(), self._address)

    def show_life(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sends a sign of life now and, as long as the loop runs, often enough from then on."""
        if self._interval_s is None or not self._address:
            return
        self.tell("WATCHDOG=1")
        self._timer = loop.call_later(self._interval_s, self.show_life, loop)

    def close(self) -> None:
        """Sends no further signs of life."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _watchdog_interval_s(environment: Mapping[str, str], process_id: int) -> float | None:
    limit_us, owner = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not limit_us.isdecimal() or int(limit_us) == 0:
        return None
    if owner and owner != str(process_id):
        return None
    return int(limit_us) / _US_PER_S / _SIGNS_PER_LIMIT
