"""The errors of a client besides those of the wire, which are `odradek.errors.ApiError`.

::

    ApiError
    └── RequestTimedOutError
        └── CallTimeoutError          a call's own time is over; also a TimeoutError
            └── BufferExhaustedError  no room for a record within max.block.ms
    OdradekError
    ├── ClosedError                   used after close; also a RuntimeError
    ├── RecreatedTopicError           another topic has the name that was to be read
    └── ForkedError                   used in a child process; also a RuntimeError
"""

from odradek.errors import ApiError, OdradekError, RequestTimedOutError

__all__ = [
    "BufferExhaustedError",
    "CallTimeoutError",
    "ClosedError",
    "ForkedError",
    "RecreatedTopicError",
]


class CallTimeoutError(RequestTimedOutError, TimeoutError):
    """A call did not succeed in its time; message and code are those of the last failure.

    Args:
        reason: The last failure, whose code becomes this error's; without it, REQUEST_TIMED_OUT.
    """

    def __init__(self, message: str, reason: ApiError | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.code = reason.code


class BufferExhaustedError(CallTimeoutError):
    """The buffer of a producer stayed full: the cluster takes records too slowly."""


class ClosedError(OdradekError, RuntimeError):
    """A client is used after it was closed."""

    def __init__(self, what: str = "client") -> None:
        super().__init__(f"the {what} is closed")


class RecreatedTopicError(OdradekError):
    """A topic was deleted and made again since it was known under an id."""

    def __init__(self, topic: str, *, expected: str, found: str) -> None:
        super().__init__(f"topic {topic!r} has id {found} now, {expected} was to be read")
        self.topic = topic
        self.expected = expected
        self.found = found


class ForkedError(OdradekError, RuntimeError):
    """A client is used in a child process, which shares the sockets and has no loop."""

    def __init__(self, what: str = "client") -> None:
        super().__init__(
            f"this {what} was made before a fork; sockets cannot be shared with a child process: "
            "make a new one in the child"
        )
