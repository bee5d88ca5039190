"""Public name of `progress_of`, which `odradek.spark.progress.listener` implements."""

from odradek.spark.progress.listener import progress_of

__all__ = ["progress_of"]
