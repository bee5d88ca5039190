"""What becomes of each key that an operator sets: used, ignored or refused, and why.

The start of a broker ends at the first value that cannot be used; this looks at all of them. Each
key is judged alone first. Those that pass are judged together, up to the first contradiction: what
follows from it is known when it is mended.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from odradek.broker.config import BROKER_DEFINITION, BrokerSettings
from odradek.broker.config.alone import more_brokers_needed
from odradek.broker.config.broker import RESERVED_VARIABLES, read_properties, warning_of
from odradek.broker.config.protection import check_given_tls, check_protection
from odradek.broker.config.zookeeper import with_java_properties
from odradek.broker.tls import server_context
from odradek.config import HIDDEN, Settings, SettingSource
from odradek.config.declaration import LISTENER_PREFIX
from odradek.config.settings import environment_layer
from odradek.errors import ConfigError
from odradek.lazy_dataclass import dataclass

__all__ = ["Fate", "KeyFate", "judge_settings"]

# Weakest first, as they are read.
_SOURCES: Final = (
    SettingSource.FILE,
    SettingSource.ENVIRONMENT,
    SettingSource.COMMAND_LINE,
)


class Fate(Enum):
    """What a broker does with a key."""

    USED = "used"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFate:
    """One key of one source."""

    name: str
    source: SettingSource  # DEFAULT: not set, and a setting without it is refused.
    value: str | None  # None: unknown, and may be a secret.
    fate: Fate
    why: str  # Also of a key that is used, where an operator should know something; else empty.


_Given = Mapping[SettingSource, Mapping[str, object]]


def judge_settings(
    config_file: str | None, overrides: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[KeyFate, ...]:
    """The fate of every key that is set, in the order of file, environment and command line.

    Args:
        config_file: A properties file; None for none.
        overrides: From the command line, by key.
        environment: All variables; those of other programs are ignored.

    Raises:
        ConfigError: The file cannot be read.
    """
    given: _Given = {
        SettingSource.FILE: {} if config_file is None else read_properties(config_file),
        SettingSource.ENVIRONMENT: environment_layer(
            BROKER_DEFINITION, with_java_properties(environment), RESERVED_VARIABLES
        ),
        SettingSource.COMMAND_LINE: overrides,
    }
    fates: dict[tuple[SettingSource, str], KeyFate] = {}
    usable: dict[SettingSource, dict[str, object]] = {source: {} for source in _SOURCES}
    for source in _SOURCES:
        for name, text in given[source].items():
            alone = _judge_alone(source, name, text)
            if alone is None:
                usable[source][name] = text
            else:
                fates[source, name] = alone
    settings = Settings(BROKER_DEFINITION, usable)
    refusal = _contradiction(settings)
    remarks = _remarks(settings, given)
    for source in _SOURCES:
        for name, text in usable[source].items():
            fates[source, name] = _judge_among(settings, source, name, text, remarks)
    if refusal is not None:
        source = _source_of(usable, refusal.key)
        fates[source, refusal.key] = KeyFate(
            name=refusal.key,
            source=source,
            value=_shown(refusal.key, usable.get(source, {}).get(refusal.key)),
            fate=Fate.REFUSED,
            why=refusal.why,
        )
    order = [(source, name) for source in _SOURCES for name in given[source]]
    return tuple(fates[each] for each in [*order, *(key for key in fates if key not in order)])


def _judge_alone(source: SettingSource, name: str, text: object) -> KeyFate | None:
    """The fate of a key that is decided already; None if it depends on the others."""

    def end(fate: Fate, why: str) -> KeyFate:
        return KeyFate(name=name, source=source, value=_shown(name, text), fate=fate, why=why)

    try:
        unknown = Settings(BROKER_DEFINITION, {source: {name: text}}).unknown
        check_protection(unknown)
    except ConfigError as error:
        return end(Fate.REFUSED, error.why)
    for each in unknown:
        return end(Fate.IGNORED, warning_of(each).removeprefix(f"{name}: "))
    return None


def _contradiction(settings: Settings) -> ConfigError | None:
    try:
        built = BrokerSettings.from_settings(settings)
        check_given_tls(settings, built.network.endpoints)
        for endpoint in built.network.endpoints:
            if endpoint.security_protocol.uses_tls:
                server_context(built.tls(endpoint.listener))
    except ConfigError as error:
        return error
    return None


def _judge_among(
    settings: Settings,
    source: SettingSource,
    name: str,
    text: object,
    remarks: Mapping[str, str],
) -> KeyFate:
    why = _why_ineffective(settings, source, name)
    return KeyFate(
        name=name,
        source=source,
        value=_shown(name, text),
        fate=Fate.IGNORED if why else Fate.USED,
        why=why or remarks.get(name, ""),
    )


def _why_ineffective(settings: Settings, source: SettingSource, name: str) -> str:
    """The reason why another value is used; empty if this one is."""
    listener = None
    base = name
    if name.startswith(LISTENER_PREFIX):
        listener, _, base = name.removeprefix(LISTENER_PREFIX).partition(".")
        if listener.upper() not in _listener_names(settings):
            return f"there is no listener {listener.upper()}"
    canonical = next(
        (
            declared.name
            for declared in settings.definition.keys.values()
            if any(weaker.name == base for weaker in declared.synonyms)
        ),
        base,
    )
    strongest = settings.get(canonical, listener=listener).levels[0]
    if (strongest.name, strongest.source) == (name, source):
        return ""
    if strongest.source is source:
        return f"{strongest.name} is set, too, and stronger"
    where = strongest.source.name.lower().replace("_", " ")
    return f"{strongest.name} of the {where} is stronger"


def _listener_names(settings: Settings) -> tuple[str, ...]:
    listeners = settings.get("listeners").value
    assert isinstance(listeners, tuple), "a list"
    return tuple(entry.partition("://")[0].strip().upper() for entry in listeners)


def _remarks(settings: Settings, given: _Given) -> dict[str, str]:
    """What the operator should know about keys that are used as they stand."""
    remarks: dict[str, str] = {}
    for name, (is_worth_it, remark) in _REMARKS.items():
        value = settings.get(name).value
        if value is not None and is_worth_it(value):
            remarks[name] = remark
    quorum = {
        name.strip().upper()
        for values in given.values()
        for name in str(values.get("controller.listener.names", "")).split(",")
    }
    for name in _listener_names(settings):
        if name in quorum:
            remarks["listeners"] = (
                f"{name} becomes a listener for clients like any other: take it out"
            )
    if settings.get("zookeeper.connect").value is None:
        remarks |= dict(more_brokers_needed(settings))
    return remarks


def _is_in_tmp(value: object) -> bool:
    return isinstance(value, tuple) and any(str(path).startswith("/tmp/") for path in value)  # noqa: S108 - compared


def _is_given(_value: object) -> bool:
    return True


def _is_small_buffer(value: object) -> bool:
    return isinstance(value, int) and 0 < value <= 102_400


# Key -> for which values, and the remark.
_REMARKS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "log.dirs": (_is_in_tmp, "most systems empty /tmp when they boot"),
    "zookeeper.connect": (
        _is_given,
        "the broker joins the cluster of this ZooKeeper; remove it for a broker of its own",
    ),
    "socket.send.buffer.bytes": (
        _is_small_buffer,
        "slower than the system's own choice, which grows with the connection: remove it",
    ),
    "socket.receive.buffer.bytes": (
        _is_small_buffer,
        "slower than the system's own choice, which grows with the connection: remove it",
    ),
}


def _source_of(usable: _Given, name: str) -> SettingSource:
    """The strongest source that sets a name."""
    return next(
        (source for source in reversed(_SOURCES) if name in usable[source]), SettingSource.DEFAULT
    )


def _shown(name: str, text: object) -> str | None:
    declared = BROKER_DEFINITION.find(name)
    if declared is None or text is None:
        return None
    return HIDDEN if declared.is_sensitive else str(text)
