"""Parses columns written as Spark's DDL: `id bigint, user struct<name: string>`."""

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import TokenType

from odradek.lazy_dataclass import dataclass

__all__ = ["DdlColumn", "DdlError", "parse_ddl"]


@dataclass(frozen=True, slots=True)
class DdlColumn:
    """A column; `offset` is where its name begins in the text."""

    name: str
    type: str
    offset: int


class DdlError(Exception):
    """The text is not DDL; `offset` is the place of the problem."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def parse_ddl(text: str) -> tuple[DdlColumn, ...]:
    """The columns of a DDL.

    Raises:
        DdlError: It does not parse, has no column, or has one twice.
    """
    _check_commas(text)
    try:
        schema, shift = _schema(text, "CREATE TABLE t (", ")"), len("CREATE TABLE t (")
    except DdlError as error:
        try:  # Spark accepts `a: int, b: string`, too.
            prefix = "CREATE TABLE t (c STRUCT<"
            schema, shift = _schema(text, prefix, ">)").expressions[0].kind, len(prefix)
        except DdlError:
            raise error from None
    columns = tuple(_column(definition, shift) for definition in schema.expressions)
    if not columns:
        raise DdlError("it has no column", 0)
    seen: set[str] = set()
    for column in columns:
        if column.name.casefold() in seen:
            raise DdlError(f"column '{column.name}' is there twice", column.offset)
        seen.add(column.name.casefold())
    return columns


def _schema(text: str, before: str, after: str) -> exp.Schema:
    whole = f"{before}{text}{after}"
    spark = Dialect.get_or_raise("spark")
    try:
        statements = spark.parser().parse(spark.tokenize(whole), whole)
    except ParseError as error:
        first = error.errors[0]
        offset = _offset(whole, first["line"], first["col"], len(first["highlight"] or ""))
        word = first["highlight"]
        message = f"'{word}' is not a type or not expected here" if word else "it ends too early"
        raise DdlError(message, min(max(offset - len(before), 0), len(text))) from None
    except TokenError:
        raise DdlError("a quote or comment has no end", 0) from None
    schema = statements[0].this if len(statements) == 1 and statements[0] else None
    if not isinstance(schema, exp.Schema):
        raise DdlError("expected columns such as 'id bigint, name string'", 0)
    for definition in schema.expressions:
        if not isinstance(definition, exp.ColumnDef) or definition.args.get("kind") is None:
            offset = (definition.meta.get("start") or len(before)) - len(before)
            raise DdlError(f"'{definition.name}' has no type", max(offset, 0))
    return schema


def _column(definition: exp.Expression, shift: int) -> DdlColumn:
    kind = definition.args.get("kind")
    if not isinstance(definition, exp.ColumnDef) or kind is None:
        raise DdlError(f"'{definition.name}' has no type", 0)
    start = definition.this.meta.get("start", shift)
    return DdlColumn(definition.name, kind.sql(dialect="spark").lower(), max(start - shift, 0))


def _check_commas(text: str) -> None:
    """Refuses a comma without a column on both sides, which the parser accepts and Spark not."""
    try:
        tokens = Dialect.get_or_raise("spark").tokenize(text)
    except TokenError:
        return
    before = TokenType.COMMA
    for token in tokens:
        if token.token_type == TokenType.COMMA and before == TokenType.COMMA:
            raise DdlError("a column is missing before ','", token.start)
        before = token.token_type
    if tokens and before == TokenType.COMMA:
        raise DdlError("a column is missing after ','", tokens[-1].start)


def _offset(text: str, line: int, last_column: int, width: int) -> int:
    """The offset of a token, from the column of its last character, which counts from 1."""
    lines = text.split("\n")
    return sum(len(one) + 1 for one in lines[: line - 1]) + last_column - width
