"""Whether somebody has said what a model gives as an input, or the model has made it up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from loom_core.flow.understanding.choices import choices_of
from loom_core.flow.understanding.numbers import number_of, without_fixed_words
from loom_core.knowledge.text.analysis import analyse
from loom_core.knowledge.text.scripts import normalise

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = ["Ground", "ground_of"]

Ground: TypeAlias = Literal["said", "inferred", "made_up"]
"""The user has said it; or it is a reading of what they said, such as a date for `tomorrow`, or one of a few
choices; or nothing that was said holds it."""

_NUMBER = re.compile(
    r"[+-]?\d[\d,]*(?:\.\d+)?|[零〇一二两俩三仨四五六七八九十百千万亿半点壹贰叁肆伍陆柒捌玖拾佰仟]+"
)
_WORDS = re.compile(r"[a-z]+")
_NO_COUNT = frozenset({"a", "an"})
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?", re.ASCII)
_ONLY_SIGNS = re.compile(r"[\W_]+")
_ENOUGH = 0.5  # of the words of a text


def ground_of(value: JsonValue, schema: Mapping[str, Any], *, said: Iterable[str]) -> Ground:
    """Where a value comes from.

    Args:
        value: what the model gives.
        schema: of the input.
        said: everything that the value may have been taken from: messages, values of the context.
    """
    texts = [normalise(each) for each in said]
    if isinstance(value, Mapping):
        return _worst(ground_of(each, {}, said=texts) for each in value.values())
    if isinstance(value, (list, tuple)):
        inner = schema.get("items")
        part = cast("Mapping[str, Any]", inner if isinstance(inner, Mapping) else {})
        return _worst(ground_of(each, part, said=texts) for each in cast("list[JsonValue]", value))
    if value is None or isinstance(value, bool) or "const" in schema:
        return "said" if _holds(texts, _plain(value)) else "inferred"
    if choices := choices_of(schema):
        names = [name for choice in choices if choice.value == value for name in choice.names]
        return (
            "said" if any(_holds(texts, normalise(each)) for each in [_plain(value), *names]) else "inferred"
        )
    if isinstance(value, (int, float)):
        return "said" if any(value in _numbers(text) for text in texts) else "made_up"
    return _ground_of_text(cast("str", value), texts)


def _ground_of_text(value: str, texts: list[str]) -> Ground:
    form = normalise(value)
    if not form.strip() or _holds(texts, form):
        return "said"
    if _DATE.fullmatch(value.strip()):
        return "inferred"
    if any(char.isdigit() for char in form):  # a number, an id, an address: it is what was said, or wrong
        number = number_of(value)
        return "said" if number is not None and any(number in _numbers(text) for text in texts) else "made_up"
    words = {*analyse(form)}
    known = {word for text in texts for word in analyse(text)}
    return "inferred" if words and len(words & known) >= _ENOUGH * len(words) else "made_up"


def _holds(texts: list[str], form: str) -> bool:
    tight = _ONLY_SIGNS.sub("", form)
    return bool(tight) and any(tight in _ONLY_SIGNS.sub("", text) for text in texts)


def _numbers(text: str) -> set[float]:
    """All numbers in a text, whichever way they are written."""
    words = _WORDS.findall(text)
    written = [found[0] for found in _NUMBER.finditer(without_fixed_words(text))]
    written += [word for word in words if word not in _NO_COUNT]
    written += [f"{one} {other}" for one, other in pairwise(words)]
    return {value for each in written if (value := number_of(each)) is not None}


def _plain(value: JsonValue) -> str:
    return normalise(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _worst(grounds: Iterable[Ground]) -> Ground:
    found = {*grounds}
    return "made_up" if "made_up" in found else "inferred" if "inferred" in found else "said"
