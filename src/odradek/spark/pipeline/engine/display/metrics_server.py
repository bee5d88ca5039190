"""An HTTP server of a run's metrics."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from odradek.metrics import CONTENT_TYPE
from odradek.spark.pipeline.engine.problems import PipelineError

__all__ = ["MetricsServer"]

_PATHS: Final = ("/", "/metrics")


class MetricsServer:
    """A server of one page, for the duration of a `with`.

    Args:
        port: 0 for any free port.
        render: Makes the page.
    """

    def __init__(self, port: int, render: Callable[[], str]) -> None:
        try:
            self._server = _Server(port, render)
        except OSError as error:
            raise PipelineError(
                f"metrics cannot be served on port {port}: {error.strerror or error}"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, render: Callable[[], str]) -> None:
        self.render = render
        super().__init__(("", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        if self.path.partition("?")[0] not in _PATHS:
            self.send_error(404)
            return
        page = server.render().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Does nothing: requests for metrics are not logged."""
