"""The table `fields`: field values for filters, and the translation of filters to SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from loom_core.knowledge.filters import ADDRESS_FIELDS, FOLDED_FIELDS, FieldValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.knowledge.filters import FieldCondition, FieldFilter, Filters, Period, Scalar
    from loom_core.knowledge.model import DocumentDraft

__all__ = ["FIELD_NAMES", "FieldRow", "chunks_where", "field_rows"]

FIELD_NAMES = (
    "WITH RECURSIVE names (name) AS (SELECT MIN(name) FROM fields UNION ALL "
    "SELECT (SELECT MIN(name) FROM fields WHERE name > names.name) FROM names WHERE name IS NOT NULL) "
    "SELECT name FROM names WHERE name IS NOT NULL"
)
"""Statement for the names of fields, sorted. It skips from name to name; DISTINCT would read every row."""

FieldRow = tuple[str, str, float | None, float | None, float | None]
"""Columns `name`, `value`, `number`, `local` and `instant` of the table."""

_Parameter = str | float
_Sql = tuple[str, list[_Parameter]]
_COMPARED = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}


def field_rows(draft: DocumentDraft, *, language: str) -> list[FieldRow]:
    """Return the fields that filters can find a document by: language, type, title, and scalar metadata.

    Each element of a list is a separate value. Values of other types are left out.
    """
    fields: list[tuple[str, object]] = [
        ("language", language),
        ("type", draft.mime),
        ("title", draft.title),
        *draft.metadata.items(),
    ]
    rows = [
        _row(name, cast("Scalar", value))
        for name, given in fields
        for value in (cast("Iterable[object]", given) if isinstance(given, list | tuple) else [given])
        if isinstance(value, str | int | float)
    ]
    return [row for row in rows if row[1]]


def chunks_where(filters: Filters) -> _Sql:
    """Return a statement for the chunk keys of documents that match filters, as JSON, and its parameters."""
    tests, parameters = ["TRUE"], list[_Parameter]()
    for field in filters.fields:
        wanted = [condition for condition in field.conditions if condition.operator != "ne"]
        unwanted = [condition for condition in field.conditions if condition.operator == "ne"]
        for conditions, operator in ((wanted, "IN"), (unwanted, "NOT IN")):
            if conditions:
                documents, values = _documents_where(field, conditions)
                tests.append(f"document {operator} ({documents})")
                parameters += values
    return f"SELECT json_group_array(key) FROM chunks WHERE {' AND '.join(tests)}", parameters


def _row(name: str, value: Scalar) -> FieldRow:
    name = name.replace("\0", "")
    forms = FieldValue.of(value, fold=name in FOLDED_FIELDS)
    period = forms.period
    if period is None:
        return name, forms.text, forms.number, None, None
    return name, forms.text, forms.number, period.local, period.instant


def _documents_where(field: FieldFilter, conditions: list[FieldCondition]) -> _Sql:
    tests, parameters = ["name = ?"], list[_Parameter]([field.name])
    for condition in conditions:
        test, values = _test(condition)
        tests.append(f"({test})")
        parameters += values
    sql = f"SELECT document FROM fields WHERE {' AND '.join(tests)}"
    if field.name in ADDRESS_FIELDS:  # metadata may also have a field of this name
        for condition in conditions:
            test, values = _address_test(field.name, condition)
            sql += f" UNION ALL SELECT key FROM documents WHERE {test}"
            parameters += values
    return sql, parameters


def _test(condition: FieldCondition) -> _Sql:
    values = condition.values
    if condition.operator == "contains":
        return _any("instr(value, ?) > 0", [value.text for value in values])
    if condition.operator in _COMPARED:
        return _range(_COMPARED[condition.operator], values[0])
    tests, parameters = [f"value IN ({_marks(values)})"], list[_Parameter](v.text for v in values)
    if numbers := [value.number for value in values if value.number is not None]:
        tests.append(f"number IN ({_marks(numbers)})")
        parameters += numbers
    for column, start, end in (_column(value.period) for value in values if value.period is not None):
        tests.append(f"{column} >= ? AND {column} < ?")
        parameters += [start, end]
    return _either(tests), parameters


def _range(sign: str, value: FieldValue) -> _Sql:
    """Compare numbers as numbers, dates as dates, and everything else as text."""
    tests, parameters = list[str](), list[_Parameter]()
    if value.number is not None:
        tests.append(f"number {sign} ?")
        parameters.append(value.number)
    if value.period is not None:
        # `gt` and `lte` refer to the end of a period, `gte` and `lt` to its start.
        column, start, end = _column(value.period)
        tests.append(f"{column} {'>=' if sign in {'>=', '>'} else '<'} ?")
        parameters.append(start if sign in {">=", "<"} else end)
    if not tests:
        return f"value {sign} ?", [value.text]
    return _either(tests), parameters


def _column(period: Period) -> tuple[str, float, float]:
    """Return the column that a date is compared with, and its bounds there."""
    column, start = ("instant", period.instant) if period.is_clock_time else ("local", period.local)
    return column, start, start + period.length


def _address_test(name: str, condition: FieldCondition) -> _Sql:
    forms = [value.text for value in condition.values]
    if condition.operator == "contains":
        return _any("instr(uri, ?) > 0", forms)
    if name == "path":  # a prefix of the address, or of any part of it after a slash
        return _any("instr('/' || uri, ?) > 0", ["/" + form.lstrip("/") for form in forms])
    marks = _marks(forms)
    return f"uri IN ({marks}) OR id IN ({marks})", [*forms, *forms]


def _any(test: str, values: list[str]) -> _Sql:
    return _either([test] * len(values)), list(values)


def _either(tests: list[str]) -> str:
    """Join tests by OR as a balanced tree: a chain of hundreds is too deep for SQLite."""
    if len(tests) == 1:
        return tests[0]
    middle = len(tests) // 2
    return f"({_either(tests[:middle])} OR {_either(tests[middle:])})"


def _marks(values: Iterable[object]) -> str:
    return ",".join("?" for _ in values)
