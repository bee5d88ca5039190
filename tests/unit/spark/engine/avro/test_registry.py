"""The registry's client and wire format, against a real HTTP server."""

import base64
from collections.abc import Iterator

import pytest

from odradek.spark.pipeline.engine.avro.registry import RegistryClient, frame_prefix, split_frame
from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.problems import (
    PipelineError,
    RegistryError,
    UnknownSchemaError,
)
from odradek.spark.pipeline.graph.model import AvroCodec, Registry, TopicInput
from tests.support.schema_registry import SchemaRegistry, running_registry


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with running_registry() as server:
        yield server


def client(server: SchemaRegistry, waits: list[float] | None = None) -> RegistryClient:
    slept = [] if waits is None else waits
    return RegistryClient(Registry(server.url + "/", "me", "secret"), sleep=slept.append)


def test_the_prefix_names_the_schema() -> None:
    """12:SP-57: byte 0 is 0, then the id, big-endian."""
    assert frame_prefix(258) == b"\x00\x00\x00\x01\x02"
    schema_id, payload = split_frame(b"\x00\x00\x00\x01\x02abc")
    assert (schema_id, bytes(payload)) == (258, b"abc")
    assert bytes(split_frame(frame_prefix(7))[1]) == b""


@pytest.mark.parametrize(
    "record", [b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x07a", b"\xffabcde"]
)
def test_other_bytes_are_no_frame(record: bytes) -> None:
    """12:SP-57."""
    with pytest.raises(ValueError, match="expected"):
        split_frame(record)


def test_schemas_are_fetched_once_with_the_credentials(server: SchemaRegistry) -> None:
    """12:SP-57: fetched by id, cached."""
    server.answers["/schemas/ids/3"] = [(200, {"schema": '"string"'})]
    asking = client(server)
    assert asking.schema_of_id(3) == '"string"'
    assert asking.schema_of_id(3) == '"string"'
    secret = "Basic " + base64.b64encode(b"me:secret").decode()
    assert server.asked == [("/schemas/ids/3", secret)]


def test_the_newest_version_of_a_subject(server: SchemaRegistry) -> None:
    """12:SP-57: names are escaped."""
    path = "/subjects/a%2Fb-value/versions/latest"
    server.answers[path] = [(200, {"id": 9, "version": 2, "schema": '"int"'})]
    found = client(server).newest("a/b-value")
    assert (found.id, found.text) == (9, '"int"')


def test_a_registry_in_trouble_is_asked_again(server: SchemaRegistry) -> None:
    """12:SP-57: retried, ever later."""
    answer = (200, {"schema": '"int"'})
    server.answers["/schemas/ids/1"] = [(503, {}), (200, b"no json"), (429, {}), (500, {}), answer]
    waits: list[float] = []
    assert client(server, waits).schema_of_id(1) == '"int"'
    assert waits == [0.2, 0.4, 0.8, 1.6]


def test_one_that_stays_in_trouble_fails_and_is_not_taken_for_an_answer(
    server: SchemaRegistry,
) -> None:
    """12:SP-57: never a bad record."""
    server.answers["/schemas/ids/1"] = [(503, {})]
    asking = client(server)
    with pytest.raises(RegistryError, match="gives no schema 1 after 5 attempts") as failed:
        asking.schema_of_id(1)
    assert not isinstance(failed.value, UnknownSchemaError)
    server.answers["/schemas/ids/1"] = [(200, {"schema": '"int"'})]
    assert asking.schema_of_id(1) == '"int"'


def test_nobody_there() -> None:
    """12:SP-57."""
    waits: list[float] = []
    gone = RegistryClient(Registry("http://127.0.0.1:9", None, None), sleep=waits.append)
    with pytest.raises(RegistryError, match="after 5 attempts"):
        gone.schema_of_id(1)
    assert len(waits) == 4


def test_an_unknown_schema_is_known_to_be_unknown(server: SchemaRegistry) -> None:
    """12:SP-57: a record that names it is bad; the registry is asked once."""
    asking = client(server)
    for _ in range(3):
        with pytest.raises(UnknownSchemaError, match="has no schema 5"):
            asking.schema_of_id(5)
    assert len(server.asked) == 1


def test_answers_that_cannot_be_used(server: SchemaRegistry) -> None:
    server.answers["/schemas/ids/1"] = [(401, {})]
    server.answers["/schemas/ids/2"] = [(200, {"schema": "x", "schemaType": "PROTOBUF"})]
    server.answers["/schemas/ids/3"] = [(200, {"schema": "x", "references": [{"name": "y"}]})]
    server.answers["/schemas/ids/4"] = [(200, {})]
    server.answers["/schemas/ids/5"] = [(200, [])]
    for number, words in enumerate(
        (
            "refuses schema 1: 401",
            "found PROTOBUF",
            "refers to other",
            "no schema",
            "expected a JSON object",
        ),
        1,
    ):
        with pytest.raises(RegistryError, match=words):
            client(server).schema_of_id(number)


def test_an_address_that_is_none() -> None:
    with pytest.raises(RegistryError, match="expected the registry's address"):
        RegistryClient(Registry("file:///etc/passwd", None, None))


def test_schemas_of_a_run_are_settled_once(server: SchemaRegistry) -> None:
    """12:SP-57: the newest version of `<topic>-value` is fixed at start."""
    path = "/subjects/orders-value/versions/latest"
    server.answers[path] = [(200, {"id": 1, "schema": '"int"'}), (200, {"id": 2, "schema": "x"})]
    server.answers["/subjects/other/versions/latest"] = [(200, {"id": 3, "schema": '"long"'})]
    registry = Registry(server.url, None, None)
    schemas = AvroSchemas(registry)
    topics = TopicInput(topics=("orders",))
    for _ in range(2):
        assert schemas.reader(topics, AvroCodec(), False).schema == '"int"'
        assert schemas.reader(topics, AvroCodec(), False).registry == registry
    assert schemas.writer("orders", AvroCodec(), False).schema_id == 1
    assert schemas.writer("orders", AvroCodec(subject="other"), True).schema_id == 3
    own = schemas.reader(topics, AvroCodec(schema='"bytes"'), False)
    assert (own.schema, own.registry) == ('"bytes"', None)
    assert schemas.writer("orders", AvroCodec(schema='"bytes"'), False).schema_id is None
    assert len(server.asked) == 2


def test_a_subject_that_cannot_be_told() -> None:
    """12:SP-50."""
    several = TopicInput(topics=("a", "b"))
    with pytest.raises(PipelineError, match="expected a `subject`"):
        AvroSchemas(Registry("http://x", None, None)).reader(several, AvroCodec(), False)
    with pytest.raises(PipelineError, match="expected `registry`"):
        AvroSchemas(None).reader(TopicInput(topics=("a",)), AvroCodec(), True)
