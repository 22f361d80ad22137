"""JSON in what a model wrote, with whatever it wrote around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite

from loom_core.llm.content import without_thinking

__all__ = ["json_values"]

_BRACKET = re.compile(r"[\[{]")
# Inside brackets: texts, so that brackets in them do not count. One that is not closed ends with the answer.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.?)*+(?:"|\Z))|,(?=\s*[\]}])', re.DOTALL)


def json_values(answer: str) -> list[object]:
    """The objects and lists that an answer holds, in order, without those that are inside others.

    Thinking, code fences and prose around them do not matter. Forgiven are raw line breaks in texts and a
    comma after the last element. What is cut off is not there, nor are its parts: a part is not what the
    answer was meant to be.
    """
    text = without_thinking(answer)
    values: list[object] = []
    for region in _regions(text):
        for form in (region, _LAST_COMMA.sub(lambda match: match[1] or "", region)):
            try:
                values.append(json.loads(form, strict=False, parse_constant=_no_number, parse_float=_number))
                break
            except (ValueError, RecursionError):
                continue
    return values


def _regions(text: str) -> Iterator[str]:
    """The parts of a text from a bracket to the one that closes it."""
    start = 0
    while (opening := _BRACKET.search(text, start)) is not None:
        depth = 0
        for token in _TOKEN.finditer(text, opening.start()):
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
            if not depth:
                start = token.end()
                yield text[opening.start() : start]
                break
        else:
            return


def _number(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _no_number(digits)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
