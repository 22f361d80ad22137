"""Reading the order of passages out of what a language model answered."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["read_ranking"]

_Json: TypeAlias = "dict[str, _Json] | list[_Json] | str | float | bool | None"

_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_CHAIN = re.compile(r"\[?\d{1,6}\]?(?:\s*>\s*\[?\d{1,6}\]?)+")
_PLAIN = re.compile(r"\s*\d{1,6}(?:[\s,;、，]+\d{1,6})*[\s.。]*")
_NUMBER = re.compile(r"\d{1,6}")
_DEEP = re.compile(r"(?:[\[{]\s*){6}")  # nesting that no answer has, and that takes long to read

_NAMES = ("id", "index", "number", "passage")
_SCORES = ("score", "relevance", "relevance_score")

_LONGEST = 50_000  # characters; a list of numbers is far shorter
_OPENINGS = 500  # brackets at which a list is tried


def read_ranking(answer: str, count: int) -> dict[int, float]:
    """Relevance by place of the passages that an answer names, the best first; empty if it names none.

    Understood are a JSON list of numbers, best first; an object of numbers and scores; a list of objects
    with a number and a score; `[2] > [1]`; and bare numbers. What stands around (thoughts, prose, code
    fences, an enclosing object) does not matter: of several readings, the one that names most passages
    counts, and among those the last. A number out of range or named before is passed over.

    Args:
        answer: what the model said.
        count: how many passages it was shown, numbered from 1.

    Returns:
        Place from 0 and relevance from 0 to 1: of a list by position; of scores the score as a share of
        the scale they seem to be on (1, 10 or 100).
    """
    text = _THOUGHT.sub(" ", answer[-_LONGEST:])
    text = _THOUGHT_END.split(text)[-1]  # the opening mark may be part of the prompt
    best: dict[int, float] = {}
    for found in _readings(text, count):
        if len(found) >= len(best):
            best = found
    return best


def _readings(text: str, count: int) -> Iterator[dict[int, float]]:
    if _PLAIN.fullmatch(text):
        yield _by_position(_NUMBER.findall(text), count)
    for value in _json_values(text):
        yield _by_position(value, count) if isinstance(value, list) else {}
        yield _by_score(_scored(value), count)
    for chain in _CHAIN.findall(text):
        yield _by_position(_NUMBER.findall(chain), count)


def _json_values(text: str) -> Iterator[_Json]:
    """Every list and object in a text, those inside others, too."""
    decoder = json.JSONDecoder()
    starts = [place for place, char in enumerate(text) if char in "[{"]
    for start in starts[-_OPENINGS:]:
        if _DEEP.match(text, start):
            continue
        try:
            value = cast("_Json", decoder.raw_decode(text, start)[0])
        except (ValueError, RecursionError):
            continue
        yield value


def _by_position(values: list[_Json] | list[str], count: int) -> dict[int, float]:
    places: dict[int, float] = {}
    for value in values:
        place = _place(value, count)
        if place is None and not isinstance(value, str | float | int):
            return {}  # a list of something else
        if place is not None and place not in places:
            places[place] = (count - len(places)) / count
    return places


def _scored(value: _Json) -> list[tuple[_Json, _Json]]:
    """Numbers and scores of an object, or of a list of objects."""
    if isinstance(value, dict):
        return list(value.items())
    entries = value if isinstance(value, list) else []
    return [(_first(entry, _NAMES), _first(entry, _SCORES)) for entry in entries if isinstance(entry, dict)]


def _first(entry: Mapping[str, _Json], names: tuple[str, ...]) -> _Json:
    return next((entry[name] for name in names if name in entry), None)


def _by_score(pairs: list[tuple[_Json, _Json]], count: int) -> dict[int, float]:
    scores: dict[int, float] = {}
    for name, value in pairs:
        place, score = _place(name, count), _score(value)
        if place is not None and score is not None:
            scores.setdefault(place, max(score, 0.0))
    highest = max(scores.values(), default=0.0)
    scale = next((scale for scale in (1.0, 10.0, 100.0) if highest <= scale), highest)
    order = sorted(scores, key=lambda place: -scores[place])
    return {place: scores[place] / scale for place in order}


def _place(value: _Json, count: int) -> int | None:
    """The place that a number from 1 stands for, as a number or in text such as `[3]` or `passage 3`."""
    if isinstance(value, str):
        numbers = _NUMBER.findall(value)
        value = int(numbers[0]) if len(numbers) == 1 and len(value) <= 20 else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return None
    return int(value) - 1 if 1 <= value <= count else None


def _score(value: _Json) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
