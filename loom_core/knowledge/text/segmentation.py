"""CJK text cut into words, with their parts of speech."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from loom_core.cjk import cjk_parts
from loom_core.knowledge.text.memoization import memoize

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["segment_for_search", "tag_words"]


@lru_cache(maxsize=16)  # a passage is asked about twice: for its keywords, and for its mentions
def tag_words(text: str) -> tuple[tuple[str, str, int], ...]:
    """The words of two Han characters and more, each with jieba's tag and its offset, in order."""
    gaps, runs = cjk_parts(text)
    between = iter(map(len, gaps))
    place = next(between)
    found: list[tuple[str, str, int]] = []
    for word, tag in _tag_runs("\n".join(runs)):
        size = len(word)
        if size > 1:  # as no words of other scripts are
            found.append((word, tag, place))
        elif word == "\n":
            size = next(between)
        place += size
    return tuple(found)


def segment_for_search(runs: Sequence[str]) -> list[list[str]]:
    """For each run of CJK text its words, with the words inside of long ones before them."""
    if not runs:
        return []
    words = [word if len(word) < 3 else _with_inner(word) for word, _ in _tag_runs("\n".join(runs))]
    return [line.split() for line in " ".join(words).split("\n")]


@lru_cache(maxsize=16)  # a passage is asked about twice: for its words, and for those to search by
def _tag_runs(lines: str) -> list[tuple[str, str]]:
    """The words of runs of CJK text, and the line ends that part the runs, each with jieba's tag.

    All the runs of a text at once cost a third of what they cost one by one.
    """
    import rjieba

    return rjieba.tag(lines)


@memoize
def _with_inner(word: str) -> str:
    """A word of three characters and more behind the words of two and three inside it, joined by spaces.

    They are those that `rjieba.cut_for_search` gives.
    """
    import rjieba

    last = len(word) - 1
    inner = [word[start : start + 2] for start in range(last)]
    if last > 2:
        inner += [word[start : start + 3] for start in range(last - 1)]
    return " ".join([*filter(rjieba.has_word, inner), word])
