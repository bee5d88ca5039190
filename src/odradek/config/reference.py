"""The reference page of all settings, generated from their declarations."""

from collections.abc import Iterable

from odradek.config.declaration import ConfigKey, Definition, Required
from odradek.config.values import format_value

__all__ = ["render_reference"]

_INTRODUCTION = """\
Sources, from weak to strong: default, properties file, environment variable, command line \
(`--set key=value`), dynamic default of the cluster, dynamic value of the broker. The strongest \
source that sets a key or one of its synonyms counts; within one source the key beats its synonyms.
"""


def render_reference(definition: Definition, *, title: str = "Configuration") -> str:
    """The page as Markdown: a section per declaring class, a table of facts per key."""
    lines = [f"# {title}", "", _INTRODUCTION]
    for config_class in definition.classes:
        keys = sorted(definition.fields[config_class].values(), key=lambda declared: declared.name)
        heading, _, rest = (config_class.__doc__ or config_class.__name__).partition("\n")
        lines += [f"## {heading.strip().rstrip('.')}", ""]
        if rest.strip():
            lines += ["\n".join(line.strip() for line in rest.strip().splitlines()), ""]
        for declared in keys:
            lines += _section(definition, declared)
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(definition: Definition, declared: ConfigKey) -> Iterable[str]:
    yield f"### `{declared.name}`"
    yield ""
    yield declared.doc
    yield ""
    yield "| | |"
    yield "|---|---|"
    for fact, text in _facts(definition, declared):
        yield f"| {fact} | {text} |"
    yield ""


def _facts(definition: Definition, declared: ConfigKey) -> Iterable[tuple[str, str]]:
    yield "Type", declared.kind.name.lower()
    yield "Default", _default(declared)
    if declared.checks:
        yield "Valid values", _cell("; ".join(map(str, declared.checks)))
    yield "Update", declared.update.value
    if declared.agreed:
        yield "Agreed", "the same on all brokers of a cluster"
    if declared.synonyms:
        yield (
            "Synonyms",
            ", ".join(
                f"`{weaker.name}`"
                + (f" (multiplied by {weaker.scale})" if weaker.scale != 1 else "")
                + _synonym_default(definition.keys[weaker.name])
                for weaker in declared.synonyms
            ),
        )
    if declared.per_listener:
        yield "Per listener", f"`listener.name.<listener>.{declared.name}`"
    yield "Environment", f"`{declared.environment_name}`"


def _default(declared: ConfigKey) -> str:
    if isinstance(declared.default, Required):
        return "none: must be set"
    text = format_value(declared.default)
    if text is None:
        return "none"
    return f"`{_cell(text)}`" if text else "empty"


def _synonym_default(weaker: ConfigKey) -> str:
    return f", default {_default(weaker)}" if weaker.default is not None else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
