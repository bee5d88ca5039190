"""Kafka's own message definitions, reduced to the facts a layout depends on.

`tests/data/kafka_messages.json` holds them for releases 3.9.1 and 4.3.1:
`{release: {message: {"versions", "flexible", "fields"}}}`, a field being
`[name, type, versions, nullable versions, tagged versions, tag, default, fields of a struct]`.
The file is made from the jars of the Java clients with

    python -m tests.support.kafka_schemas kafka-clients-3.9.1.jar kafka-clients-4.3.1.jar
"""

import json
import re
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from odradek.protocol.api_keys import API_SUPPORT
from odradek.protocol.registry import request_type, response_type

DATA = Path(__file__).parent.parent / "data" / "kafka_messages.json"


def facts_of_jar(jar: Path) -> dict[str, Any]:
    """The definitions in one jar of messages we declare, too."""
    wanted = {
        message_type(key).__name__
        for key in API_SUPPORT
        for message_type in (request_type, response_type)
    }
    facts = {}
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(archive.namelist()):
            message = name.removeprefix("common/message/").removesuffix(".json")
            if message not in wanted:
                continue
            text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
            definition = json.loads(re.sub(r'(?<!:)//[^"\n]*$', "", text, flags=re.MULTILINE))
            if "fields" not in definition:
                continue  # Removed in this release, only its name is left.
            structs = {s["name"]: s["fields"] for s in definition.get("commonStructs", ())}
            facts[message] = {
                "versions": definition["validVersions"],
                "flexible": definition["flexibleVersions"],
                "fields": _fields(definition["fields"], structs),
            }
    return facts


def _fields(fields: list[dict[str, Any]], structs: dict[str, Any]) -> list[Any]:
    return [
        [
            field["name"],
            field["type"],
            field["versions"],
            field.get("nullableVersions", "none"),
            field.get("taggedVersions", "none"),
            field.get("tag"),
            field.get("default"),
            _fields(
                field.get("fields") or structs.get(field["type"].removeprefix("[]"), ()), structs
            ),
        ]
        for field in fields
    ]


@cache
def shipped_facts() -> dict[str, Any]:
    """What `tests/data` holds."""
    facts: dict[str, Any] = json.loads(DATA.read_text())
    return facts


def main() -> None:
    """Write the data file from the jars named on the command line."""
    releases = {}
    for jar in map(Path, sys.argv[1:]):
        releases[jar.stem.removeprefix("kafka-clients-")] = facts_of_jar(jar)
    lines = [
        f'  "{release}": {{\n'
        + ",\n".join(
            f'    "{name}": {json.dumps(fact, separators=(",", ":"))}'
            for name, fact in facts.items()
        )
        + "\n  }"
        for release, facts in releases.items()
    ]
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
