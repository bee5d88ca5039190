"""A store that speaks as much of S3 as a checkpoint's folder needs, in memory, for one bucket.

No signature is checked and nothing is kept from the outside: it stands in for a real store, which
tests cannot have, behind Arrow's real client.
"""

import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET = "bucket"
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        # Invariant: read and written with `lock` held.
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        key, _ = self._asked()
        with self.server.lock:
            found = b"" if not key else self.server.objects.get(key)
        if found is None:
            self._answer(404)
        else:
            self._answer(200, length=len(found))

    def do_GET(self) -> None:
        key, query = self._asked()
        with self.server.lock:
            if not key:
                self._answer(200, self._listing(query).encode())
                return
            found = self.server.objects.get(key)
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        first, last = 0, len(found) - 1
        if (wanted := self.headers.get("Range")) is not None:
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(last, int(end))
        self._answer(206 if wanted else 200, found[first : last + 1])

    def do_PUT(self) -> None:
        key, query = self._asked()
        body = self._body()
        with self.server.lock:
            if "uploadId" in query:
                self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
            elif (origin := self.headers.get("x-amz-copy-source")) is not None:
                name = urllib.parse.unquote(origin).lstrip("/").partition("/")[2]
                self.server.objects[key] = self.server.objects[name]
                self._answer(200, b"<CopyObjectResult><ETag>e</ETag></CopyObjectResult>")
                return
            elif key:
                self.server.objects[key] = body
        self._answer(200, headers={"ETag": '"e"'})

    def do_POST(self) -> None:
        key, query = self._asked()
        body = self._body()
        with self.server.lock:
            if "delete" in query:
                for one in ElementTree.fromstring(body).iter():
                    if one.tag.endswith("Key"):
                        self.server.objects.pop(one.text or "", None)
                text = "<DeleteResult/>"
            elif "uploads" in query:
                upload = f"u{len(self.server.uploads)}"
                self.server.uploads[upload] = {}
                text = (
                    f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
                    "</InitiateMultipartUploadResult>"
                )
            else:
                parts = self.server.uploads[query["uploadId"]]
                self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
                text = "<CompleteMultipartUploadResult/>"
        self._answer(200, text.encode())

    def do_DELETE(self) -> None:
        key, _ = self._asked()
        with self.server.lock:
            self.server.objects.pop(key, None)
        self._answer(204)

    def _listing(self, query: dict[str, str]) -> str:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys, folders = [], set()
        for key in sorted(self.server.objects):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                keys.append(key)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.server.objects[key])}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        count = len(keys) + len(folders)
        return (
            f"<ListBucketResult><KeyCount>{count}</KeyCount><IsTruncated>false</IsTruncated>"
            f"{contents}{common}</ListBucketResult>"
        )

    def _asked(self) -> tuple[str, dict[str, str]]:
        """The key within the bucket, and the query."""
        parts = urllib.parse.urlsplit(self.path)
        key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")[2]
        return key, dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))

    def _body(self) -> bytes:
        raw = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_framed = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return _unframed(raw) if is_framed else raw

    def _answer(
        self,
        status: int,
        body: bytes = b"",
        *,
        length: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Last-Modified", _DATE)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Says nothing."""


def _unframed(raw: bytes) -> bytes:
    """A body out of the frames that carry its checksum."""
    found = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size.partition(b";")[0], 16)
        if length == 0:
            break
        found, raw = found + raw[:length], raw[length + 2 :]
    return found


@contextmanager
def s3_store() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Its address, and what it holds by key."""
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, name="s3", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.objects
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
