"""Segments: files of record batches, walked, searched, replaced."""
