"""The coordination store: versioned nodes, ephemerals, watches, sessions, fenced writes."""

from odradek.coordination.embedded import EmbeddedEngine, EmbeddedStore
from odradek.coordination.store import CoordinationStore, Session, SessionState, Stat

__all__ = [
    "CoordinationStore",
    "EmbeddedEngine",
    "EmbeddedStore",
    "Session",
    "SessionState",
    "Stat",
]
