"""Compaction: of each key the last record stays."""

from odradek.storage.cleaning.cleaner import LogCleaner

__all__ = ["LogCleaner"]
