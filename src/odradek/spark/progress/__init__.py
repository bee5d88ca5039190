"""How far streaming queries are, committed to consumer groups so that lag tools show it.

Importing it brings in no Spark; `odradek.spark.progress.listener` is the part that listens to it.
"""

from odradek.spark.progress.targets import ProgressTarget

__all__ = ["ProgressTarget"]
