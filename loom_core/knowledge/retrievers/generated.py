"""What a language model generated, made into clean texts: variants of a question, and passages."""

from __future__ import annotations

import json
import re
import unicodedata
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, cast

from loom_core.knowledge.script import normalise
from loom_core.llm.content import without_thinking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["distinct", "parse_passage", "parse_variants"]

_MAX_ANSWER = 8000  # characters of an answer that are read, after the thinking
_MAX_VARIANT = 400  # characters; a longer line is no search question
_MAX_PASSAGE = 2000  # characters; an embedder reads hardly more of one passage

_FENCE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)
# JSON begins a line or follows a colon; brackets in the middle of a sentence are part of it.
_JSON_START = re.compile(r"(?:^|[:：])[ \t]*(?=[\[{])", re.MULTILINE)
_JSON_STRING = re.compile(r'("(?:[^"\\\n]|\\.)*+"?)(\s*:)?')
# Number, bullet or label of a list item; `3.5` and `-5` are no such.
_MARKER = re.compile(
    r"\s*(?:[*_]{2})?(?:"
    r"[-*+](?=\s)|[•·–—]"
    r"|[(（]?\d{1,2}(?:[.、:：](?!\d)|[)）])"
    r"|(?:variant|query|question|rewrite|变体|问题|问法|改写|查询)\s*[#＃]?[\d一二三四五六七八九十]{1,2}\s*[.、:：]"
    r")(?:[*_]{2})?\s*",
    re.IGNORECASE,
)
_QUOTES = ('""', "''", "“”", "‘’", "「」", "『』", "《》", "``", "**", "__")
_VARIANT_KEYS = ("queries", "variants", "questions", "query", "variant", "question", "text")
_MAX_JSON_STARTS = 20


def parse_variants(answer: str, *, query: str, n: int) -> list[str]:
    """The wordings in a model's answer: a JSON array, or one a line.

    It survives thinking, code fences, prose around the list, numbers, bullets and quotes, an array that
    was cut off, and objects around the strings.

    Args:
        answer: what the model wrote.
        query: the question; a wording like it is left out.
        n: the most that are returned.

    Returns:
        Single lines of at most 400 characters that hold a letter or digit, no two alike but for case,
        width and the mark at the end.
    """
    text = _FENCE.sub("", without_thinking(answer)[:_MAX_ANSWER]).strip()
    found = _json_strings(text)
    if found is None:
        found = _lines(text)
    lines = (_line(variant) for variant in found)
    return distinct((line for line in lines if len(line) <= _MAX_VARIANT), query=query)[:n]


def parse_passage(answer: str) -> str:
    """The passage in a model's answer: without thinking and code fences, at most 2,000 characters."""
    text = _FENCE.sub("", without_thinking(answer)[:_MAX_ANSWER])
    paragraphs = (" ".join(_printable(line).split()) for line in text.splitlines())
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)[:_MAX_PASSAGE].rstrip()


def distinct(texts: Iterable[str], *, query: str) -> list[str]:
    """Texts that say something, without repetitions and without the question itself."""
    seen = {_key(query)}
    found: list[str] = []
    for text in texts:
        key = _key(text)
        if key not in seen and any(char.isalnum() for char in key):
            seen.add(key)
            found.append(text)
    return found


def _json_strings(text: str) -> list[str] | None:
    """The strings of the first JSON array or object that holds any, or None where there is no JSON."""
    decoder = json.JSONDecoder()
    for start in islice(_JSON_START.finditer(text), _MAX_JSON_STARTS):
        try:
            value, _ = decoder.raw_decode(text, start.end())
        except (ValueError, RecursionError):
            continue
        if strings := list(_strings(value)):
            return strings
    return _whole_strings(text) if text.startswith(("[", "{")) else None


def _whole_strings(text: str) -> list[str]:
    """The strings of JSON that was cut off, without the names of fields and the one at the cut."""
    found: list[str] = []
    for match in _JSON_STRING.finditer(text):
        if match[2] is None:
            with suppress(ValueError):  # not closed, or an escape that JSON does not know
                found.append(json.loads(match[1]))
    return found


def _strings(value: object, *, depth: int = 3) -> Iterator[str]:
    """The strings of a JSON value; of an object with a telling key, of that one only."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, list):
        for element in cast("list[object]", value):
            yield from _strings(element, depth=depth - 1)
    elif depth and isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        telling = [fields[key] for key in _VARIANT_KEYS if key in fields][:1]
        yield from _strings(telling or list(fields.values()), depth=depth)


def _lines(text: str) -> list[str]:
    """The lines of a list, without its numbers or bullets; without those, all that do not introduce one."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line[marker.end() :] for line in lines if (marker := _MARKER.match(line))]
    return marked or [line for line in lines if not line.rstrip().endswith((":", "："))]


def _line(text: str) -> str:
    """A wording on one line, without a comma at its end and quotes or emphasis around it."""
    line = _printable(text).strip()
    bare = line.rstrip(",，;；").rstrip()
    if len(bare) > 2 and any((bare[0], bare[-1]) == (pair[0], pair[-1]) for pair in _QUOTES):
        line = bare
    while len(line) > 2 and any((line[0], line[-1]) == (pair[0], pair[-1]) for pair in _QUOTES):
        line = line[1:-1].strip()
    return " ".join(line.split())


def _printable(text: str) -> str:
    """The text with a space for every control character, and without what UTF-8 cannot hold."""
    return "".join(
        " " if unicodedata.category(char) in {"Cc", "Zl", "Zp"} else char
        for char in text
        if unicodedata.category(char) != "Cs"
    )


def _key(text: str) -> str:
    """The form in which two wordings are the same."""
    return " ".join(normalise(text).split()).rstrip(" ?!.。")
