"""Follows columns, event time and state through one SELECT, as far as possible without Spark."""

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.graph.relations import (
    Column,
    Operator,
    OperatorKind,
    Relation,
    any_event_time,
    both,
    either,
    merged,
    unknown_relation,
)
from odradek.spark.pipeline.graph.sql import Query, offset_of

__all__ = ["ColumnProblem", "relation_of_query"]

_WINDOWS = {"window", "session_window", "window_time"}
# Words that are values without being columns.
_NILADIC = {"current_date", "current_timestamp", "current_user", "session_user", "user"}
# Each call gives another value, so that a replay of the same records gives other rows.
_NOT_REPEATABLE = {
    "rand",
    "randn",
    "random",
    "uuid",
    "current_timestamp",
    "now",
    "current_date",
    "monotonically_increasing_id",
    "shuffle",
    "randstr",
    "uniform",
}


@dataclass(frozen=True, slots=True)
class ColumnProblem:
    """A column that does not exist; `known` are the names of the existing ones."""

    name: str
    offset: int
    known: tuple[str, ...]


def relation_of_query(
    query: Query, inputs: Mapping[str, Relation], step: str
) -> tuple[Relation, tuple[ColumnProblem, ...]]:
    """The rows of a SELECT, and the columns it names that do not exist."""
    reader = _Reader(step)
    scope = {name.casefold(): relation for name, relation in inputs.items()}
    relation = reader.query(query.expression, scope, ())
    problems = sorted(set(reader.problems), key=lambda problem: problem.offset)
    return relation, tuple(problems)


_Scope = Mapping[str, Relation]


class _Reader:
    def __init__(self, step: str) -> None:
        self._step = step
        self.problems: list[ColumnProblem] = []

    def query(self, node: exp.Expr, tables: _Scope, outer: tuple[_Scope, ...]) -> Relation:
        """The rows of a query; `outer` are the tables of queries around it, nearest first."""
        with_ = node.args.get("with_")
        if isinstance(with_, exp.With):
            named = dict(tables)
            for definition in with_.expressions:
                if with_.args.get("recursive"):
                    named[definition.alias.casefold()] = Relation(False, None, None)
                relation = self.query(definition.this, named, outer)
                named[definition.alias.casefold()] = _renamed(relation, definition)
            tables = named
        match node:
            case exp.Subquery():
                return self.query(node.this, tables, outer)
            case exp.SetOperation():
                return self._set_operation(node, tables, outer)
            case exp.Select():
                return self._select(node, tables, outer)
            case _:
                return self._other(node, tables)

    def _other(self, node: exp.Expr, tables: _Scope) -> Relation:
        named = [
            tables[table.name.casefold()]
            for table in node.find_all(exp.Table)
            if table.name.casefold() in tables
        ]
        return unknown_relation(named)

    def _set_operation(
        self, node: exp.SetOperation, tables: _Scope, outer: tuple[_Scope, ...]
    ) -> Relation:
        left = self.query(node.this, tables, outer)
        right = self.query(node.expression, tables, outer)
        columns = left.columns
        if columns is not None and right.columns is not None and len(columns) == len(right.columns):
            columns = tuple(
                Column(one.name, both(one.event_time, other.event_time), one.type)
                for one, other in zip(columns, right.columns, strict=True)
            )
        elif columns is not None:
            columns = tuple(Column(one.name, None, one.type) for one in columns)
        if node.args.get("by_name"):
            columns = None
        joint = merged(
            (left, right),
            is_stream=left.is_stream or right.is_stream,
            columns=columns,
            event_time=any_event_time(columns, (left, right)),
        )
        if node.args.get("distinct") and joint.is_stream:
            return self._distinct(joint, offset_of(node))
        return joint

    def _select(self, node: exp.Select, tables: _Scope, outer: tuple[_Scope, ...]) -> Relation:
        if node.args.get("pivots") or node.find(exp.Pivot) is not None:
            return self._other(node, tables)
        from_ = node.args.get("from_")
        named: dict[str, Relation] = {}
        rows = Relation(False, ())
        if isinstance(from_, exp.From):
            rows = self._table(from_.this, tables, outer, named)
        for join in node.args.get("joins") or ():
            rows = self._join(rows, join, tables, outer, named)
        for lateral in node.args.get("laterals") or ():
            alias = lateral.args.get("alias")
            if isinstance(alias, exp.TableAlias):
                laid = tuple(Column(one.name) for one in alias.columns)
                name = alias.name.casefold() or f"lateral {len(named)}"
                named[name] = Relation(False, laid or None)
            rows = replace(rows, columns=None)
        self._check_columns(node, named, outer)
        rows = self._subqueries(node, rows, named, tables, outer)
        names = tuple(
            dict.fromkeys(
                name
                for call in node.find_all(exp.Func)
                if call.find_ancestor(exp.Select) is node
                and (name := _function_name(call)) in _NOT_REPEATABLE
            )
        )
        columns = self._projections(node, named, rows)
        result = replace(
            rows,
            columns=columns,
            event_time=any_event_time(columns, (rows,)),
            unrepeatable=tuple(dict.fromkeys((*rows.unrepeatable, *names))),
        )
        if rows.is_stream and _is_aggregate(node):
            operator = self._aggregate(node, named, rows)
            result = replace(result, operators=(*result.operators, operator))
        if rows.is_stream and node.args.get("distinct"):
            return self._distinct(result, offset_of(node))
        return result

    def _distinct(self, relation: Relation, offset: int) -> Relation:
        names = tuple(one.name.casefold() for one in relation.columns or ()) or ("*",)
        operator = Operator(
            OperatorKind.DEDUP, names, relation.event_time, False, self._step, offset
        )
        return replace(relation, operators=(*relation.operators, operator))

    def _table(
        self,
        node: exp.Expr,
        tables: _Scope,
        outer: tuple[_Scope, ...],
        named: dict[str, Relation],
    ) -> Relation:
        alias = node.alias_or_name.casefold() or f"table {len(named)}"
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier) and not node.db:
                relation = tables.get(node.name.casefold(), Relation(False, None, None))
            case exp.Subquery():
                relation = self.query(node.this, tables, outer)
            case exp.Values():
                relation = Relation(False, None)
            case _:
                relation = Relation(False, None)
        relation = _renamed(relation, node)
        named[alias] = relation
        for join in node.args.get("joins") or ():
            relation = self._join(relation, join, tables, outer, named)
        for lateral in node.args.get("laterals") or ():
            named[lateral.alias.casefold() or f"lateral {len(named)}"] = Relation(False, None)
        return relation

    def _join(
        self,
        left: Relation,
        join: exp.Join,
        tables: _Scope,
        outer: tuple[_Scope, ...],
        named: dict[str, Relation],
    ) -> Relation:
        right = self._table(join.this, tables, outer, named)
        is_semi = join.kind.upper() in {"SEMI", "ANTI"} or join.side.upper() in {"SEMI", "ANTI"}
        using = [one.name for one in join.args.get("using") or ()]
        columns: tuple[Column, ...] | None = None
        if is_semi:
            columns = left.columns
        elif left.columns is not None and right.columns is not None and not join.method:
            folded = {name.casefold() for name in using}
            rest = [one for one in right.columns if one.name.casefold() not in folded]
            columns = (*left.columns, *rest)
        joint = merged(
            (left, right),
            is_stream=left.is_stream or right.is_stream,
            columns=columns,
            event_time=any_event_time(columns, (left, right)),
        )
        if not (left.is_stream and right.is_stream):
            return joint
        on = join.args.get("on")
        keys: tuple[str, ...] = ()
        if on is not None:
            parts = on.flatten() if isinstance(on, exp.And) else [on]
            keys = tuple(_normal(one, named) for one in parts)
        operator = Operator(
            OperatorKind.JOIN,
            keys or tuple(name.casefold() for name in using),
            both(left.event_time, right.event_time),
            join.side.upper() in {"LEFT", "RIGHT", "FULL"} or is_semi,
            self._step,
            offset_of(join),
        )
        return replace(joint, operators=(*joint.operators, operator))

    def _subqueries(
        self,
        node: exp.Select,
        rows: Relation,
        named: _Scope,
        tables: _Scope,
        outer: tuple[_Scope, ...],
    ) -> Relation:
        """Adds the inputs of queries inside of expressions to the rows, without their columns."""
        for inner in node.find_all(exp.Query):
            is_own = inner.find_ancestor(exp.Select) is node
            part = inner.find_ancestor(exp.From, exp.Join, exp.With, exp.Lateral)
            is_table = part is not None and part.find_ancestor(exp.Select) is node
            is_part = isinstance(inner, exp.Subquery) or isinstance(inner.parent, exp.SetOperation)
            if inner is node or not is_own or is_table or is_part:
                continue
            relation = self.query(inner, tables, (named, *outer))
            rows = merged(
                (rows, relation),
                is_stream=rows.is_stream or relation.is_stream,
                columns=rows.columns,
                event_time=rows.event_time,
            )
        return rows

    def _projections(
        self, node: exp.Select, named: _Scope, rows: Relation
    ) -> tuple[Column, ...] | None:
        found: list[Column] = []
        for projection in node.expressions:
            star = projection if isinstance(projection, exp.Star) else None
            if isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star):
                relation = named.get(projection.table.casefold())
                star = projection.this
            else:
                relation = rows
            if star is not None:
                if relation is None or relation.columns is None or _is_changed_star(star):
                    return None
                dropped = {one.name.casefold() for one in star.args.get("except_") or ()}
                found.extend(one for one in relation.columns if one.name.casefold() not in dropped)
                continue
            name = _output_name(projection)
            if name is None:
                return None
            found.append(Column(name, self._event_time(projection.unalias(), named)))
        return tuple(found)

    def _event_time(self, node: exp.Expr, named: _Scope) -> bool | None:
        match node:
            case exp.Column() if isinstance(node.this, exp.Identifier):
                column = _resolve(node, named)
                if column is None and node.name.casefold() in _WINDOWS and not node.table:
                    select = node.find_ancestor(exp.Select)
                    windows = [
                        one for one in _group_keys(select) if _function_name(one) in _WINDOWS
                    ]
                    return self._event_time(windows[0], named) if windows else None
                if column is None and node.table:
                    return None  # A field of a struct.
                return column.event_time if column is not None else None
            case exp.Func() if _function_name(node) in _WINDOWS:
                arguments = list(node.find_all(exp.Column))
                return self._event_time(arguments[0], named) if arguments else None
            case exp.Paren():
                return self._event_time(node.this, named)
            case exp.Dot() | exp.Bracket():
                return None
            case _:
                return False

    def _aggregate(self, node: exp.Select, named: _Scope, rows: Relation) -> Operator:
        keys = _group_keys(node)
        aliases = {
            one.alias.casefold(): one.this for one in node.expressions if isinstance(one, exp.Alias)
        }
        resolved = [_grouped(key, node, aliases) for key in keys]
        group = node.args.get("group")
        is_open = group is not None and (
            any(group.args.get(name) for name in ("all", "cube", "rollup", "grouping_sets"))
        )
        bounded: bool | None = None if is_open else False
        for key in resolved:
            bounded = either(bounded, self._event_time(key, named))
        if rows.event_time is False:
            bounded = False
        return Operator(
            OperatorKind.AGGREGATE,
            tuple(_normal(key, named) for key in resolved),
            bounded,
            False,
            self._step,
            offset_of(group) if group is not None else offset_of(node),
        )

    def _check_columns(self, node: exp.Select, named: _Scope, outer: tuple[_Scope, ...]) -> None:
        aliases = {one.alias.casefold() for one in node.expressions if isinstance(one, exp.Alias)}
        windows = {_function_name(key) for key in _group_keys(node)} & _WINDOWS
        for column in node.find_all(exp.Column):
            is_own = column.find_ancestor(exp.Select) is node
            if not is_own or not isinstance(column.this, exp.Identifier) or column.db:
                continue
            if _is_lambda_name(column) or _is_in(column, (exp.Lateral, exp.Hint), node):
                continue
            head = (column.table or column.name).casefold()
            implicit = head in aliases or head in windows or head in _NILADIC
            problem = self._missing(column, (named, *outer))
            if problem is not None and not (implicit and head not in named):
                self.problems.append(problem)

    def _missing(self, column: exp.Column, scopes: tuple[_Scope, ...]) -> ColumnProblem | None:
        """The problem if no table in reach has the column, and all their columns are known."""
        table = column.table.casefold()
        offset = int(column.this.meta.get("start", 0))
        for scope in scopes:
            if table and table in scope:
                relation = scope[table]
                if relation.columns is None or relation.column(column.name) is not None:
                    return None
                names = tuple(one.name for one in relation.columns)
                return ColumnProblem(column.name, offset, names)
        name = table or column.name
        known: list[str] = []
        for scope in scopes:
            for relation in scope.values():
                if relation.columns is None or relation.column(name) is not None:
                    return None
                known.extend(one.name for one in relation.columns)
        if table:
            first = column.args["table"]
            return ColumnProblem(table, int(first.meta.get("start", 0)), tuple(known))
        return ColumnProblem(column.name, offset, tuple(known))


def _resolve(column: exp.Column, named: _Scope) -> Column | None:
    if column.table:
        relation = named.get(column.table.casefold())
        return relation.column(column.name) if relation is not None else None
    found = [one for relation in named.values() if (one := relation.column(column.name))]
    if any(relation.columns is None for relation in named.values()):
        return None
    return found[0] if found else None


def _grouped(key: exp.Expr, node: exp.Select, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
    """The expression of a grouping key: `group by 1` and `group by alias` mean a projection."""
    if isinstance(key, exp.Literal) and key.is_int:
        index = int(key.name) - 1
        if 0 <= index < len(node.expressions):
            projection: exp.Expr = node.expressions[index]
            return projection.unalias()
    if isinstance(key, exp.Column) and not key.table and key.name.casefold() in aliases:
        return aliases[key.name.casefold()]
    return key


def _group_keys(node: exp.Expr | None) -> list[exp.Expr]:
    group = node.args.get("group") if node is not None else None
    return list(group.expressions) if isinstance(group, exp.Group) else []


def _is_aggregate(node: exp.Select) -> bool:
    if node.args.get("group") is not None or node.args.get("having") is not None:
        return True
    for projection in node.expressions:
        for call in projection.find_all(exp.AggFunc):
            if call.find_ancestor(exp.Select) is node and call.find_ancestor(exp.Window) is None:
                return True
    return False


def _output_name(projection: exp.Expr) -> str | None:
    match projection:
        case exp.Alias() | exp.Dot():
            return projection.alias or projection.name or None
        case exp.Column():
            return projection.name
        case _:
            name = _function_name(projection)
            return name if name in _WINDOWS else None


def _function_name(node: exp.Expr | None) -> str:
    match node:
        case exp.Anonymous():
            return str(node.this).casefold()
        case exp.Func():
            return node.sql_name().casefold()
        case _:
            return ""


def _is_changed_star(star: exp.Star) -> bool:
    return bool(star.args.get("replace") or star.args.get("rename"))


def _is_lambda_name(column: exp.Column) -> bool:
    lambda_: exp.Expr | None = column.find_ancestor(exp.Lambda)
    while lambda_ is not None:
        names = {one.name.casefold() for one in lambda_.expressions}
        if (column.table or column.name).casefold() in names:
            return True
        lambda_ = lambda_.find_ancestor(exp.Lambda)
    return False


def _is_in(node: exp.Expr, kinds: tuple[type[exp.Expr], ...], end: exp.Expr) -> bool:
    parent = node.parent
    while parent is not None and parent is not end:
        if isinstance(parent, kinds):
            return True
        parent = parent.parent
    return False


def _normal(node: exp.Expr, named: _Scope) -> str:
    """The SQL of an expression, with case and blanks normalised and without comments."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        if column.table.casefold() in named:
            column.set("table", None)  # The alias of a table does not affect the state.
    return copy.sql(dialect="spark", comments=False, normalize=True)


def _renamed(relation: Relation, node: exp.Expr) -> Relation:
    """The rows with the names of `t (a, b)` or `with t (a, b)`."""
    alias = node.args.get("alias")
    names = [one.name for one in alias.columns] if isinstance(alias, exp.TableAlias) else []
    if not names:
        return relation
    if relation.columns is None or len(relation.columns) != len(names):
        return replace(relation, columns=tuple(Column(name, None) for name in names))
    columns = tuple(
        Column(name, one.event_time, one.type)
        for name, one in zip(names, relation.columns, strict=True)
    )
    return replace(relation, columns=columns)
