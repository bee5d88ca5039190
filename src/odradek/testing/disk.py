"""A disk that forgets what was not synced, and fails when told to.

`SimDisk` works on real files below a root directory, so mappings, `sendfile` and directory
listings work as ever. Beside them it keeps a shadow of what is durable:

=============  =========================================  ====================================
State          changes with                               becomes durable with
=============  =========================================  ====================================
bytes, length  write, writev, ftruncate, O_TRUNC, stores  fsync, fsync_path, flush_map of that
of a file      into a mapping, anything outside the seam  file, under whatever name
names in a     open with O_CREAT, rename, unlink, mkdir,  fsync_dir of that directory; a rename
directory      rmdir, anything outside the seam           between two: of either
=============  =========================================  ====================================

All that the root holds when the disk is made is durable. A file whose name is not durable is gone
after a crash, however often its bytes were synced; a durable name with un-synced bytes is an
empty file. `crash` turns the shadow into the real tree, and what it leaves is durable again:

* ``drop``: durable bytes and names, nothing else. The worst that rules 1 and 2 of `odradek.files`
  allow if nothing was written back early.
* ``torn``: any part of the rest may have reached the disk; `odradek.testing.durability` has the
  model. The same `Random` gives the same tree.
* ``keep``: everything reached the disk.

`kill` ends the process only: its descriptors are closed, the page cache stays, and what was not
durable is still not durable. Old descriptors and mappings must not be used after either of them.

A typical test of all crash points::

    for n in itertools.count():
        disk = prepared_disk()
        disk.crash_at(n)
        try:
            act(disk)
        except SimulatedCrash:
            disk.crash(mode="drop")
            check(disk)
        else:
            break  # `act` has fewer than n mutating operations: all points were seen.
"""

import os
import shutil
import threading
from collections.abc import Buffer, Callable, Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple, TypeAlias
