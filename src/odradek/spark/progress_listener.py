"""The name under which programs import `progress_of`; `odradek.spark.progress.listener` has it."""

from odradek.spark.progress.listener import progress_of

__all__ = ["progress_of"]
