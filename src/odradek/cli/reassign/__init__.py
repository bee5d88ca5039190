"""`odradek reassign`: moves replicas of partitions to other brokers and data directories."""

from odradek.cli.reassign.commands import add_arguments, run

__all__ = ["add_arguments", "run"]
