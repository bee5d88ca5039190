"""The generated page tells every fact of every key, and secrets stay out of it."""

from dataclasses import dataclass

from odradek.config import Definition, key, render_reference
from tests.unit.config.declared_configs import LogConfig, SocketConfig


def test_page() -> None:
    page = render_reference(Definition(LogConfig), title="Broker configuration")
    assert page.startswith("# Broker configuration\n\nSources, from weak to strong")
    assert "## Logs\n\nSegments and how long\nthey are kept.\n" in page
    start = page.index("### `log.retention.ms`")
    section = page[start : page.index("### `log.roll.ms`")]
    assert section == (
        "### `log.retention.ms`\n"
        "\n"
        "Age at which a segment is deleted; -1: never.\n"
        "\n"
        "| | |\n"
        "|---|---|\n"
        "| Type | long |\n"
        "| Default | none |\n"
        "| Valid values | -1 or at least 1 |\n"
        "| Update | cluster-wide |\n"
        "| Synonyms | `log.retention.minutes` (multiplied by 60000), "
        "`log.retention.hours` (multiplied by 3600000), default `168` |\n"
        "| Environment | `ODRADEK_LOG_RETENTION_MS` |\n"
        "\n"
    )
    assert page.endswith("|\n")


def test_keys_are_sorted_within_their_class() -> None:
    page = render_reference(Definition(SocketConfig, LogConfig))
    names = [line[5:-1] for line in page.splitlines() if line.startswith("### ")]
    assert names.index("broker.id") < names.index("ssl.keystore.password")
    assert names.index("ssl.keystore.password") < names.index("log.cleanup.policy")
    assert names[: len(names) - 5] == sorted(names[: len(names) - 5])


def test_required_and_per_listener_keys() -> None:
    page = render_reference(Definition(SocketConfig))
    assert "| Default | none: must be set |" in page
    assert "| Per listener | `listener.name.<listener>.ssl.keystore.password` |" in page
    assert "| Update | per-broker |" in page


def test_an_agreed_key_is_marked() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Shared:
        """Shared."""

        partitions: int = key("partitions", default=1, agreed=True, doc="Partitions.")

    assert "| Agreed | the same on all brokers of a cluster |" in render_reference(
        Definition(Shared)
    )
    assert "Agreed" not in render_reference(Definition(SocketConfig))
