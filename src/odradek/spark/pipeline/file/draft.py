"""Reads the whole file, each part on its own, before names of inputs are looked up."""

import re
from collections.abc import Iterable, Mapping

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.file.clients import ClientKind, properties_for, read_clients
from odradek.spark.pipeline.file.fixtures import DraftFixture, read_fixtures
from odradek.spark.pipeline.file.nodes import Fields, Items, MapEntry, Node, Scalar
from odradek.spark.pipeline.file.section import NAME, Context, Section
from odradek.spark.pipeline.file.sinks import DraftSink, read_sink, read_trigger
from odradek.spark.pipeline.file.sources import check_topic, read_source
from odradek.spark.pipeline.file.transforms import DraftTransform, read_transform
from odradek.spark.pipeline.graph.model import (
    DeadLetters,
    Place,
    Registry,
    Restart,
    Source,
    SparkSettings,
    Trigger,
    TriggerKind,
)
from odradek.spark.pipeline.graph.queries import DEAD_LETTER_SINK

__all__ = ["Draft", "read_draft"]

_PIPELINE_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:,\[\]/]+):([0-9]{1,5})")
_MASTER = re.compile(r"local(\[[^\]]+\]|-cluster\[[^\]]+\])?|yarn|(spark|k8s|sc)://\S+")


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of the file; names of inputs are not looked up yet."""

    name: str
    place: Place
    bootstrap: str | None
    kafka: Mapping[str, str]
    registry: Registry | None
    checkpoint: str
    checkpoint_place: Place
    trigger: Trigger
    spark: SparkSettings
    restart: Restart
    sources: tuple[Source, ...]
    transforms: tuple[DraftTransform, ...]
    sinks: tuple[DraftSink, ...]
    dead_letters: DeadLetters | None
    tests: tuple[DraftFixture, ...]
    has_bootstrap: bool  # Whether the key exists; its value may be wrong.
    has_dead_letters: bool
    exactly_once_letters_place: Place
    watermark_places: Mapping[str, Place]  # Source or transform -> the watermark's column.
    on_error_places: Mapping[str, Place]
    rule_texts: Mapping[tuple[str, str], Scalar]  # Stage and rule -> the predicate.


def read_draft(context: Context, root: Node, included: Mapping[str, Iterable[MapEntry]]) -> Draft:
    """Reads every key of the file.

    Args:
        context: Collects the problems.
        root: The tree of the file, environment names replaced.
        included: `sources`, `transforms` and `sinks` of included files.
    """
    top = Section(context, root, "the pipeline")
    top.require("name")
    name = _name(top)
    _version(top)
    kafka = read_clients(top, tuple(ClientKind))
    registry = _registry(top)
    trigger = read_trigger(top, Trigger(TriggerKind.EVERY, 1000))
    top.node("include")
    source_fields = _entries(top, "sources", included)
    sources = [
        read_source(context, field.key, field.node, kafka=kafka, has_registry=registry is not None)
        for field in source_fields
    ]
    taken = [one.name for one in sources]
    transform_fields = _entries(top, "transforms", included, taken=taken)
    transforms = [read_transform(context, field.key, field.node) for field in transform_fields]
    stages = [*source_fields, *transform_fields]
    sinks = [
        read_sink(
            context,
            field.key,
            field.node,
            kafka=kafka,
            has_registry=registry is not None,
            trigger=trigger,
        )
        for field in _entries(top, "sinks", included, reserved=(DEAD_LETTER_SINK,))
    ]
    for key, found in (("sources", sources), ("sinks", sinks)):
        if not found:
            context.error(top.key_place(key), "P05", f"the pipeline needs at least one of '{key}'")
    dead_letters, letters_place = _dead_letters(top, kafka)
    checkpoint = top.path("checkpoint") or context.resolve(f".odradek/{name}")
    draft = Draft(
        name=name,
        place=top.place,
        bootstrap=_bootstrap(top),
        kafka=kafka,
        registry=registry,
        checkpoint=checkpoint,
        checkpoint_place=top.place_of("checkpoint"),
        trigger=trigger,
        spark=_spark(top),
        restart=_restart(top),
        sources=tuple(sources),
        transforms=tuple(transforms),
        sinks=tuple(sinks),
        dead_letters=dead_letters,
        tests=read_fixtures(context, top.items("tests", "a list of tests")),
        has_bootstrap=top.has("bootstrap"),
        has_dead_letters=top.has("dlq"),
        exactly_once_letters_place=letters_place,
        watermark_places=_places(stages, "watermark", "column"),
        on_error_places=_places(stages, "on_error"),
        rule_texts=_rule_texts(stages),
    )
    top.finish()
    return draft


def _entries(
    top: Section,
    key: str,
    included: Mapping[str, Iterable[MapEntry]],
    *,
    taken: Iterable[str] = (),
    reserved: tuple[str, ...] = (),
) -> list[MapEntry]:
    """The entries of a map by name: its own, then the included ones; names are checked."""
    node = top.node(key)
    own: list[MapEntry] = []
    if isinstance(node, Fields):
        own = list(node.fields.values())
    elif node is not None:
        top.wrong_type(node, f"'{key}'", "a map of names")
    what = key.removesuffix("s")
    seen = {name.casefold(): name for name in taken}
    found: list[MapEntry] = []
    for field in [*own, *included.get(key, ())]:
        folded = field.key.casefold()
        if not NAME.fullmatch(field.key):
            message = (
                f"'{field.key}' is not allowed as the name of a {what}: a letter or '_', then "
                "letters, digits and '_', at most 63"
            )
            top.context.error(field.key_place, "P06", message)
        elif folded in reserved:
            message = f"'{field.key}' is not allowed as the name of a {what}: dead letters use it"
            top.context.error(field.key_place, "P06", message)
        elif folded in seen:
            message = f"the name '{field.key}' of a {what} is taken by '{seen[folded]}'"
            top.context.error(field.key_place, "P06", message)
            continue
        seen[folded] = field.key
        found.append(field)
    return found


def _places(stages: Iterable[MapEntry], *path: str) -> dict[str, Place]:
    """The place of the value at a path, for each stage that has one."""
    found: dict[str, Place] = {}
    for stage in stages:
        node: Node | None = stage.node
        for key in path:
            field = node.fields.get(key) if isinstance(node, Fields) else None
            node = field.node if field is not None else None
        if node is not None:
            found[stage.key] = node.place
    return found


def _rule_texts(stages: Iterable[MapEntry]) -> dict[tuple[str, str], Scalar]:
    found: dict[tuple[str, str], Scalar] = {}
    for stage in stages:
        rules = stage.node.fields.get("expect") if isinstance(stage.node, Fields) else None
        items = rules.node.items if rules is not None and isinstance(rules.node, Items) else ()
        for item in items:
            fields = item.fields if isinstance(item, Fields) else {}
            name, where = fields.get("name"), fields.get("where")
            if name is None or where is None:
                continue
            if isinstance(name.node, Scalar) and isinstance(where.node, Scalar):
                found.setdefault((stage.key, name.node.text), where.node)
    return found


def _name(top: Section) -> str:
    name = top.text("name")
    if name is None:
        return "pipeline"
    if not _PIPELINE_NAME.fullmatch(name):
        message = (
            f"'{name}' is not allowed as the name of a pipeline: a small letter, then small "
            "letters, digits and '-', at most 40"
        )
        top.context.error(top.place_of("name"), "P06", message)
        return "pipeline"
    return name


def _version(top: Section) -> None:
    version = top.integer("version", 1, at_least=1)
    if version != 1:
        message = f"'version' of the pipeline has to be 1, found {version}"
        top.context.error(top.place_of("version"), "P03", message)


def _bootstrap(top: Section) -> str | None:
    expected = "host:port, or a list of them"
    node = top.node("bootstrap")
    if node is None:
        return None
    nodes = node.items if isinstance(node, Items) else (node,)
    addresses: list[str] = []
    for one in nodes:
        if not isinstance(one, Scalar) or not isinstance(one.value, str):
            top.wrong_type(one, "'bootstrap'", expected)
            continue
        for address in (part.strip() for part in one.text.split(",")):
            match = _ADDRESS.fullmatch(address)
            if match is None or not 0 < int(match[1]) < 1 << 16:
                top.wrong_type(one, "'bootstrap'", expected)
            else:
                addresses.append(address)
    return ",".join(addresses) or None


def _registry(top: Section) -> Registry | None:
    keys = top.section("registry")
    if keys is None:
        return None
    keys.require("url")
    url = keys.url("url", ("http://", "https://"))
    registry = Registry(url, keys.text("user"), keys.text("password"))
    keys.finish()
    return registry


def _spark(top: Section) -> SparkSettings:
    keys = top.section("spark")
    if keys is None:
        return SparkSettings("local[*]", {}, True)
    expected = "local[*], spark://..., k8s://..., yarn or sc://..."
    master = keys.parsed(
        "master", lambda text: text if _MASTER.fullmatch(text) else None, "local[*]", expected
    )
    conf = keys.properties("conf")
    for key in conf:
        if not key.startswith("spark."):
            message = f"unknown key '{key}' in 'conf' of {keys.what}: keys begin with 'spark.'"
            top.context.error(keys.property_places("conf", key)[0], "P02", message)
    settings = SparkSettings(master, conf, keys.boolean("ship", True))
    keys.finish()
    return settings


def _restart(top: Section) -> Restart:
    keys = top.section("restart")
    if keys is None:
        return Restart(10, 1000, 60_000)
    restart = Restart(
        max=keys.integer("max", 10),
        backoff_ms=keys.duration_ms("backoff", 1000),
        max_backoff_ms=keys.duration_ms("max_backoff", 60_000),
    )
    if restart.max_backoff_ms < restart.backoff_ms:
        message = f"'max_backoff' of {keys.what} is less than 'backoff'"
        top.context.error(keys.place_of("max_backoff"), "P03", message)
    keys.finish()
    return restart


def _dead_letters(top: Section, kafka: dict[str, str]) -> tuple[DeadLetters | None, Place]:
    """The dead letters, and the place of their `exactly_once`."""
    keys = top.section("dlq")
    if keys is None:
        return None, top.place
    keys.require("topic")
    topic = keys.text("topic", "a topic") or ""
    if topic:
        check_topic(keys, topic, keys.place_of("topic"))
    own = read_clients(keys, (ClientKind.SINK,))
    letters = DeadLetters(
        topic,
        {**properties_for(ClientKind.SINK, kafka), **own},
        exactly_once=keys.boolean("exactly_once", False),
        place=keys.place,
    )
    keys.finish()
    return letters, keys.place_of("exactly_once")
