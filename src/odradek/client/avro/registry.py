"""Reads schemas from a registry, and the five-byte prefix of a record that names one.

A record of the registry's wire format is::

    0       0, the magic byte
    1 .. 4  the schema's id, big-endian int32
    5 ..    the encoded value

A schema never changes under its id, so schemas are kept for the life of the process, one cache for
each registry. A registry that does not answer is asked again a few times, with growing pauses; then
the caller fails: a registry that is down must never make good records look bad. If the registry
answers that it has no such schema, the record is bad.
"""

import base64
import http.client
import json
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any, ClassVar, Final

from odradek.clock import Clock, SystemClock
from odradek.errors import OdradekError
from odradek.lazy_dataclass import dataclass

__all__ = [
    "PREFIX_BYTES",
    "MissingSchemaError",
    "RegisteredSchema",
    "SchemaRegistry",
    "SchemaRegistryError",
    "frame_prefix",
    "split_frame",
]

PREFIX_BYTES: Final = 5
_PREFIX: Final = struct.Struct(">bi")
_MAGIC: Final = 0

_ATTEMPTS: Final = 5
_FIRST_WAIT_SECONDS: Final = 0.2  # Doubled each time: 0.2 + 0.4 + 0.8 + 1.6 = 3 s of waiting.
_TIMEOUT_SECONDS: Final = 10.0
# A registry has thousands of schemas, a topic few: this only bounds the memory for garbage ids,
# each of which is kept as unknown.
_MAX_CACHED: Final = 10_000
_UNKNOWN_MS: Final = 30_000
_NOT_FOUND: Final = 404
_SERVER_ERROR: Final = 500
_TOO_MANY: Final = 429


def split_frame(record: bytes) -> tuple[int, memoryview]:
    """The schema's id and the encoded value.

    Raises:
        ValueError: It is not in the registry's wire format.
    """
    if len(record) < PREFIX_BYTES:
        raise ValueError(f"expected a prefix of {PREFIX_BYTES} bytes, found {len(record)} in all")
    magic, schema_id = _PREFIX.unpack_from(record)
    if magic != _MAGIC:
        raise ValueError(f"expected the magic byte 0, found {magic & 0xFF}")
    return schema_id, memoryview(record)[PREFIX_BYTES:]


def frame_prefix(schema_id: int) -> bytes:
    """The five-byte prefix of a value of that schema."""
    return _PREFIX.pack(_MAGIC, schema_id)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema and the id by which records name it."""

    id: int
    text: str


class SchemaRegistryError(OdradekError):
    """The registry cannot be reached, or its answer is not valid."""


class MissingSchemaError(SchemaRegistryError):
    """The registry answers, and has no such schema."""


class SchemaRegistry:
    """A client of one registry. Not thread-safe.

    Args:
        address: ``http://host:port`` or https.
        user: With the password, for a registry that asks for one.

    Raises:
        SchemaRegistryError: The address is none.
    """

    # What is raised; `missing` is a subclass of `failure`.
    failure: ClassVar[type[Exception]] = SchemaRegistryError
    missing: ClassVar[type[Exception]] = MissingSchemaError

    def __init__(
        self,
        address: str,
        user: str | None = None,
        password: str | None = None,
        *,
        sleep: Callable[[float], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        url = urllib.parse.urlsplit(address)
        if url.scheme not in ("http", "https") or not url.netloc:
            raise self.failure(
                f"expected the registry's address as http://host:port, found {address!r}"
            )
        self._url = address.rstrip("/")
        self._sleep = sleep or time.sleep
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user is not None:
            secret = f"{user}:{password or ''}".encode()
            self._headers["Authorization"] = "Basic " + base64.b64encode(secret).decode()
        self._clock = clock or SystemClock()
        self._by_id: dict[int, str] = {}
        # Unknown schemas, and when to ask again: a new one reaches the registry's other machines
        # late.
        self._unknown: dict[int, tuple[Exception, int]] = {}

    def schema_of_id(self, schema_id: int) -> str:
        """The text of a schema.

        Raises:
            MissingSchemaError: The registry has none with that id.
            SchemaRegistryError: The registry does not answer.
        """
        known = self._by_id.get(schema_id)
        if known is not None:
            return known
        now_ms = self._clock.monotonic_ms()
        error, until_ms = self._unknown.get(schema_id, (None, 0))
        if error is None or now_ms >= until_ms:
            found = self._ask_for_id(schema_id)
            for cache in (self._by_id, self._unknown):
                if len(cache) >= _MAX_CACHED:
                    cache.clear()
            if isinstance(found, str):
                self._by_id[schema_id] = found
                return found
            error = found
            self._unknown[schema_id] = (error, now_ms + _UNKNOWN_MS)
        raise error

    def newest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject.

        Raises:
            MissingSchemaError: The registry has no such subject.
            SchemaRegistryError: The registry does not answer.
        """
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest"
        answer = self._get(path, f"subject {subject!r}")
        return RegisteredSchema(int(answer["id"]), self._schema_of(answer, f"subject {subject!r}"))

    def _ask_for_id(self, schema_id: int) -> str | Exception:
        what = f"schema {schema_id}"
        try:
            answer = self._get(f"/schemas/ids/{schema_id}", what)
        except self.missing as error:
            return error
        try:
            return self._schema_of(answer, what)
        except self.failure as error:  # A record names this schema, so the record is wrong.
            return self.missing(str(error))

    def _get(self, path: str, what: str) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, headers=self._headers)  # noqa: S310 - checked
        failure: Exception | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(_FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310
                    answer = json.load(reply)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == _NOT_FOUND:
                        raise self.missing(f"{self._url} has no {what}") from None
                    if error.code < _SERVER_ERROR and error.code != _TOO_MANY:
                        raise self.failure(
                            f"{self._url} refuses {what}: {error.code} {error.reason}"
                        ) from None
                    failure = error
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure = error
            else:
                if not isinstance(answer, dict):
                    raise self.failure(f"{self._url}: expected a JSON object for {what}")
                return answer
        raise self.failure(
            f"{self._url} gives no {what} after {_ATTEMPTS} attempts: {failure}"
        ) from failure

    def _schema_of(self, answer: dict[str, Any], what: str) -> str:
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise self.failure(f"expected {what} to be AVRO, found {kind}")
        if answer.get("references"):
            raise self.failure(f"{what} refers to other schemas, which is not supported")
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self.failure(f"the answer for {what} has no schema")
        return text
