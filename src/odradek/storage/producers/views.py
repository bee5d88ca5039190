"""Producers as of one moment, to be read on another thread while the log goes on.

A view has the entries of all producers, not copies of them: making it costs the loop 5 ns for each,
copying or encoding them a hundred times as much. As long as it is read, no entry in it changes. The
owner of the log that has to change one puts a copy in its place first, and changes that::

    producers  {1: a, 2: b}     view {1: a, 2: b}
    a batch of producer 1
    producers  {1: a', 2: b}    view {1: a, 2: b}

Only the newest view that is read is asked: an entry that an older one has, too, has not changed in
between, so the newer one has it as well.
"""

from typing import final

from odradek.storage.producers.entry import ProducerEntry

__all__ = ["ProducerView"]


@final
class ProducerView:
    """The producers of a partition as of its making.

    Attributes:
        entries: Producer id -> entry.
        is_read: Whether a thread may still read them; set to False by that thread, or by the owner
            of the log if no thread will.
    """

    __slots__ = ("entries", "is_read")

    def __init__(self, entries: dict[int, ProducerEntry]) -> None:
        self.entries = entries.copy()
        self.is_read = True
