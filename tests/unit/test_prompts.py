"""Prompts: the fixed part of each stays within its bound."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path

from loom_core.tokens import estimate_tokens

_PROMPTS = Path(__file__).parents[2] / "benchmarks" / "prompts.py"

# Tokens by `estimate_tokens`, for an English and for a Chinese user.
MOST: Mapping[str, tuple[int, int]] = {
    "agent, no tools": (60, 60),
    "agent, one tool": (200, 200),
    "agent, an answer of a schema": (110, 110),
    "agent, a tool and an answer of a schema": (250, 250),
    "agent, repair of such an answer": (50, 60),
    "agent, knowledge, a skill and notes": (1340, 1270),
    "agent, more tools than are shown": (310, 310),
    "notices of a run, all together": (390, 330),
    "loop guard, all together": (130, 130),
    "compaction": (330, 280),
    "head of a summary": (110, 90),
    "notes about the user": (330, 330),
    "two agents with handoffs, both requests": (570, 560),
    "router": (120, 120),
    "structured output and its repair": (100, 100),
    "entities and relations of a passage": (220, 180),
    "question: other wordings": (100, 90),
    "question: parts": (140, 120),
    "question: hypothetical passage": (80, 70),
    "reranking": (110, 100),
    "answer from passages": (110, 90),
    "one answer from many topics": (130, 120),
    "passages before a message": (60, 50),
    "flow: decision": (430, 430),
    "flow: decision while it asks": (520, 520),
    "flow: answer from passages": (240, 230),
    "flow: answer, nothing found": (150, 150),
    "flow: answer, sources failed": (170, 170),
    "flow: skill": (120, 120),
    "flow: step of a model": (100, 100),
}


async def test_no_prompt_is_longer_than_was_decided() -> None:
    prompts: dict[str, tuple[str, str]] = await runpy.run_path(str(_PROMPTS))["collect"]()
    tokens = {
        name: (estimate_tokens(english), estimate_tokens(chinese))
        for name, (english, chinese) in prompts.items()
    }
    assert tokens.keys() == MOST.keys()
    longer = {name: found for name, found in tokens.items() if any(map(int.__gt__, found, MOST[name]))}
    assert not longer, f"Shorten them, or if this is meant, put it into MOST: {longer}"
