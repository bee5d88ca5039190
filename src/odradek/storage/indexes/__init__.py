"""Indexes of a segment: by offset, by time, of aborted transactions."""
