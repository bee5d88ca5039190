"""A run: its queries are planned, started and kept going."""
