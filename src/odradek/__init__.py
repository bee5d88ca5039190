"""Odradek: a distributed commit log that speaks the Kafka wire protocol."""

__version__ = "0.1.0"

__all__ = ["__version__"]
