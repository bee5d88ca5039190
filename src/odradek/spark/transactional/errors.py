"""Errors of the exactly-once sink. Every one fails the query; the message says what to do.

::

    OdradekError
    └── ExactlyOnceError         a batch is refused, or cannot be written: none of it is visible
        ├── FencedQueryError     another driver writes now, or the transaction took too long
        └── UnknownOutcomeError  the cluster has not said whether the batch was committed
"""

from odradek.errors import OdradekError

__all__ = ["ExactlyOnceError", "FencedQueryError", "UnknownOutcomeError"]


class ExactlyOnceError(OdradekError):
    """To go on would write rows twice, or lose them; or the batch could not be written."""


class FencedQueryError(ExactlyOnceError):
    """The driver has lost its right to write; the next start reads the marker first."""


class UnknownOutcomeError(ExactlyOnceError):
    """The cluster did not answer; the next start reads the marker, which says the outcome."""
