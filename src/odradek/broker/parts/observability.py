"""The interfaces for operators: the page of metrics and health, and the control socket."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from odradek import __version__
from odradek.broker.control_socket import ControlSocket
from odradek.broker.observability import ObservabilityServer
from odradek.broker.parts.base import Base
from odradek.broker.parts.state import State
from odradek.broker.re_election import re_elect_controller
from odradek.builds import name_build
from odradek.controller import Controller
from odradek.errors import ConfigError
from odradek.metrics.process import register_process_metrics

__all__ = ["serve_commands", "serve_observability"]


@asynccontextmanager
async def serve_observability(
    base: Base, why_unhealthy: Callable[[], str | None]
) -> AsyncIterator[tuple[str, int] | None]:
    """Serves `/metrics` and `/healthz`; yields host and port, or None if the page is disabled.

    Raises:
        ConfigError: The address cannot be used.
    """
    settings = base.settings.observability
    if settings.port < 0:
        yield None
        return
    register_process_metrics(base.metrics, {"version": __version__, "build": name_build()})
    page = ObservabilityServer(base.metrics, why_unhealthy, host=settings.host, port=settings.port)
    try:
        address = await page.start()
    except OSError as error:
        why = f"cannot listen there on {settings.host}: {error}"
        raise ConfigError("odradek.metrics.port", settings.port, why) from error
    try:
        yield address
    finally:
        await page.stop()


@asynccontextmanager
async def serve_commands(base: Base, controller: Controller, state: State) -> AsyncIterator[None]:
    """Serves an operator's commands, by a socket in the first data directory."""
    commands = {
        "re-elect-controller": lambda: re_elect_controller(
            controller, state.cache, state.replication.waiter, clock=base.around.clock
        )
    }
    control = ControlSocket(base.settings.log.log_dirs[0], commands, base.around.streams)
    try:
        await control.start()
        yield
    finally:
        await control.stop()
