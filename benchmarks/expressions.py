"""How well rules alone read dates, times, amounts, names, yes and no, in English and Chinese.

    python benchmarks/expressions.py

The tables in `benchmarks/expressions` have what a person writes at a booking desk on Friday, 27 November
2026, 10:00 in Shanghai, and what a careful clerk would write down; `?` where they would ask back. The rules
were written with `values.tsv`, `yes-no.tsv` and `yes-no-wide.tsv` in view; the tables `*-held.tsv` were
written afterwards, by others than the rules, and have not been looked at; `yes-no-desks.tsv` was measured
before a row of it was used, and the rows of `yes-no-hard.tsv` are meant to mislead. Each row is a message to
a flow that waits for this value, checked by `loom_core.flow.regression`, as `loom-flow-server test` does.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from loom_core.flow.config.flow_file import LoadedFlows, parse_flow_file
from loom_core.flow.regression import Difference, check_utterances, read_utterances

_TABLES = Path(__file__).parent / "expressions"
_NOW = "2026-11-27T10:00:00+08:00"
_BATCH = 40  # conversations of one check, which ends with its runs
_TITLES = {"phone": "电话 / phone", "person": "姓名 / name", "number": "数量 / number"}


def main() -> None:
    print("| table | kind | rows | right | asked again | wrong |")
    print("|---|---|---|---|---|---|")
    for name in ("values", "values-held"):
        anyio.run(_show, name, "value")
    for name in ("yes-no", "yes-no-held", "yes-no-words", "yes-no-desks", "yes-no-wide", "yes-no-hard"):
        anyio.run(_show, name, "answer")


async def _show(name: str, what: str) -> None:
    with (_TABLES / f"{name}.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        read = _read_value if what == "value" else _read_answer
        for row, found in zip(part, await read(part), strict=True):
            verdict = "right" if found == row["value"] else "asked" if found == "?" else "wrong"
            counts[row.get("format") or row["language"]][verdict] += 1
    counts["all"] = sum(counts.values(), Counter[str]())
    for kind, each in counts.items():
        print(f"| {name} | {kind} | {each.total()} | {each['right']} | {each['asked']} | {each['wrong']} |")


async def _read_value(rows: list[dict[str, str]]) -> list[str]:
    """Return what a flow takes for each row's value; `?` where it asks again."""
    lines: list[str] = []
    for number, row in enumerate(rows):
        first = "start" if row["language"] == "en" else "开始"
        lines.append(_line(f"{first} {row['format']}", number))
        lines.append(_line(row["text"], number, inputs={"value": "?"}))
    differences = await _check(lines)
    found = {each.line: each.found for each in differences if each.what == "inputs.value"}
    return [_written(found.get(2 * number + 2)) for number in range(len(rows))]


async def _read_answer(rows: list[dict[str, str]]) -> list[str]:
    """Return whether each row's words approve a booking."""
    lines: list[str] = []
    for number, row in enumerate(rows):
        lines.append(_line("book a room" if row["language"] == "en" else "预订房间", number))
        lines.append(_line(row["text"], number, status="?"))
    differences = await _check(lines)
    found = {each.line: each.found for each in differences if each.what == "status"}
    words = {"completed": "yes", "aborted": "no", "failed": "no"}
    return [words.get(str(found.get(2 * number + 2)), "?") for number in range(len(rows))]


def _line(message: str, number: int, **expected: object) -> str:
    return json.dumps({"message": message, "session": str(number), "now": _NOW, "expect": expected})


async def _check(lines: list[str]) -> Sequence[Difference]:
    return (await check_utterances(_flows(), read_utterances("\n".join(lines)), mode="rules")).differences


def _written(value: object) -> str:
    return "?" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def _flows() -> LoadedFlows:
    """Return a flow for each format, and one that asks for a yes."""
    formats = "date time date-time duration money phone email number person address".split()
    flows: list[dict[str, Any]] = [
        {
            "flow_id": f"take_{each.replace('-', '_')}",
            "name": each,
            "trigger_patterns": [f"^(?:start|开始) {each}$"],
            "input_schema": {
                "type": "object",
                "required": ["value"],
                "properties": {
                    "value": {"type": "number"}
                    if each == "number"
                    else {"type": "string", "format": each, "title": _TITLES.get(each, each), "region": "CN"}
                },
            },
            "endpoint": "POST /value",
        }
        for each in formats
    ]
    room = {
        "flow_id": "room",
        "name": "预订房间 / room",
        "trigger_patterns": ["^(?:book a room|预订房间)$"],
        "confirm": "always",
        "endpoint": "POST /room",
    }
    file = {
        "flow_url": "http://127.0.0.1:1",
        "basic_settings": {"timezone": "Asia/Shanghai"},
        "flows": [*flows, room],
    }
    return parse_flow_file(json.dumps(file), name="expressions")


if __name__ == "__main__":
    main()
