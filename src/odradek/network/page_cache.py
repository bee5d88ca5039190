"""Whether pieces of files are in memory, and how they get there without the loop.

`sendfile` and `pread` of pages that are not in the page cache wait for the disk, and with them
everybody else on the loop. So a connection asks first (`PageCache`), with reads that the kernel
refuses instead of waiting (RWF_NOWAIT). What is cold is read by a thread (`ReadAhead`), and the
connection waits for it like one whose socket is full.

Pages are looked at in steps, not one by one. The kernel reads ahead and drops pages in runs, so
that edges tell of what lies between; where they do not, `sendfile` waits for that little.

What this process wrote a few appends ago is in memory and needs no look: consumers that keep up
pay nothing. Some file systems do not know RWF_NOWAIT. Theirs counts as warm.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from odradek.tasks import Threads

__all__ = ["READ_AHEAD_BYTES", "READ_AHEAD_THREADS", "PageCache", "ReadAhead", "ReadAheadJob"]

# Brought into memory at a time for a connection: what a consumer asks of a partition by default.
READ_AHEAD_BYTES: Final = 1 << 20
# Pieces at a time, for all connections. A disk has a queue and serves several together; more
# threads would only wait in it. Each has a buffer of _BLOCK_BYTES.
READ_AHEAD_THREADS: Final = 4
_BLOCK_BYTES: Final = 256 << 10
# One look at the end of so many bytes: a microsecond, beside hundreds for sending them.
_STEP_BYTES: Final = 1 << 20

_NOWAIT: Final = os.RWF_NOWAIT


class PageCache:
    """The system's. A test has one whose pages are cold when it wants them to be."""

    def __init__(self) -> None:
        self._byte: list[bytearray] = [bytearray(1)]

    def read(self, fd: int, length: int, position: int) -> bytes | bytearray | None:
        """All of these bytes if they are in memory; None if not, or if the file is too short."""
        buffer = bytearray(length)
        try:
            count = os.preadv(fd, (buffer,), position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError:  # The file system cannot say.
            data = os.pread(fd, length, position)
            return data if len(data) == length else None
        return buffer if count == length else None

    def warm_bytes(self, fd: int, position: int, length: int) -> int:
        """How many of `length` bytes from `position` on are in memory, as far as edges tell."""
        byte = self._byte
        warm = 0
        try:
            os.preadv(fd, byte, position, _NOWAIT)
            while warm < length:
                step_end = min(warm + _STEP_BYTES, length)
                os.preadv(fd, byte, position + step_end - 1, _NOWAIT)
                warm = step_end
        except BlockingIOError:
            return warm
        except OSError:  # The file system cannot say.
            return length
        return warm

    def load(self, fd: int, position: int, length: int, go_on: Callable[[], bool]) -> None:
        """Brings bytes into memory, on a thread.

        Args:
            go_on: Whether anybody still wants them; asked between blocks.
        """
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)
        buffer = memoryview(bytearray(min(length, _BLOCK_BYTES)))
        end = position + length
        while position < end and go_on():
            count = os.preadv(fd, (buffer[: end - position],), position)
            if count == 0:
                return  # The file was cut; whoever sends it finds that out.
            position += count


class ReadAheadJob:
    """A piece of a file on its way into memory, with a descriptor of its own."""

    __slots__ = ("_done", "_fd", "_length", "_pages", "_position")

    def __init__(
        self,
        pages: PageCache,
        fd: int,
        position: int,
        length: int,
        done: Callable[[], None],
    ) -> None:
        self._pages = pages
        self._fd = os.dup(fd)  # The connection may close, and its descriptors with it.
        self._position = position
        self._length = length
        self._done: Callable[[], None] | None = done

    def cancel(self) -> None:
        """Nobody waits for it any more; the thread ends after the block that it reads."""
        self._done = None

    def run(self) -> None:
        """On a thread. What is wrong with the file is told to whoever sends it."""
        if self._done is not None:
            with suppress(OSError):
                self._pages.load(self._fd, self._position, self._length, self._is_wanted)

    def release(self) -> None:
        """Gives the descriptor back, run or not."""
        os.close(self._fd)

    def tell(self) -> None:
        """On the loop: let go on whoever waits."""
        if self._done is not None:
            self._done()

    def _is_wanted(self) -> bool:
        return self._done is not None


class ReadAhead:
    """The threads that read for connections; each connection waits for one piece at most.

    Args:
        pages: Says what is in memory, and gets it there.
        call_soon_threadsafe: The loop's.
        threads: Makes the threads.
    """

    def __init__(
        self,
        pages: PageCache,
        call_soon_threadsafe: Callable[[Callable[[], None]], object],
        threads: Threads = ThreadPoolExecutor,
    ) -> None:
        self.pages = pages
        self._call_soon_threadsafe = call_soon_threadsafe
        # It starts a thread when there is something to read, not before.
        self._threads = threads(READ_AHEAD_THREADS, "data-plane-read-ahead")

    def start(self, fd: int, position: int, length: int, done: Callable[[], None]) -> ReadAheadJob:
        """Brings a piece into memory and calls `done` on the loop, unless cancelled before.

        Raises:
            OSError: No descriptor was to be had.
        """
        job = ReadAheadJob(self.pages, fd, position, length, done)
        future = self._threads.submit(job.run)
        future.add_done_callback(lambda _: self._finish(job))
        return job

    def close(self) -> None:
        """Reads nothing more; harmless when done before."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _finish(self, job: ReadAheadJob) -> None:
        job.release()
        with suppress(RuntimeError):  # The loop is closed, and everybody who waited with it.
            self._call_soon_threadsafe(job.tell)
