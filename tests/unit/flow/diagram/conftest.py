"""A flow with every kind of step that contains others, whose steps need no network."""

from __future__ import annotations

from typing import Any

import pytest

_KNOWN = {"stepId": "known", "successCriteria": ["$item != 'B'"]}


@pytest.fixture
def trip() -> dict[str, Any]:
    """Parallel branches, cases, items of which B fails, jumps in both directions, and a question."""
    return {
        "flow_id": "trip",
        "name": "出差 / Trip",
        "input_schema": {"type": "object", "properties": {"days": {"type": "integer"}}},
        "steps": [
            {
                "stepId": "look",
                "parallel": [
                    [{"stepId": "train", "say": "火车"}, {"stepId": "fare", "say": "¥50"}],
                    [{"stepId": "hotel", "say": "旅馆"}],
                ],
            },
            {
                "stepId": "approval",
                "switch": [
                    {"when": "$inputs.days > 10", "steps": [{"stepId": "boss", "confirm": "行吗？"}]},
                    {"when": "$inputs.days > 3", "steps": [{"stepId": "note", "say": "Noted."}]},
                ],
            },
            {
                "stepId": "cities",
                "for_each": {
                    "in": ["A", "B", "C"],
                    "steps": [
                        _KNOWN,
                        {"stepId": "visa", "onSuccess": [{"type": "end", "criteria": ["$item == 'A'"]}]},
                        {"stepId": "mail", "say": "{$item}"},
                    ],
                },
                "onFailure": [{"name": "full", "type": "goto", "stepId": "sorry"}],
            },
            {
                "stepId": "sure",
                "confirm": "Book it?",
                "onFailure": [{"type": "goto", "stepId": "look", "criteria": ["$inputs.days > 1"]}],
            },
            {"stepId": "book", "onSuccess": [{"type": "end"}]},
            {"stepId": "sorry", "say": "Some were full."},
            {"stepId": "again", "ask": "另一天？"},
        ],
    }
