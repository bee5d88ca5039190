"""Writes the reference pages that are generated from declarations in the code.

scripts/generate_reference.py            write them
scripts/generate_reference.py --check    only check whether they are current, by the exit status
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from odradek.broker.config import BROKER_DEFINITION, KAFKA_KEYS, TOPIC_DEFINITION, TopicConfig
from odradek.config import format_value, render_reference
from odradek.config.declaration import ConfigKey, Required

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "configuration.md"

_NOTICE = (
    "<!-- Made by scripts/generate_reference.py from the declarations; do not edit by hand. -->\n"
)


def configuration_page() -> str:
    """All settings of a broker and of a topic."""
    broker = render_reference(BROKER_DEFINITION, title="Broker and topic configuration")
    return "\n".join([_NOTICE + broker, *_topic_section(), *_section_without_effect()])


def _topic_section() -> Iterator[str]:
    yield "## Topic settings"
    yield ""
    yield (
        "Set when a topic is created, or later with `kafka-configs --entity-type topics`. What a "
        "topic does not set, the broker's key decides."
    )
    yield ""
    yield "| Key | Type | Default | Valid values | Broker's key | |"
    yield "|---|---|---|---|---|---|"
    for key in sorted(TOPIC_DEFINITION.fields[TopicConfig].values(), key=lambda key: key.name):
        cells = (
            f"`{key.name}`",
            key.kind.name.lower(),
            _default(key),
            "; ".join(map(str, key.checks)),
            _brokers_key(key),
            key.doc,
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _section_without_effect() -> Iterator[str]:
    yield "## Kafka's keys without effect"
    yield ""
    yield "A broker that finds one of these names it in a warning and starts."
    yield ""
    for name in sorted(KAFKA_KEYS - BROKER_DEFINITION.keys.keys()):
        yield f"- `{name}`"
    yield ""


def _default(key: ConfigKey) -> str:
    default = key.effective_default()
    assert not isinstance(default, Required), "a topic can do without any setting"
    text = format_value(default)
    return f"`{text}`" if text else "none"


def _brokers_key(key: ConfigKey) -> str:
    if key.name in BROKER_DEFINITION.keys:
        return f"`{key.name}`"
    names = [weaker.name for weaker in key.synonyms if weaker.name in BROKER_DEFINITION.keys]
    return f"`{names[0]}`" if names else ""


def main(arguments: list[str]) -> int:
    text = configuration_page()
    if arguments == ["--check"]:
        return int(not PAGE.exists() or PAGE.read_text() != text)
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
