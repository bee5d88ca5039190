"""DataFrames of a pipeline's graph: read, decoded, checked, encoded."""
