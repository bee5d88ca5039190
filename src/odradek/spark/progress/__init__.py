"""Progress of streaming queries, committed to consumer groups so that lag tools show it.

Importing it does not import Spark; `odradek.spark.progress.listener` does.
"""

from odradek.spark.progress.targets import ProgressTarget

__all__ = ["ProgressTarget"]
