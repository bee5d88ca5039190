"""What can go wrong while a pipeline is built or run, by whose fault it is.

::

    OdradekError
    └── PipelineError              the file, the data or the surroundings: told to the user as it is
        ├── StageError             a source, transform or rule of the file; with its place
        ├── RegistryError          the registry of schemas does not answer, or not usably
        │   └── UnknownSchemaError it answers that it has no such schema
        ├── FileSystemError        a folder cannot be reached; see `file_systems`
        └── RefusedError           going on would break a promise: exit code 3
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
    """Something that the file says cannot be built; `place` is where it says so."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"{place}: {message}")
        self.place = place
        self.message = message


class RegistryError(PipelineError):
    """The registry of schemas cannot be reached, or answers what nobody can use."""


class UnknownSchemaError(RegistryError):
    """The registry is there and has no such schema."""


class RefusedError(PipelineError):
    """Going on would break a promise: the lock or the checkpoint is another's."""
