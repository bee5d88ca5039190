"""Segments, the files of a log: appending, reading, searching, damage, replacement."""
