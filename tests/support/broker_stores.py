"""The store behind a running broker, for tests that read or write it beside the broker."""

from odradek.broker.broker import Broker
from odradek.coordination.store import CoordinationStore
from odradek.metadata_store.broker_port import StoreControllerPort

__all__ = ["store_of"]


def store_of(broker: Broker) -> CoordinationStore:
    """The session of a started broker, whose engine is that of a store."""
    port = broker._port
    assert isinstance(port, StoreControllerPort)
    return port._store
