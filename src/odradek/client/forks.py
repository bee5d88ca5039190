"""A client does not survive a fork: the child has its sockets, which it must not touch.

A flag per object, set in the child by one hook: asking for the process id at each call would cost
more than the rest of a `send`.
"""

import os
import weakref

from odradek.client.errors import ForkedError

__all__ = ["ForkGuard"]


class ForkGuard:
    """Knows whether its process is the one that made it."""

    __slots__ = ("__weakref__", "_what", "is_child")

    def __init__(self, what: str = "client") -> None:
        self._what = what
        self.is_child = False
        _guards.add(self)

    def check(self) -> None:
        """Refuses a child process.

        Raises:
            ForkedError: This is a child of the process that made the client.
        """
        if self.is_child:
            raise ForkedError(self._what)


_guards: "weakref.WeakSet[ForkGuard]" = weakref.WeakSet()


def _mark_children() -> None:
    for guard in list(_guards):
        guard.is_child = True


os.register_at_fork(after_in_child=_mark_children)
