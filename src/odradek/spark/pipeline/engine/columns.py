"""Names of columns: those a decoded source adds, and those that never leave the engine. Pure."""

from typing import Final

__all__ = [
    "ADDED",
    "ERROR",
    "HEADERS",
    "KEY",
    "KEY_ERROR",
    "REASON",
    "RECORD",
    "RECORD_HEADERS",
    "VALUE",
    "VALUE_ERROR",
    "quoted",
]

# What a decoded source has beside the fields of its schema, and the record's column it is made of.
ADDED: Final = {
    "_key": "key",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}
HEADERS: Final = "_headers"

RECORD_HEADERS: Final = "headers"

# Inside the engine only: no name of a pipeline's file can begin like this.
KEY: Final = "__odradek_key"
KEY_ERROR: Final = "__odradek_key_error"
VALUE: Final = "__odradek_value"
VALUE_ERROR: Final = "__odradek_value_error"
ERROR: Final = "__odradek_error"
REASON: Final = "__odradek_reason"
RECORD: Final = "__odradek_record"


def quoted(*path: str) -> str:
    """A column's name as SQL takes it, whatever it is made of."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)
