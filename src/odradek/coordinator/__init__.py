"""Coordinators: state that lives in the partitions of an internal topic, decided in memory."""
