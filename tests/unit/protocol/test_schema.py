"""Message classes: slotted, frozen, keyword-only, cheap to declare."""

from collections.abc import Sequence

import pytest

from odradek.protocol.api_keys import API_SUPPORT
from odradek.protocol.messages import alter_configs, incremental_alter_configs
from odradek.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.primitives import INT32, STRING, UUID
from odradek.protocol.registry import request_type, response_type
from odradek.protocol.schema import (
    ArrayOf,
    Message,
    MessageType,
    array,
    default_of,
    replace,
    wire,
)


class Inner(Message):
    value: int = wire(INT32, default=-1)


class Outer(Message, versions="0-2", flexible="2+"):
    name: str = wire(STRING)
    label: str | None = wire(STRING, "1+", nullable="1+", default=None)
    inners: Sequence[Inner] = wire(array(Inner))
    inner: Inner = wire(Inner, "2+", tag=0)
    topic_id: bytes = wire(UUID)


def test_fields_default_as_declared() -> None:
    outer = Outer()
    assert (outer.name, outer.label, outer.inners, outer.topic_id) == ("", None, (), bytes(16))
    assert outer.inner == Inner(value=-1)


def test_fields_are_set_by_keyword_alone() -> None:
    assert Outer(name="n", inners=[Inner(value=3)]).inners[0].value == 3
    with pytest.raises(TypeError):
        Outer("n")  # type: ignore[call-arg]  # what is tested
    with pytest.raises(TypeError):
        Outer(nonsense=1)  # type: ignore[call-arg]  # what is tested


def test_messages_are_frozen_and_slotted() -> None:
    outer = Outer(name="n")
    for name in ("name", "nonsense"):
        with pytest.raises(AttributeError, match="frozen"):
            setattr(outer, name, "x")
    with pytest.raises(AttributeError, match="frozen"):
        del outer.name
    assert not hasattr(outer, "__dict__")
    assert type(outer) is Outer


def test_equality_and_hash_follow_the_values() -> None:
    assert Outer(name="n") == Outer(name="n")
    assert Outer(name="n") != Outer(name="m")
    assert Inner() != Outer()
    assert hash(Outer(name="n")) == hash(Outer(name="n"))
    assert len({Inner(value=1), Inner(value=1), Inner(value=2)}) == 2


def test_replace_changes_a_copy() -> None:
    outer = Outer(name="n", label="l")
    assert replace(outer, name="m") == Outer(name="m", label="l")
    assert outer.name == "n"


def test_repr_tells_what_differs_from_the_default() -> None:
    assert repr(Outer(name="n", inner=Inner(value=2))) == "Outer(name='n', inner=Inner(value=2))"


def test_declarations_are_kept_in_wire_order() -> None:
    names = [field.name for field in Outer.wire_fields]
    assert names == ["name", "label", "inners", "inner", "topic_id"]
    label, inner = Outer.wire_fields[1], Outer.wire_fields[3]
    assert 0 not in label.versions
    assert 1 in label.nullable
    assert (inner.tag, 2 in inner.tagged, 1 in inner.tagged) == (0, True, False)


def test_the_default_struct_is_one_object() -> None:
    """Encoders know an absent tagged struct by identity."""
    field = Outer.wire_fields[3]
    assert default_of(field) is default_of(field)
    assert Outer().inner is default_of(field)


def test_repr_shows_no_secret() -> None:
    messages: list[Message] = [
        alter_configs.AlterableConfig(name="ssl.key.password", value="xyzzy"),
        incremental_alter_configs.AlterableConfig(name="ssl.key.password", value="xyzzy"),
        ScramCredentialUpsertion(name="u", salt=b"xyzzy", salted_password=b"xyzzy"),
        SaslAuthenticateRequest(auth_bytes=b"\0u\0xyzzy"),
        SaslAuthenticateResponse(auth_bytes=b"xyzzy"),
    ]
    assert "xyzzy" not in f"{messages}"
    assert repr(messages[0]) == "AlterableConfig(name='ssl.key.password', value=…)"


def test_what_sounds_like_a_secret_is_marked_as_one() -> None:
    """In the messages of every API."""
    secrets: set[str] = set()
    seen: set[MessageType] = set()

    def visit(kind: object) -> None:
        if isinstance(kind, ArrayOf):
            visit(kind.element)
        if not isinstance(kind, MessageType) or kind in seen:
            return
        seen.add(kind)
        for field in kind.wire_fields:
            if any(word in field.name for word in ("password", "salt", "auth_bytes", "hmac")):
                assert field.is_secret, f"{kind.__name__}.{field.name}"
                secrets.add(field.name)
            visit(field.type)

    for api_key in API_SUPPORT:
        visit(request_type(api_key))
        visit(response_type(api_key))
    assert secrets >= {"salted_password", "salt", "auth_bytes"}
