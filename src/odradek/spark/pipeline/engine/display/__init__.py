"""The display of a run: progress, a table or lines of JSON, metrics."""
