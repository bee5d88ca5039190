"""Idempotent producers of several projects that send numbered records, and tell of each answer.

A sender is a process of its own. It sends 0, 1, 2, … to the partitions in turn, as fast as its
client takes them but for a short pause after each, until its input ends; then it waits for all
answers. It prints a line for each answer, `acked N OFFSET` (-1: not told) or `failed N WHY`, and at
the end `sent COUNT`. With a transactional id it does all that in one transaction, which it commits.
"""
