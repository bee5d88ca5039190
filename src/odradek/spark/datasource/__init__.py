"""`format("odradek")`: topics as a source and a sink of Spark."""
