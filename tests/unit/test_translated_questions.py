"""The translated questions of the benchmarks are in two halves of equal size that share no question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "benchmarks" / "translated"


@pytest.mark.parametrize("held", sorted(_FOLDER.glob("*.held.jsonl")), ids=lambda path: path.name)
def test_halves_of_a_set_are_equal_and_share_no_question(held: Path) -> None:
    development = held.with_name(held.name.replace(".held", ""))
    halves = [
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in (development, held)
    ]
    assert len(halves[0]) == len(halves[1])
    questions = [question for half in halves for question in half]
    assert all(question.keys() == {"_id", "text"} for question in questions)
    assert len({question["_id"] for question in questions}) == len(questions)
    assert len({question["text"] for question in questions}) == len(questions)
