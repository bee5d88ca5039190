"""Lets Spark find `format("odradek")`: it looks for modules named ``pyspark_…`` in its Python.

That is the Python that ``PYSPARK_PYTHON`` names, else the first ``python3`` on the ``PATH``;
`odradek.spark.register` registers the source also where that is another one than the driver's.

Importing it never raises: one module that does hides all other sources from Spark. What is missing
is told when the source is used.
"""

__all__ = ["DefaultSource"]

try:
    from odradek.spark.datasource.source import DefaultSource
except ImportError as _error:
    _reason = str(_error)

    class DefaultSource:  # type: ignore[no-redef]  # stands in where Spark or Arrow is missing
        """Says what is missing."""

        @classmethod
        def name(cls) -> str:
            """What `format` takes."""
            return "odradek"

        def __init__(self, options: object) -> None:  # noqa: ARG002 - as Spark calls it
            raise ImportError(
                f"format odradek needs more than is here: {_reason}; pip install 'odradek[spark]'"
            )
