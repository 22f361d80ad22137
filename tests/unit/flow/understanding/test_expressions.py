"""Expressions in the tables of `benchmarks/expressions` are read as their writers meant them, or asked about.

The rules were written with the first table of each kind in view, and not the tables `*-held`.
`benchmarks/expressions.py` prints the figures.
"""

from __future__ import annotations

import csv
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from loom_core.flow.expressions.expression import MISSING
from loom_core.flow.understanding.moments import situation
from loom_core.flow.understanding.reply_parser import parse_reply
from loom_core.flow.understanding.slots import parse_value
from loom_core.runs.run import Pending

TABLES = Path(__file__).parents[4] / "benchmarks" / "expressions"
NOW = datetime.fromisoformat("2026-11-27T10:00:00+08:00")  # a Friday
TITLES = {"phone": "电话", "person": "姓名"}
APPROVAL = Pending(id="1", kind="approval", tool="book", arguments={}, reason="Shall I book it like this?")
MEANINGS = {"approve": "yes", "deny": "no", "cancel": "no"}


def rows(name: str) -> list[dict[str, str]]:
    with (TABLES / f"{name}.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def schema_of(format_: str) -> dict[str, Any]:
    if format_ == "number":
        return {"type": "number"}
    return {"type": "string", "format": format_, "title": TITLES.get(format_, ""), "region": "CN"}


def value_of(row: dict[str, str]) -> str:
    with situation(NOW, "zh" if row["language"] == "zh" else "en"):
        value = parse_value(row["text"], "count", schema_of(row["format"]))
    return "?" if value is MISSING else f"{value:g}" if isinstance(value, int | float) else str(value)


@pytest.mark.parametrize("name", ["values", "values-held"])
def test_values_are_right_or_asked_for(name: str):
    found = [(row, value_of(row)) for row in rows(name)]
    wrong = [(row["text"], value) for row, value in found if value not in {"?", row["value"]}]
    assert not wrong
    right = Counter(row["format"] for row, value in found if value == row["value"])
    every = Counter(row["format"] for row, _ in found)
    assert right.total() >= 0.98 * every.total()
    assert {format_ for format_, count in every.items() if right[format_] < 0.93 * count} == set()


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("yes-no", 1.0),
        ("yes-no-held", 0.93),
        ("yes-no-words", 0.83),
        ("yes-no-desks", 0.78),
        ("yes-no-wide", 0.76),
    ],
)
def test_yes_is_never_taken_for_no(name: str, least: float):
    found = [
        (row, MEANINGS.get(parse_reply(row["text"], APPROVAL, inputs={}).kind, "?")) for row in rows(name)
    ]
    assert not [(row["text"], said) for row, said in found if said not in {"?", row["value"]}]
    assert sum(said == row["value"] for row, said in found) >= least * len(found)
