"""The text of messages: data between tags, an answer without its thinking, and the JSON that is in one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite

__all__ = ["as_data", "json_values", "without_thinking"]

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


_THINKING = "think|thinking|thought|reasoning"
_BLOCK = re.compile(rf"\s*<({_THINKING})>.*?</\1>", re.IGNORECASE | re.DOTALL)
_OPEN = re.compile(rf"\s*<(?:{_THINKING})>", re.IGNORECASE)
_CLOSE = re.compile(rf"</(?:{_THINKING})>", re.IGNORECASE)


def as_data(tag: str, text: str) -> str:
    """A text that others wrote, between tags that it cannot close.

    Tags of the same name inside it lose their bracket, and what UTF-8 cannot hold is replaced. Say in
    the instructions that what stands between the tags is data.
    """
    inside = re.sub(rf"<(?=\s*/?\s*{re.escape(tag)})", "‹", text, flags=re.IGNORECASE)
    return f"<{tag}>\n{inside.encode('utf-8', 'replace').decode()}\n</{tag}>"


def without_thinking(content: str) -> str:
    """An answer without the thinking that some models put before it, stripped; empty if it is all thinking.

    Known forms: `<think>…</think>`, also several; without the opening tag, which some servers put into
    the prompt; and without the closing tag, where the limit of tokens came first. The names `thinking`,
    `thought` and `reasoning` are known too.
    """
    start = 0
    while (block := _BLOCK.match(content, start)) is not None:
        start = block.end()
    if _OPEN.match(content, start):
        return ""
    for close in _CLOSE.finditer(content, start):
        start = close.end()
    return content[start:].strip()
