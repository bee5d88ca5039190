"""Which processes hold connections to a port, read from /proc."""

import os
from pathlib import Path

__all__ = ["holders"]

_ESTABLISHED = "01"


def holders(root_pid: int, port: int) -> dict[int, int]:
    """Python processes below a process with connections to a port, and how many.

    Spark's own connector keeps consumers in Java for minutes; those are not ours.
    """
    sockets = _sockets_to(port)
    ours = [pid for pid in _descendants(root_pid) if _is_python(pid)]
    held = {pid: len(_sockets_of(pid) & sockets) for pid in ours}
    return {pid: count for pid, count in held.items() if count}


def _sockets_to(port: int) -> set[str]:
    """Inodes of the client ends."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            remote, state, inode = fields[2], fields[3], fields[9]
            if state == _ESTABLISHED and int(remote.rpartition(":")[2], 16) == port:
                inodes.add(inode)
    return inodes


def _is_python(pid: int) -> bool:
    try:
        return "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # It has ended.
        return False


def _sockets_of(pid: int) -> set[str]:
    try:
        links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
    except OSError:  # It has ended.
        return set()
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def _descendants(root_pid: int) -> set[int]:
    parents = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                status = Path(entry.path, "stat").read_text()
            except OSError:
                continue
            # The name before it may have spaces and brackets.
            parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    found = {root_pid}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found
