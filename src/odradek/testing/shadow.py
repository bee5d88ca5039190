"""The shadow of a directory tree: its state as the process sees it, and the durable part.

`SimDisk` reports each successful operation to it. Changes made past the disk (a file a test wrote
itself) are found by listing directories, and count as not durable.
"""

import os
import shutil
from collections.abc import Iterator
from random import Random

from odradek.testing.durability import Directory, DiskNode, File, Image, NameChange, UnsyncedNames

__all__ = ["Shadow"]

# The content of a directory after a crash: names to the content of a file or to a directory.
_Tree = dict[str, "Image | _Tree"]


class Shadow:
    """All names below `root` as nodes, and the journal of the changes that are not durable."""

    __slots__ = ("_journal", "_root", "_top")

    def __init__(self, root: str) -> None:
        self._root = root
        self._adopt()

    def _adopt(self) -> None:
        """Starts anew: all that is below the root is durable."""
        self._top = Directory()
        self._journal = UnsyncedNames()
        self.settle()

    def settle(self) -> None:
        """Makes everything durable."""
        self._reconcile(self._top, recursive=True)
        self._journal.sync_all()
        for file, content in self._live_files(self._top):
            file.durable, file.lost = content, {}

    def crash(self, random: Random | None) -> None:
        """Leaves the durable part in the real tree and, given a `random`, parts of the rest."""
        self._reconcile(self._top, recursive=True)
        current = dict(self._live_files(self._top))
        if random is not None:
            self._journal.tear(random)
        _restore(self._root, _survivors(self._top, current, random))
        self._adopt()

    def keep(self) -> None:
        """Crashes after everything has reached the disk."""
        self._adopt()

    def relative(self, path: str) -> str:
        """Returns `path` from the root on, the root being the empty string."""
        absolute = os.path.abspath(path)
        if absolute == self._root:
            return ""
        if not absolute.startswith(self._root + "/"):
            raise ValueError(f"{path} lies outside of the disk, which is {self._root}")
        return absolute[len(self._root) + 1 :]

    def find(self, path: str) -> DiskNode | None:
        """Returns the node that the running process sees at `path`."""
        node: DiskNode | None = self._top
        for name in self._names(path):
            if not isinstance(node, Directory):
                return None
            if name not in node.live or not os.path.lexists(self._absolute(node.live[name])):
                self._reconcile(node)
            node = node.live.get(name)
        return node

    def find_durable(self, path: str) -> DiskNode | None:
        """Returns the node that is at `path` after any crash."""
        node: DiskNode | None = self._top
        for name in self._names(path):
            node = node.durable.get(name) if isinstance(node, Directory) else None
        return node

    def note_created(self, path: str, node: DiskNode) -> None:
        self._journal.record(NameChange(*self._place(path), node))

    def note_removed(self, path: str) -> None:
        self._journal.record(NameChange(*self._place(path), None))

    def note_renamed(self, source: str, target: str, node: DiskNode) -> None:
        self._journal.record(
            NameChange(*self._place(source), None), NameChange(*self._place(target), node)
        )

    def remember_content(self, node: DiskNode | None) -> None:
        """Keeps the bytes of a file that is about to lose its name; a crash may need them."""
        if isinstance(node, File):
            node.removed = Image.read(self._absolute(node))

    def sync_names(self, directory: Directory) -> None:
        self._reconcile(directory)
        self._journal.sync(directory)

    def _reconcile(self, directory: Directory, *, recursive: bool = False) -> None:
        """Records names created and removed past the disk, as operations not yet durable."""
        found = _listing(self._absolute(directory))
        for name in sorted(directory.live.keys() - found.keys()):
            self._journal.record(NameChange(directory, name, None))
        for name, is_directory in found.items():
            node = directory.live.get(name)
            if node is None or isinstance(node, Directory) != is_directory:
                node = Directory() if is_directory else File()
                self._journal.record(NameChange(directory, name, node))
            if recursive and isinstance(node, Directory):
                self._reconcile(node, recursive=True)

    def _live_files(self, directory: Directory) -> Iterator[tuple[File, Image]]:
        for node in directory.live.values():
            if isinstance(node, Directory):
                yield from self._live_files(node)
            elif isinstance(node, File):
                yield node, Image.read(self._absolute(node))

    def _place(self, path: str) -> tuple[Directory, str]:
        """Returns the directory and the name of `path`, on which an operation has succeeded."""
        above, name = os.path.split(os.path.abspath(path))
        directory = self.find(above)
        assert isinstance(directory, Directory), f"no directory for {path}"
        return directory, name

    def _names(self, path: str) -> list[str]:
        relative = self.relative(path)
        return relative.split("/") if relative else []

    def _absolute(self, node: DiskNode) -> str:
        return os.path.join(self._root, node.path)


def _survivors(directory: Directory, current: dict[File, Image], random: Random | None) -> _Tree:
    tree: _Tree = {}
    for name, node in sorted(directory.durable.items()):
        if isinstance(node, Directory):
            tree[name] = _survivors(node, current, random)
        elif isinstance(node, File) and random is not None:
            content = current.get(node) or node.removed or node.durable
            tree[name] = node.torn(content, random)
        elif isinstance(node, File):
            tree[name] = node.durable
    return tree


def _restore(path: str, tree: _Tree) -> None:
    """Makes the real directory at `path` equal to `tree`; equal files are left alone."""
    for name, is_directory in _listing(path).items():
        entry_path = os.path.join(path, name)
        wanted = tree.get(name)
        if is_directory:
            if not isinstance(wanted, dict):
                shutil.rmtree(entry_path)
        elif not isinstance(wanted, Image) or Image.read(entry_path) != wanted:
            os.unlink(entry_path)
    for name, wanted in tree.items():
        entry_path = os.path.join(path, name)
        if not isinstance(wanted, Image):
            os.makedirs(entry_path, exist_ok=True)
            _restore(entry_path, wanted)
        elif not os.path.lexists(entry_path):
            wanted.write(entry_path)


def _listing(path: str) -> dict[str, bool]:
    """Returns the names in a directory, sorted, and whether each is a directory."""
    with os.scandir(path) as entries:
        return dict(sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries))
