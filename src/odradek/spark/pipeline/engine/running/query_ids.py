"""Finds the id of a query for the sink that writes its batches.

Spark's id of a query stays the same over restarts, and a sink recognises its batches by it. The
process that handles batches on a Spark Connect server does not get the id from Spark; the
checkpoint has it in any case, before the first batch.
"""

import json
import posixpath

from odradek.spark.pipeline.engine.operations.file_systems import open_folder
from odradek.spark.pipeline.engine.problems import PipelineError

__all__ = ["QueryIds"]

_FILE = "metadata"  # Spark's name for it.


class QueryIds:
    """The id of the query of a checkpoint; looked up once. Can be pickled."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._found: str | None = None

    def find(self) -> str:
        """The id.

        Raises:
            PipelineError: The checkpoint does not have it.
        """
        if self._found is None:
            self._found = _read(self._checkpoint)
        return self._found


def _read(checkpoint: str) -> str:
    try:
        files, folder = open_folder(checkpoint, "the checkpoint")
        with files.open_input_stream(posixpath.join(folder, _FILE)) as stream:
            return str(json.loads(stream.readall())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"expected the id of the query in {checkpoint}/{_FILE}, which Spark writes when it"
            f" starts: {error}. The checkpoint must be where the driver, or the Spark Connect"
            " server, can read it"
        ) from error
