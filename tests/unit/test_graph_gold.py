"""The gold set of the graph is well-formed."""

from __future__ import annotations

import runpy
from pathlib import Path

_PROGRAM = Path(__file__).parents[2] / "benchmarks" / "graph_gold.py"


def test_gold_set_has_right_offsets_types_predicates_and_split() -> None:
    program = runpy.run_path(str(_PROGRAM))
    passages = program["read_passages"]()
    assert program["faults"](passages) == []
    assert len(passages) >= 150
    assert {passage["kind"] for passage in passages} == set(program["KINDS"])
    assert {passage["split"] for passage in passages} == {"dev", "held"}
    assert sum(passage["language"] == "zh" for passage in passages) * 3 >= len(passages)


def test_check_finds_a_moved_offset_an_unknown_type_and_an_end_without_a_mark() -> None:
    program = runpy.run_path(str(_PROGRAM))
    passage = next(p for p in program["read_passages"]() if p["entities"] and p["relations"])
    passage["entities"][0]["start"] += 1
    passage["entities"][-1]["type"] = "thing"
    passage["relations"][0]["object"] = "no such mark"
    assert len(program["faults"]([passage])) >= 3
