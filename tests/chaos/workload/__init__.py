"""Clients that write down what happens to them, each a process of its own.

``python -m tests.chaos.workload ROLE CLIENT SETTINGS``: a producer, a reader of assigned
partitions, a member of a group, an observer of committed offsets and of ends, or the final read of
a topic; on librdkafka or on Odradek's clients. The format is that of `tests.chaos.checker`.
"""
