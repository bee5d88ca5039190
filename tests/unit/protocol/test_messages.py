"""Our declarations against Kafka's own definitions, field by field and version by version."""

import re
from typing import Any

import pytest

from odradek.protocol.api_keys import API_SUPPORT
from odradek.protocol.primitives import WireType
from odradek.protocol.registry import request_type, response_type
from odradek.protocol.schema import ArrayOf, Field, Message, MessageType, default_of
from odradek.protocol.versions import VersionRange
from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka, why_missing
from tests.support.kafka_schemas import facts_of_jar, shipped_facts

MESSAGES = [kind(key) for key in API_SUPPORT for kind in (request_type, response_type)]


def definition_layout(fields: list[Any], version: int) -> list[Any]:
    """What a definition says of one version: name, type, nullable, tag, default, fields."""
    layout = []
    for name, type_, versions, nullable, tagged, tag, default, inner in fields:
        if version not in VersionRange.parse(versions):
            continue
        is_tagged = version in VersionRange.parse(tagged)
        layout.append(
            (
                snake_case(name),
                re.sub("[A-Z].*", "struct", type_),
                version in VersionRange.parse(nullable),
                tag if is_tagged else None,
                normal_default(default, type_),
                definition_layout(inner, version),
            )
        )
    return layout


def our_layout(cls: MessageType, version: int) -> list[Any]:
    """The same of a declaration."""
    return [
        (
            field.name,
            type_name(field),
            version in field.nullable,
            field.tag if version in field.tagged else None,
            None if struct_of(field) else default_of(field),
            our_layout(struct, version) if (struct := struct_of(field)) else [],
        )
        for field in cls.wire_fields
        if version in field.versions
    ]


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def type_name(field: Field) -> str:
    inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
    prefix = "[]" if isinstance(field.type, ArrayOf) else ""
    return prefix + (inner.name if isinstance(inner, WireType) else "struct")


def struct_of(field: Field) -> MessageType | None:
    inner = field.type.element if isinstance(field.type, ArrayOf) else field.type
    return inner if isinstance(inner, MessageType) else None


def normal_default(default: Any, type_: str) -> Any:
    if re.match(r"(\[\])?[A-Z]", type_):
        return None  # Structs: null or a struct of defaults, checked by their fields.
    if default == "null":
        return None
    if type_.startswith("[]"):
        return ()
    if type_ in ("string", "bytes", "records", "uuid"):
        zero = {"string": "", "bytes": b"", "records": None, "uuid": bytes(16)}[type_]
        return default or zero
    if type_ == "bool":
        return default in ("true", True)
    if type_ == "float64":
        return float(default or 0)
    return int(str(default or 0), 0)


@pytest.mark.parametrize(
    ("cls", "release"),
    [
        pytest.param(cls, release, id=f"{cls.__name__}-{release}")
        for release, facts in shipped_facts().items()
        for cls in MESSAGES
        if cls.__name__ in facts
    ],
)
def test_layout_equals_the_definition(cls: type[Message], release: str) -> None:
    """11:PS-1 (layouts), every version both sides know."""
    definition = shipped_facts()[release][cls.__name__]
    known = VersionRange.parse(definition["versions"])
    flexible = VersionRange.parse(definition["flexible"])
    for version in range(cls.wire_versions.first, cls.wire_versions.last + 1):
        if version in known:
            assert (version in cls.wire_flexible) == (version in flexible)
            expected = definition_layout(definition["fields"], version)
            assert our_layout(cls, version) == expected, version


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_version_is_known_to_a_release(cls: type[Message]) -> None:
    known: set[int] = set()
    for facts in shipped_facts().values():
        if definition := facts.get(cls.__name__):
            valid = VersionRange.parse(definition["versions"])
            known.update(range(valid.first, valid.last + 1))
    ours = set(range(cls.wire_versions.first, cls.wire_versions.last + 1))
    assert ours <= known


@pytest.mark.kafka
@pytest.mark.parametrize("release", KAFKA_VERSIONS)
def test_shipped_facts_equal_the_jar(release: str) -> None:
    install = find_kafka(release)
    if install is None:
        pytest.skip(why_missing(release) or f"no Kafka {release}: run `make kafka`")
    jar = install.lib_dir / f"kafka-clients-{release}.jar"
    assert facts_of_jar(jar) == shipped_facts()[release]


def test_structs_with_optional_presence_default_to_null() -> None:
    """Null by default wherever null is allowed: an absent cursor must not read as a cursor."""
    for cls in MESSAGES:
        for field in cls.wire_fields:
            if isinstance(field.type, MessageType) and field.nullable:
                assert default_of(field) is None, (cls, field.name)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_versions_and_flexibility_agree_with_the_api_table(cls: type[Message]) -> None:
    support = next(
        support
        for key, support in API_SUPPORT.items()
        if cls in (request_type(key), response_type(key))
    )
    assert cls.wire_versions == support.parsed
    assert (cls.wire_flexible.first if cls.wire_flexible else None) == support.flexible_from
