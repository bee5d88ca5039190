"""The producers of a partition: their state, its snapshots and its replay."""
