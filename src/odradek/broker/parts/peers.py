"""The other brokers: connections to them, and the requests between brokers and the controller."""

from odradek.broker.parts.base import Base
from odradek.broker.parts.state import State
from odradek.broker.peers.connections import PeerConnections
from odradek.broker.peers.controller_link import ControllerLink
from odradek.broker.peers.controller_services import ControllerServices
from odradek.broker.peers.isr_requests import IsrRequests
from odradek.controller import Controller
from odradek.metadata_store.broker_port import StoreControllerPort
from odradek.tasks import Tasks

__all__ = ["build_link", "build_peers", "build_services"]


def build_peers(base: Base, state: State) -> PeerConnections:
    """Builds the connections to other brokers, none open yet; they are closed on exit."""
    around = base.around
    return PeerConnections(
        base.settings.node.id,
        lambda: state.changes.current,
        state.cache,
        streams=around.streams,
        clock=around.clock,
        random=around.random,
        sleep=around.sleep,
    )


def build_services(controller: Controller, port: StoreControllerPort) -> ControllerServices:
    """Builds the services of this broker's controller for other brokers."""
    return ControllerServices(controller, port.take_producer_ids)


def build_link(
    base: Base,
    state: State,
    controller: Controller,
    services: ControllerServices,
    peers: PeerConnections,
    port: StoreControllerPort,
    tasks: Tasks,
) -> ControllerLink:
    """Builds the way to the active controller, and has the port use it as the protocol permits."""
    broker_id = base.settings.node.id
    versions = base.settings.inter_broker.versions
    link = ControllerLink(broker_id, controller, services, peers, state.cache, versions)
    isrs = IsrRequests(
        broker_id,
        link,
        broker_epoch=lambda: port.broker_epoch,
        topic_id=state.cache.get_topic_id,
        tasks=tasks,
    )
    port.use_controller(
        ask_isr=None if versions.alter_partition is None else isrs.alter,
        ask_producer_ids=(
            None
            if versions.allocate_producer_ids is None
            else lambda: link.allocate_producer_ids(port.broker_epoch)
        ),
    )
    return link
