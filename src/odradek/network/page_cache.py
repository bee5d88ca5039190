"""Whether pieces of files are in memory, and threads that read them without blocking the loop.

`sendfile` and `pread` of pages that are not in the page cache wait for the disk, and with them
every other connection on the loop. So a connection asks first (`PageCache`), with reads that the
kernel refuses instead of waiting (RWF_NOWAIT). Cold pages are read by a thread (`ReadAhead`), and
the connection waits for it like one whose socket is full.

Pages are tested in steps, not one by one. The kernel reads ahead and drops pages in runs, so that
the edges of a step tell whether the pages between are in memory; where they do not, `sendfile`
waits for the disk, for few pages.

Bytes that this process wrote a few appends ago are in memory and are not tested: consumers that
keep up pay nothing. Some file systems do not support RWF_NOWAIT; their files count as warm.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from odradek.tasks import Threads

__all__ = ["READ_AHEAD_BYTES", "READ_AHEAD_THREADS", "PageCache", "ReadAhead", "ReadAheadJob"]

# Read into memory at a time for a connection: the default of max.partition.fetch.bytes.
READ_AHEAD_BYTES: Final = 1 << 20
# Pieces at a time, for all connections. A disk has a queue and serves several together; more
# threads would only wait in it. Each has a buffer of _BLOCK_BYTES.
READ_AHEAD_THREADS: Final = 4
_BLOCK_BYTES: Final = 256 << 10
# One test at the end of so many bytes: a microsecond, beside hundreds for sending them.
_STEP_BYTES: Final = 1 << 20

_NOWAIT: Final = os.RWF_NOWAIT


class PageCache:
    """The system's page cache. Tests use a subclass in which they choose the cold pages."""

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
        """How many of `length` bytes from `position` on are in memory, judged by edges of steps."""
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
        """Reads bytes into memory; to be called on a thread.

        Args:
            fd: The file.
            position: Where they begin.
            length: How many.
            go_on: Whether the connection still waits for them; called between blocks.
        """
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)
        buffer = memoryview(bytearray(min(length, _BLOCK_BYTES)))
        end = position + length
        while position < end and go_on():
            count = os.preadv(fd, (buffer[: end - position],), position)
            if count == 0:
                return  # The file was truncated; the connection finds that out when it sends.
            position += count


class ReadAheadJob:
    """A piece of a file that a thread reads into memory, with a descriptor of its own."""

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
        """Ends the job: the thread stops after the current block, and `done` is not called."""
        self._done = None

    def run(self) -> None:
        """Reads the piece, on a thread. Ignores errors: the connection meets them as it sends."""
        if self._done is not None:
            with suppress(OSError):
                self._pages.load(self._fd, self._position, self._length, self._is_wanted)

    def release(self) -> None:
        """Closes the descriptor, whether the job ran or not."""
        os.close(self._fd)

    def tell(self) -> None:
        """Calls `done` unless cancelled; runs on the loop."""
        if self._done is not None:
            self._done()

    def _is_wanted(self) -> bool:
        return self._done is not None


class ReadAhead:
    """The threads that read for connections; each connection waits for one piece at most.

    Args:
        pages: Tells which bytes are in memory, and reads others into it.
        call_soon_threadsafe: That of the loop.
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
        """Has a piece read into memory and calls `done` on the loop, unless cancelled before.

        Raises:
            OSError: No descriptor is left.
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
        with suppress(RuntimeError):  # The loop is closed, and with it the connections that waited.
            self._call_soon_threadsafe(job.tell)
