"""A table of PostgreSQL with vectors of pgvector that others have filled, such as LangChain or LlamaIndex.

All transactions are read only. Filters on JSON are containment, so that an index on it (GIN) is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString
from uuid import UUID

from loom_core.errors import SourceError
from loom_core.knowledge.indexes.engines.pgvector import PostgresDatabase
from loom_core.knowledge.sources.collections.config import SOURCE_USE
from loom_core.knowledge.sources.collections.port import Row, VectorSpace
from loom_core.knowledge.sources.collections.rows import choose_vector

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from psycopg import sql
    from pydantic import SecretStr

    from loom_core.knowledge.sources.collections.config import CollectionConfig
    from loom_core.knowledge.sources.collections.port import Condition, Metric

__all__ = ["PgVectorCollection"]

_SECONDS = 10.0
_MOST_CANDIDATES = 1000  # pgvector's limit of hnsw.ef_search
_LANGCHAIN = "langchain_pg_embedding"  # all collections in one table
_VECTORS = {"vector", "halfvec"}
_UNSHOWN = {*_VECTORS, "sparsevec", "bit", "bytea", "tsvector"}
_METRICS: Mapping[str, Metric] = {"cosine_ops": "cosine", "l2_ops": "l2", "ip_ops": "dot"}
_ORDERS: Mapping[Metric, LiteralString] = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
_SCORES: Mapping[Metric, LiteralString] = {
    "cosine": "1 - ({vector} <=> {question})",
    "l2": "({vector} <-> {question}) ^ 2",
    "dot": "-({vector} <#> {question})",
}
_COMPARISONS: Mapping[str, LiteralString] = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}

_TABLE: LiteralString = """
    SELECT pg_class.oid, nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = to_regclass(%s)"""
_COLUMNS: LiteralString = """
    SELECT attname, typname, atttypmod,
        coalesce((SELECT indkey[0] = attnum AND indnkeyatts = 1 FROM pg_index
                  WHERE indrelid = attrelid AND indisprimary), false),
        ARRAY(SELECT opcname FROM pg_index JOIN pg_opclass ON pg_opclass.oid = indclass[0]
              WHERE indrelid = attrelid AND indkey[0] = attnum AND indisvalid)
    FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_READ: LiteralString = """
    SELECT to_jsonb(hit) FROM (
        SELECT {columns} FROM {table} WHERE {conditions} {order} LIMIT {limit}) AS hit"""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table.

    Attributes:
        name: its name.
        columns: types of its columns by their names; those of vectors and the like are not shown.
        key: column of ids.
        vector: column of vectors.
        space: its vectors.
        conditions: restriction of its rows.
    """

    name: sql.Identifier
    columns: Mapping[str, str]
    key: str
    vector: str
    space: VectorSpace
    conditions: Sequence[sql.Composable]


class PgVectorCollection:
    """`ForeignCollection` over a table, a view, or a collection of LangChain in its common table.

    Fields are its columns; a column of JSON is an object of fields. A table of LlamaIndex is found by the
    name that was given to LlamaIndex, without `data_`. An approximate index is asked for more until there are
    enough rows that fulfil the conditions.
    """

    def __init__(self, config: CollectionConfig, secret: SecretStr | None) -> None:
        """Take the address; the server is connected to at first use.

        Raises:
            ConfigError: it is none of PostgreSQL, or psycopg is not installed.
        """
        self._name = config.collection
        self._wanted = config.fields
        self._database = PostgresDatabase(config.url, secret=secret, use=SOURCE_USE)
        self._table: _Table | None = None

    def describe(self) -> VectorSpace:
        """See `ForeignCollection.describe`."""
        self._table = self._find_table()
        return self._table.space

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, conditions: Sequence[Condition]
    ) -> list[Row]:
        """See `ForeignCollection.search_vector`."""
        from psycopg import sql

        table = self._known()
        kind = sql.Identifier(table.columns[table.vector])
        text = f"[{','.join(map(str, vector.tolist()))}]"
        parts = {
            "vector": sql.Identifier(table.vector),
            "question": sql.SQL("{}::{}").format(text, kind),
        }
        metric = table.space.metric
        score = sql.SQL(_SCORES[metric]).format(**parts)
        distance = sql.SQL("{vector} " + _ORDERS[metric] + " {question}").format(**parts)
        rows = self._rows(limit, conditions, score=score, order=distance)
        return sorted(rows, key=lambda row: row.score if metric == "l2" else -row.score)

    def read(self, limit: int, conditions: Sequence[Condition], *, vectors: bool = False) -> list[Row]:
        """See `ForeignCollection.read`."""
        return self._rows(limit, conditions, vectors=vectors)

    def get(self, id_: str) -> Row | None:
        """See `ForeignCollection.get`."""
        from psycopg import sql

        table = self._known()
        kind = table.columns[table.key]
        try:
            value = int(id_) if kind in {"int2", "int4", "int8"} else UUID(id_) if kind == "uuid" else id_
        except ValueError:
            return None
        rows = self._rows(1, (), where=sql.SQL("{} = {}").format(sql.Identifier(table.key), value))
        return rows[0] if rows else None

    def count(self) -> int:
        """See `ForeignCollection.count`."""
        from psycopg import sql

        table = self._known()
        query = sql.SQL("SELECT count(*) FROM {table} WHERE {conditions}").format(
            table=table.name, conditions=_all_of(table.conditions)
        )
        [[count]] = self._ask(query)
        return count

    def close(self) -> None:
        """See `ForeignCollection.close`."""
        self._database.close()

    def _find_table(self) -> _Table:
        from psycopg import sql

        oid, name, conditions = self._find_name()
        found = {column: facts for column, *facts in self._ask(_COLUMNS, [oid])}
        columns = {column: kind for column, (kind, *_) in found.items()}
        vectors = [column for column, kind in columns.items() if kind in _VECTORS]
        vector = choose_vector(self._name, vectors, self._wanted.vector)
        *_, declared, _, indexes = found[vector]
        known: list[Metric] = [
            metric for ending, metric in _METRICS.items() if any(each.endswith(ending) for each in indexes)
        ]
        ids = [column for column, (*_, is_key, _) in found.items() if is_key]
        key = next((each for each in (*ids, self._wanted.id, "id", "uuid", "key") if each in columns), "")
        if not key:
            raise SourceError(
                f"{self._name!r} has no primary key.",
                advice="Name the column of ids: `id` in the source's `fields`. There are: "
                f"{', '.join(columns)}.",
            )
        space = VectorSpace(known[0] if known else "cosine", max(declared, 0))
        return _Table(sql.Identifier(*name), columns, key, vector, space, conditions)

    def _find_name(self) -> tuple[int, tuple[str, str], list[sql.Composable]]:
        """Return number and name of the table, and what its rows are restricted to."""
        from psycopg import sql

        schema = [self._database.schema] if self._database.schema else []
        parts = tuple(self._name.split(".", 1))
        for name in ((self._name,), (f"data_{self._name}",), *([parts] if len(parts) == 2 else [])):
            if rows := self._ask(_TABLE, [sql.Identifier(*schema, *name).as_string()]):
                return rows[0][0], rows[0][1:], []
        if rows := self._ask(_TABLE, [sql.Identifier(*schema, _LANGCHAIN).as_string()]):
            query = sql.SQL("SELECT uuid FROM {} WHERE name = {}").format(
                sql.Identifier(*schema, "langchain_pg_collection"), self._name
            )
            if ids := self._ask(query):
                return rows[0][0], rows[0][1:], [sql.SQL("collection_id = {}").format(ids[0][0])]
        where = f"in the schema {schema[0]!r}" if schema else "in the search path of the role"
        raise SourceError(
            f"PostgreSQL has no table {self._name!r} {where}, nor a collection of LangChain of this name.",
            advice="Check `collection` of the source; a table of another schema is written `schema.table`.",
        )

    def _known(self) -> _Table:
        assert self._table is not None, "`describe` comes first"
        return self._table

    def _rows(
        self,
        limit: int,
        conditions: Sequence[Condition],
        *,
        score: sql.Composable | None = None,
        order: sql.Composable | None = None,
        where: sql.Composable | None = None,
        vectors: bool = False,
    ) -> list[Row]:
        from psycopg import sql

        table = self._known()
        shown = [column for column, kind in table.columns.items() if kind not in _UNSHOWN]
        columns: list[sql.Composable] = [sql.Identifier(column) for column in shown]
        columns.append(sql.SQL("{} AS loom_score").format(score or sql.SQL("0")))
        if vectors:
            columns.append(sql.SQL("{}::text AS loom_vector").format(sql.Identifier(table.vector)))
        allowed = [*table.conditions, *map(_condition, conditions), *([where] if where is not None else [])]
        if order is not None:  # a row without a vector would be the last, or even the first
            allowed.append(sql.SQL("{} IS NOT NULL").format(sql.Identifier(table.vector)))
        query = sql.SQL(_READ).format(
            columns=sql.SQL(", ").join(columns),
            table=table.name,
            conditions=_all_of(allowed),
            order=sql.SQL("ORDER BY {}").format(order) if order is not None else sql.SQL(""),
            limit=limit,
        )
        return [_row(fields, table.key) for (fields,) in self._ask(query, candidates=4 * limit)]

    def _ask(
        self,
        query: LiteralString | sql.Composed,
        parameters: Sequence[object] | None = None,
        *,
        candidates: int = 0,
    ) -> list[tuple[Any, ...]]:
        settings = {
            "transaction_read_only": "on",
            "hnsw.ef_search": str(min(max(200, candidates), _MOST_CANDIDATES)),
            "hnsw.iterative_scan": "relaxed_order",
            "hnsw.max_scan_tuples": "200000",
            "ivfflat.iterative_scan": "relaxed_order",
            "ivfflat.probes": "10",
            "jit": "off",
        }
        return self._database.run(
            lambda connection: connection.execute(query, parameters).fetchall(), _SECONDS, settings=settings
        )


def _row(fields: dict[str, Any], key: str) -> Row:
    score, vector = fields.pop("loom_score"), fields.pop("loom_vector", None)
    return Row(str(fields[key]), fields, float(score or 0.0), None if vector is None else json.loads(vector))


def _all_of(conditions: Sequence[sql.Composable]) -> sql.Composable:
    from psycopg import sql

    return sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("true")


def _condition(condition: Condition) -> sql.Composable:
    """Return a condition as SQL: on a column, or on a field inside a column of JSON."""
    from psycopg import sql

    column, *keys = condition.path
    whole = sql.SQL("{}::jsonb" if keys else "to_jsonb({})").format(sql.Identifier(column))
    place = sql.SQL("({} #> {}::text[])").format(whole, keys) if keys else whole
    if condition.operator in {"eq", "ne"}:
        forms: list[str] = []
        for value in condition.values:
            for form in (value, [value]):  # a list that has it, too
                nested: object = form
                for key in reversed(keys):
                    nested = {key: nested}
                forms.append(json.dumps(nested))
        tests = [sql.SQL("{} @> {}::jsonb").format(whole, form) for form in forms]
    elif condition.operator == "contains":
        tests = [
            sql.SQL("strpos({} #>> '{{}}', {}) > 0").format(place, str(value)) for value in condition.values
        ]
    else:
        [value] = condition.values
        comparison = sql.SQL(_COMPARISONS[condition.operator])
        of_text = isinstance(value, str)
        test = (
            "(jsonb_typeof({0}) = 'string' AND ({0} #>> '{{}}') COLLATE \"C\" {1} {2})"
            if of_text
            else "CASE WHEN jsonb_typeof({0}) = 'number' THEN ({0})::numeric {1} {2} END"
        )
        tests = [sql.SQL(test).format(place, comparison, value)]
    joined = sql.SQL("coalesce({}, false)").format(sql.SQL(" OR ").join(tests))
    plain = sql.SQL("({})").format(sql.SQL(" OR ").join(tests))
    return sql.SQL("NOT {}").format(joined) if condition.operator == "ne" else plain
