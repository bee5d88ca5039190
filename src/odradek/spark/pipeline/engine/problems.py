"""Errors of building and running a pipeline, by their cause.

::

    OdradekError
    └── PipelineError              the file, the data or the machine: printed to the user unchanged
        ├── StageError             a source, transform or rule of the file; with its place
        ├── RegistryError          the registry of schemas does not answer, or not validly
        │   └── UnknownSchemaError the registry has no such schema
        ├── FileSystemError        a folder cannot be reached; see `file_systems`
        └── RefusedError           continuing would break a guarantee: exit code 3
"""

from odradek.errors import OdradekError
from odradek.spark.pipeline.graph.model import Place

__all__ = [
    "PipelineError",
    "RefusedError",
    "RegistryError",
    "StageError",
    "UnknownSchemaError",
]


class PipelineError(OdradekError):
    """The pipeline cannot be built or run as it is; the message says what to change."""


class StageError(PipelineError):
    """A part of the file cannot be built; `place` is its place in the file."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"{place}: {message}")
        self.place = place
        self.message = message


class RegistryError(PipelineError):
    """The registry of schemas cannot be reached, or its answer is not valid."""


class UnknownSchemaError(RegistryError):
    """The registry answers, and has no such schema."""


class RefusedError(PipelineError):
    """Continuing would break a guarantee: the lock or the checkpoint belongs to another run."""
