"""A broker whose controller has a listener of its own."""

import asyncio
from pathlib import Path

import pytest

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings

pytestmark = pytest.mark.slow


def test_clients_are_sent_to_the_data_plane_first(tmp_path: Path) -> None:
    """03a:C-17: the control listener is the controller's, wherever it stands in `listeners`."""
    settings = {
        "listeners": "CONTROLLER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "control.plane.listener.name": "controller",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(tmp_path),
    }

    async def scenario() -> None:
        broker = Broker(load_broker_settings(None, settings, {}))
        await broker.start()
        try:
            data, control = broker.endpoints
            assert (data.listener, control.listener) == ("PLAINTEXT", "CONTROLLER")
            assert broker.bootstrap_server == f"127.0.0.1:{data.port}"
            assert broker._controller._config.control_listener == "CONTROLLER"
        finally:
            await broker.stop()

    asyncio.run(scenario())
