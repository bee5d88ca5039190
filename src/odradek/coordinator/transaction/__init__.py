"""Transactions: their states, ids and epochs, their records, and the delivery of their markers."""
