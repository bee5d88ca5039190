"""Parses SQL without Spark: one SELECT, the tables it reads, and the places in its text.

The parser is sqlglot's Spark dialect, with two corrections: `window` is a function of Spark and,
for the dialect, a keyword (its named windows still parse); and a comma with nothing after it, which
the dialect accepts, is an error. SQL of Spark that the dialect does not know raises
`UnknownSyntaxError`: only Spark can check it.
"""

import logging
import re
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import TokenType

from odradek.lazy_dataclass import dataclass

__all__ = [
    "Query",
    "SqlError",
    "TableReference",
    "UnknownSyntaxError",
    "offset_of",
    "parse_predicate",
    "parse_select",
]

# Spark's SQL that the dialect does not read.
_UNKNOWN_TO_DIALECT = (
    re.compile(r"\bwatermark\b.{1,200}?\bdelay\s+of\b", re.IGNORECASE | re.DOTALL),
    re.compile(r"[\w`\])]:[A-Za-z_`\[]"),  # A path into a variant: `payload:user.name`.
    re.compile(r"\blateral\s+(?:join|\()", re.IGNORECASE),
)
_NOT_BEHIND_COMMA = {TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM}
_COMMENT_OR_TEXT = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL
)

# sqlglot also logs the problems that are raised here with a place.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class SqlError(Exception):
    """The text is not the expected SQL; `offset` is the place of the problem."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class UnknownSyntaxError(SqlError):
    """The text may be right, but only Spark can check it."""


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table that is read by name; `offset` is where the name begins."""

    name: str
    offset: int


@dataclass(frozen=True, slots=True)
class Query:
    """One SELECT, and the tables it reads, each once, in the order they are written.

    Attributes:
        sql: Its text, without blanks around it, up to the semicolon.
    """

    sql: str
    expression: exp.Query
    tables: tuple[TableReference, ...]


def parse_select(sql: str) -> Query:
    """Parses one SELECT.

    Raises:
        UnknownSyntaxError: Only Spark can check it.
        SqlError: It does not parse, or is not a single SELECT.
    """
    statements = _statements(sql)
    if not statements:
        raise SqlError("expected one SELECT, found nothing", 0)
    if len(statements) > 1:
        raise SqlError("expected one SELECT, found several", offset_of(statements[1], sql))
    statement = statements[0]
    if isinstance(statement, exp.Values):
        statement = exp.select("*").from_(statement)
    if isinstance(statement, exp.Subquery):
        statement = statement.unnest()
    if not isinstance(statement, exp.Query):
        kind = statement.key.upper() if not isinstance(statement, exp.Command) else sql.split()[0]
        raise SqlError(f"expected one SELECT, found {kind}", 0)
    return Query(_without_semicolon(sql), statement, _tables(statement))


def parse_predicate(sql: str) -> exp.Expr:
    """Parses a predicate, as after WHERE.

    Raises:
        UnknownSyntaxError: Only Spark can check it.
        SqlError: It does not parse.
    """
    statements = _statements(sql)
    if len(statements) != 1:
        raise SqlError("expected one predicate", 0)
    if isinstance(statements[0], exp.Query) or not isinstance(statements[0], exp.Condition):
        raise SqlError("expected a predicate such as 'amount > 0'", 0)
    return statements[0]


def offset_of(expression: exp.Expr, sql: str = "") -> int:
    """The offset of an expression in the text it was parsed from; 0 if it is not known."""
    starts = [
        int(node.meta["start"])
        for node in expression.walk()
        if "start" in node.meta and int(node.meta["start"]) < max(len(sql), 1 << 62)
    ]
    return min(starts, default=0)


def _statements(sql: str) -> list[exp.Expr]:
    spark = Dialect.get_or_raise("spark")
    try:
        tokens = spark.tokenize(sql)
    except TokenError:
        raise SqlError("a quote or a comment has no end", _last_opening(sql)) from None
    _prepare(tokens)
    try:
        parsed = spark.parser().parse(tokens, sql)
    except ParseError as error:
        raise _parse_error(error, sql) from None
    except RecursionError:
        raise SqlError("it is nested too deep", 0) from None
    return [one for one in parsed if one is not None and not isinstance(one, exp.Semicolon)]


def _prepare(tokens: list[Any]) -> None:
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        second = tokens[index + 2] if index + 2 < len(tokens) else None
        if token.token_type == TokenType.WINDOW:
            is_clause = second is not None and second.token_type == TokenType.ALIAS
            if not is_clause:
                token.token_type = TokenType.VAR
        elif token.token_type == TokenType.COMMA and (
            following is None or following.token_type in _NOT_BEHIND_COMMA
        ):
            raise SqlError("nothing follows ','", token.start)


def _parse_error(error: ParseError, sql: str) -> SqlError:
    first = error.errors[0]
    word = first.get("highlight") or ""
    lines = sql.split("\n")
    offset = sum(len(one) + 1 for one in lines[: first["line"] - 1]) + first["col"] - len(word)
    offset = min(max(offset, 0), len(sql))
    bare = _COMMENT_OR_TEXT.sub(" ", sql)
    if any(pattern.search(bare) for pattern in _UNKNOWN_TO_DIALECT):
        message = "this syntax is not known without Spark ('validate --deep' asks Spark)"
        return UnknownSyntaxError(message, offset)
    description = str(first.get("description") or "")
    if description.startswith("Expecting"):
        message = f"{description[0].lower()}{description[1:].rstrip('.')} at '{word}'"
    elif "SENTINEL" in description or not word:
        message = f"it ends too early, after '{word}'"
    else:
        message = f"'{word}' is not expected here"
    return SqlError(message, offset)


def _last_opening(sql: str) -> int:
    """The offset of the quote or comment that has no end."""
    bare = _COMMENT_OR_TEXT.sub(lambda match: " " * len(match.group()), sql)
    found = re.search(r"['\"`]|/\*", bare)
    return found.start() if found else 0


def _without_semicolon(sql: str) -> str:
    for token in Dialect.get_or_raise("spark").tokenize(sql):
        if token.token_type == TokenType.SEMICOLON:
            return sql[: token.start].strip()
    return sql.strip()


def _tables(query: exp.Query) -> tuple[TableReference, ...]:
    """Tables by name, without those that a WITH around them defines."""
    found: dict[str, TableReference] = {}
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue  # A table function.
        name = ".".join(part.name for part in table.parts)
        if not table.db and _is_defined_around(table, name):
            continue
        reference = TableReference(name, int(table.this.meta.get("start", 0)))
        known = found.get(name.casefold())
        if known is None or reference.offset < known.offset:
            found[name.casefold()] = reference
    return tuple(sorted(found.values(), key=lambda reference: reference.offset))


def _is_defined_around(table: exp.Table, name: str) -> bool:
    """Whether a WITH of an enclosing query, before the table's own part of it, has the name."""
    inner: exp.Expr = table
    outer = table.parent
    while outer is not None:
        with_ = outer.args.get("with_") or outer.args.get("with")
        if isinstance(with_, exp.With) and with_ is not inner:
            for definition in with_.expressions:
                if definition.alias.casefold() == name.casefold():
                    return True
        if isinstance(outer, exp.With):
            for definition in outer.expressions:
                if definition is inner:
                    break
                if definition.alias.casefold() == name.casefold():
                    return True
        inner, outer = outer, outer.parent
    return False
