"""Errors of building and running a pipeline, by their cause.

::

    OdradekError
    └── PipelineError              the file, the data or the machine: printed to the user unchanged
        ├── StageError             a source, transform or rule of the file; with its place
        ├── NotReadyError          brokers, topics or tables are missing; each with its place
        ├── RegistryError          the registry of schemas does not answer, or not validly
        │   └── UnknownSchemaError the registry has no such schema
        ├── FileSystemError        a folder cannot be reached; see `file_systems`
        └── RefusedError           continuing would break a guarantee: exit code 3
"""

from collections.abc import Sequence

from odradek.errors import OdradekError
from odradek.spark.pipeline.graph.model import Place

__all__ = [
    "NotReadyError",
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


class NotReadyError(PipelineError):
    """What a run needs is missing; `problems` are places of the file and messages."""

    def __init__(self, problems: Sequence[tuple[Place, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{place}: {message}" for place, message in self.problems))


class RegistryError(PipelineError):
    """The registry of schemas cannot be reached, or its answer is not valid."""


class UnknownSchemaError(RegistryError):
    """The registry answers, and has no such schema."""


class RefusedError(PipelineError):
    """Continuing would break a guarantee: the lock or the checkpoint belongs to another run."""
