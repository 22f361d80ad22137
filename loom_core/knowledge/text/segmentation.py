"""Segmentation of CJK text into words, with part-of-speech tags."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from loom_core.cjk import cjk_parts
from loom_core.knowledge.text.memoization import memoize

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["segment_for_search", "tag_characters", "tag_runs", "tag_words"]


@lru_cache(maxsize=16)  # called twice for a passage: for its keywords and for its mentions
def tag_words(text: str) -> tuple[tuple[str, str, int], ...]:
    """Return the words of two Han characters and more, each with jieba's tag and its offset, in order."""
    gaps, runs = cjk_parts(text)
    between = iter(map(len, gaps))
    place = next(between)
    found: list[tuple[str, str, int]] = []
    for word, tag in tag_runs("\n".join(runs)):
        size = len(word)
        if size > 1:  # leaves out single characters, and other scripts
            found.append((word, tag, place))
        elif word == "\n":
            size = next(between)
        place += size
    return tuple(found)


def tag_characters(text: str) -> dict[int, tuple[str, str, str]]:
    """Return the word of each character of CJK text by offset: the word, jieba's tag, and the place in it.

    The place is B, M or E for the first, an inner or the last character, and S for the only one.
    """
    gaps, runs = cjk_parts(text)
    between = iter(map(len, gaps))
    place = next(between)
    found: dict[int, tuple[str, str, str]] = {}
    for word, tag in tag_runs("\n".join(runs)):
        if word == "\n":
            place += next(between)
            continue
        last = len(word) - 1
        for number in range(len(word)):
            where = "S" if not last else "B" if not number else "E" if number == last else "M"
            found[place + number] = (word, tag, where)
        place += len(word)
    return found


def segment_for_search(runs: Sequence[str]) -> list[list[str]]:
    """Segment runs of CJK text for search: words, each preceded by the words inside it."""
    if not runs:
        return []
    words = [word if len(word) < 3 else _with_inner(word) for word, _ in tag_runs("\n".join(runs))]
    return [line.split() for line in " ".join(words).split("\n")]


@lru_cache(maxsize=16)  # called twice for a passage: for tagging and for search tokens
def tag_runs(lines: str) -> list[tuple[str, str]]:
    """Return the words of runs of CJK text, and the line ends between the runs, each with jieba's tag.

    Tagging all runs of a text at once takes a third of the time.
    """
    import rjieba

    return rjieba.tag(lines)


@memoize
def _with_inner(word: str) -> str:
    """Return a word of three or more characters after the words inside it, joined by spaces.

    The result is that of `rjieba.cut_for_search`.
    """
    import rjieba

    last = len(word) - 1
    inner = [word[start : start + 2] for start in range(last)]
    if last > 2:
        inner += [word[start : start + 3] for start in range(last - 1)]
    return " ".join([*filter(rjieba.has_word, inner), word])
