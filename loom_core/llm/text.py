"""Text of messages: data in tags, compact JSON, removal of thinking, and extraction of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite

__all__ = ["as_data", "compact_json", "json_values", "without_thinking"]

_BRACKET = re.compile(r"[\[{]")
# Strings inside brackets, so that brackets in them do not count. An unclosed one ends with the response.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.?)*+(?:"|\Z))|,(?=\s*[\]}])', re.DOTALL)


def json_values(answer: str) -> list[object]:
    """Extract the top-level JSON objects and lists of a response, in order.

    Thinking, code fences and prose around them are ignored. Raw line breaks in strings and trailing commas
    are accepted. A truncated value is skipped with all of its parts: a part is not the intended response.
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
    """Yield the parts of a text from a bracket to its closing bracket."""
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
    """Wrap untrusted text in tags that it cannot close.

    Tags of the same name inside it lose their bracket, and characters outside of UTF-8 are replaced. Say in
    the instructions that the text between the tags is data.
    """
    inside = re.sub(rf"<(?=\s*/?\s*{re.escape(tag)})", "‹", text, flags=re.IGNORECASE)
    return f"<{tag}>\n{inside.encode('utf-8', 'replace').decode()}\n</{tag}>"


def compact_json(value: object) -> str:
    """Write JSON without spaces for a prompt: of a schema, they are a quarter of the tokens.

    Values outside of JSON become texts.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def without_thinking(content: str) -> str:
    """Strip the thinking that some models put before a response; return an empty text if that is all.

    Known forms: `<think>…</think>`, also several; without the opening tag, which some servers put into
    the prompt; and without the closing tag, at the token limit. The names `thinking`, `thought` and
    `reasoning` are known, too.
    """
    start = 0
    while (block := _BLOCK.match(content, start)) is not None:
        start = block.end()
    if _OPEN.match(content, start):
        return ""
    for close in _CLOSE.finditer(content, start):
        start = close.end()
    return content[start:].strip()
