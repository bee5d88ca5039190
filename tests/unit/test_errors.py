"""The exception tree is the one drawn, and the error codes are those of the wire."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from odradek import errors
from odradek.errors import (
    ApiError,
    ConfigError,
    ErrorCode,
    InvalidRecordError,
    OdradekError,
    StorageError,
)

# By number, so that a name moved to another number shows. Codes a client refreshes metadata for
# before it retries, then the codes it retries as they are.
REFRESH_METADATA = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
RETRIABLE_AS_THEY_ARE = {
    *(2, 7, 14, 15, 16, 19, 20, 41, 51, 70, 71, 75, 78, 88, 89, 106),
    *(122, 123, 133),  # Share groups.
}


class Drawn(NamedTuple):
    name: str
    parent: str | None
    code: int | None


def drawn_tree() -> Iterator[Drawn]:
    """Reads the tree out of the module's docstring; one line may name several siblings."""
    assert errors.__doc__ is not None
    ancestors: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.fullmatch(
            r" {4}(?P<branch>[│├└─ ]*)"
            r"(?P<names>[A-Z]\w+(?:\([^)]*\))?(?:, [A-Z]\w+)*)(?:\s+(?P<code>\d+)(?!\S))?.*",
            line,
        )
        if match is None:
            continue
        depth = len(match["branch"]) // 4
        names = re.sub(r"\([^)]*\)", "", match["names"]).split(", ")
        for name in names:
            code = int(match["code"]) if match["code"] else None
            yield Drawn(name, ancestors[depth - 1] if depth else None, code)
        ancestors[depth:] = names[-1:]


def defined_exceptions() -> list[type[OdradekError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, OdradekError)
    ]


def test_the_drawn_tree_is_the_real_one() -> None:
    drawn = [(entry.name, entry.parent) for entry in drawn_tree()]
    real = {
        (cls.__name__, None if cls is OdradekError else cls.__base__ and cls.__base__.__name__)
        for cls in defined_exceptions()
    }

    assert set(drawn) == real
    assert len(drawn) == len(real), "a class is drawn twice"


def test_the_drawn_codes_are_the_real_ones() -> None:
    drawn = {entry.name: entry.code for entry in drawn_tree() if entry.code is not None}
    assert len(drawn) >= 6

    for name, code in drawn.items():
        assert vars(errors)[name]("message").code == code, name


def test_everything_defined_is_exported() -> None:
    assert {cls.__name__ for cls in defined_exceptions()} <= set(errors.__all__)


def test_codes_have_one_name_each_and_no_gaps() -> None:
    numbers = [int(code) for code in ErrorCode]

    assert len(ErrorCode.__members__) == len(numbers), "two names for one number"
    assert numbers == list(range(-1, max(numbers) + 1))


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (-1, "UNKNOWN_SERVER_ERROR"),
        (0, "NONE"),
        (16, "NOT_COORDINATOR"),
        (35, "UNSUPPORTED_VERSION"),
        (56, "KAFKA_STORAGE_ERROR"),
        (77, "STALE_BROKER_EPOCH"),
        (90, "PRODUCER_FENCED"),
        (100, "UNKNOWN_TOPIC_ID"),
        (120, "TRANSACTION_ABORTABLE"),
    ],
)
def test_numbers_are_wire_contract(number: int, name: str) -> None:
    assert ErrorCode(number).name == name


def test_what_a_client_may_repeat() -> None:
    known = set(ErrorCode)

    assert {code for code in known if code.refresh_metadata} == REFRESH_METADATA & known
    assert {code for code in known if code.retriable} == (
        (REFRESH_METADATA | RETRIABLE_AS_THEY_ARE) & known
    )


def test_an_api_error_without_a_message_says_its_code() -> None:
    assert str(ApiError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"
    assert str(ApiError(ErrorCode.NOT_CONTROLLER, "ask broker 3")) == "ask broker 3"


def test_errors_carry_what_their_catcher_needs() -> None:
    refused = InvalidRecordError("2 records", [(0, "no key"), (4, "no key")])
    assert refused.record_errors == ((0, "no key"), (4, "no key"))
    assert StorageError("data-1", "fsync failed").log_dir == "data-1"
    assert StorageError.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert str(ConfigError("log.segment.bytes", 3, "at least 14")) == (
        "log.segment.bytes=3: at least 14"
    )
