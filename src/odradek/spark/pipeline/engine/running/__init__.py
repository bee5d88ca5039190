"""A run of a pipeline: plans, starts and supervises its queries."""
