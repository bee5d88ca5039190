"""Parses `.sql` files, which have transforms only, each after a line with its name.

    -- name: known
    -- watermark: ts 30s
    -- expect positive drop: amount > 0
    select ts, country, amount from raw where country is not null;

A transform ends at `;` or before the next name. The resulting tree is that of the same transform in
YAML.
"""

import re

from odradek.spark.pipeline.file.nodes import Fields, Items, MapEntry, Node, Origins, Scalar
from odradek.spark.pipeline.file.section import Context
from odradek.spark.pipeline.file.transforms import text_scalar
from odradek.spark.pipeline.graph.model import Place

__all__ = ["parse_sql_file"]

_NAME = re.compile(r"\s*--\s*name:\s*(?P<name>.*?)\s*")
_WATERMARK = re.compile(r"\s*--\s*watermark:\s*(?P<column>\S+)\s+(?P<delay>\S+)\s*")
_EXPECT = re.compile(r"\s*--\s*expect\s+(?P<name>\S+)\s+(?P<action>\S+?)\s*:\s*(?P<where>.*?)\s*")
_DIRECTIVE = re.compile(r"\s*--\s*(?P<word>watermark:|expect\s)")
_SHAPES = {
    "watermark:": "'-- watermark: COLUMN DELAY'",
    "expect": "'-- expect NAME ACTION: predicate'",
}


def parse_sql_file(text: str, shown: str, context: Context) -> list[MapEntry]:
    """The transforms of a file, as fields of `transforms`."""
    lines = text.split("\n")
    starts = [index for index, line in enumerate(lines) if _NAME.fullmatch(line)]
    for index, line in enumerate(lines[: starts[0] if starts else len(lines)]):
        if line.strip() and not line.lstrip().startswith("--"):
            place = Place(shown, index + 1, 1)
            context.error(place, "P08", "expected '-- name: NAME' before the first SELECT")
            break
    found: list[MapEntry] = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(lines)
        found.append(_transform(lines, start, end, shown, context))
    return found


def _transform(lines: list[str], start: int, end: int, shown: str, context: Context) -> MapEntry:
    name_match = _NAME.fullmatch(lines[start])
    assert name_match is not None
    name_place = Place(shown, start + 1, name_match.start("name") + 1)
    fields: dict[str, MapEntry] = {}
    rules: list[Node] = []
    body = start + 1
    while body < end and (not lines[body].strip() or lines[body].lstrip().startswith("--")):
        place = Place(shown, body + 1, 1)
        watermark = _WATERMARK.fullmatch(lines[body])
        rule = _EXPECT.fullmatch(lines[body])
        directive = _DIRECTIVE.match(lines[body])
        if watermark is not None:
            fields["watermark"] = MapEntry("watermark", place, _fields(watermark, place, context))
        elif rule is not None:
            rules.append(_fields(rule, place, context))
        elif directive is not None:
            shape = _SHAPES[directive["word"].strip()]
            context.error(place, "P03", f"expected {shape}")
        body += 1
    if rules:
        fields["expect"] = MapEntry("expect", rules[0].place, Items(tuple(rules), rules[0].place))
    sql = "\n".join(lines[body:end])
    fields["sql"] = MapEntry("sql", name_place, text_scalar(sql, shown, body + 1, context))
    return MapEntry(name_match["name"], name_place, Fields(fields, name_place))


def _fields(match: re.Match[str], place: Place, context: Context) -> Fields:
    found: dict[str, MapEntry] = {}
    for key, text in match.groupdict().items():
        at = Place(place.file, place.line, match.start(key) + 1)
        origins = Origins(at.file, ((0, at.line, at.column),))
        scalar = Scalar(text, text, at, origins, is_plain=False)
        found[key] = MapEntry(key, at, context.environment.replace(scalar))
    return Fields(found, place)
