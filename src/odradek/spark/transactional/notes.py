"""What a checkpoint says about its exactly-once sink, in a file beside Spark's own.

The marker of the last batch is in the cluster. The note says what must be there: with it, a marker
that is gone is no first start. It also keeps the transactional id, so that a query that was renamed
still fences the driver of before.
"""

import json
import posixpath
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.fs as fs

from odradek.spark.pipeline.engine.operations.file_systems import failure_of, open_folder
from odradek.spark.transactional.errors import ExactlyOnceError

__all__ = ["CheckpointNotes", "Note"]

_FILE: Final = "odradek-exactly-once.json"
_WHAT: Final = "the checkpoint"
_VERSION: Final = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """See the module's docstring."""

    query_id: str
    target: str
    transactional_id: str
    first_batch: int
    # Whether a batch was committed; written after the first one.
    has_marker: bool


class CheckpointNotes:
    """The note of a checkpoint, and what Spark has written there.

    Args:
        checkpoint: A path on this machine, or a URI.

    Raises:
        FileSystemError: It cannot be reached; all methods raise it, too.
    """

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        self._files, self._folder = open_folder(checkpoint, _WHAT)

    def read(self) -> Note | None:
        """The note; None before the first exactly-once batch."""
        data = self._read(_FILE)
        if data is None:
            return None
        try:
            told: dict[str, Any] = json.loads(data)
            if told.pop("v") != _VERSION:
                raise ValueError("of another version")
            return Note(**told)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ExactlyOnceError(
                f"{self.checkpoint}/{_FILE} is not a note of this sink ({error}): restore the "
                "checkpoint, or begin with a new one"
            ) from error

    def write(self, note: Note) -> None:
        """Writes the note."""
        data = json.dumps({"v": _VERSION, **asdict(note)}, sort_keys=True, indent=1).encode()
        name = posixpath.join(self._folder, _FILE)

        def write() -> None:
            with self._files.open_output_stream(f"{name}.new") as file:
                file.write(data)
            self._files.move(f"{name}.new", name)

        self._reaching(write)

    def remove(self) -> None:
        """Removes the note, when the query goes on without exactly-once."""
        if self._read(_FILE) is not None:
            self._reaching(lambda: self._files.delete_file(posixpath.join(self._folder, _FILE)))

    def query_id(self) -> str:
        """Spark's id of the query.

        Raises:
            ExactlyOnceError: Spark has not written it.
        """
        data = self._read("metadata")
        try:
            return str(json.loads(data or b"{}")["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise ExactlyOnceError(
                f"expected the id of the query in {self.checkpoint}/metadata, which Spark writes "
                "when it starts: is this the checkpointLocation of the query?"
            ) from error

    def plan_of(self, batch: int) -> bytes:
        """Spark's plan of a batch: from where to where each source is read.

        Raises:
            ExactlyOnceError: There is none.
        """
        data = self._read(posixpath.join("offsets", str(batch)))
        if data is None:
            raise ExactlyOnceError(
                f"expected {self.checkpoint}/offsets/{batch}, which Spark writes before the batch: "
                "files of the checkpoint are missing"
            )
        return data

    def _read(self, name: str) -> bytes | None:
        path = posixpath.join(self._folder, name)

        def read() -> bytes | None:
            if self._files.get_file_info(path).type == fs.FileType.NotFound:
                return None
            with self._files.open_input_stream(path) as file:
                return bytes(file.readall())

        return self._reaching(read)

    def _reaching(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (OSError, pa.ArrowException) as error:
            raise failure_of(self.checkpoint, _WHAT, error) from error
