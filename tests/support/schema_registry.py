"""A registry of schemas over HTTP, as far as readers need one."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["SchemaRegistry", "running_registry"]


class SchemaRegistry(ThreadingHTTPServer):
    """Answers from a script: path -> the answers in turn, the last one for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, list[tuple[int, object]]] = {}
        # Paths and credentials, in the order they came.
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, subject: str, schema_id: int, schema: object) -> None:
        """Makes a schema the newest version of a subject."""
        text = json.dumps(schema)
        self.answers[f"/schemas/ids/{schema_id}"] = [(200, {"schema": text})]
        newest = {"subject": subject, "id": schema_id, "version": 1, "schema": text}
        self.answers[f"/subjects/{subject}/versions/latest"] = [(200, newest)]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, SchemaRegistry)
        server.asked.append((self.path, self.headers["Authorization"]))
        answers = server.answers.get(self.path, [(404, {"error_code": 40403})])
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Tests look at `asked`."""


@contextmanager
def running_registry() -> Iterator[SchemaRegistry]:
    server = SchemaRegistry()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
