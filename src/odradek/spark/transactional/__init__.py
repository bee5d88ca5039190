"""The exactly-once topic sink: one transaction for each micro-batch of a query."""
