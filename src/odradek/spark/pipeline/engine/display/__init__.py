"""What a run shows: progress, a table or lines, metrics."""
