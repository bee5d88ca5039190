"""Delayed operations: a timing wheel, timers over it, and the purgatory that finds them by key."""

from odradek.purgatory.operation import DelayedOperation
from odradek.purgatory.purgatory import DelayedOperationPurgatory
from odradek.purgatory.timer import ManualTimer, SystemTimer, Timer, TimerCall
from odradek.purgatory.timing_wheel import TimerTask

__all__ = [
    "DelayedOperation",
    "DelayedOperationPurgatory",
    "ManualTimer",
    "SystemTimer",
    "Timer",
    "TimerCall",
    "TimerTask",
]
