"""Statements between two entities: the words between them, and their types, say what relates them.

The predicates are those of `benchmarks/graph_gold/guideline.md`, the patterns those of `data/statements.tsv`.
A pattern has to match all of the words between, so that a negation, a condition or a second verb is not read
as the statement.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["find_predicate"]

_ADVERBS = {
    "en": (
        r"(?:also |now |currently |usually |typically |normally |always |often |only |then |still |simply "
        r"|fully |itself |which |that |who |can |may |will |must |should |shall |would |could |has |have "
        r"|had |been )*"
    ),
    "zh": "(?:也|还|又|均|都|可以|可|能够|能|会|应当|应|必须|已经|已|主要|通常|默认|,|，)*",
}
_DETERMINER = r"(?: (?:the|an?|its|all|any|both|its own|several|other))?"
_MARKUP = "`*_\"“”'《》「」 \n"

# In Chinese the verb follows the author: 由林纳斯编写.
_BY = re.compile("(?:最初|主要)?(?:是|被)?由")
_MADE = re.compile(
    "(?:共同|联合|主持|负责|首次)?"
    "(?:创作|编写|撰写|导演|执导|开发|发明|设计|创建|发布|出版|维护|提出|制作|主编)"
)
_FOUNDED = re.compile("(?:共同|联合)?(?:创立|创办|成立)")


class _Pattern(NamedTuple):
    words: re.Pattern[str]
    predicate: str
    is_inverse: bool


def find_predicate(
    between: str, first: str, second: str, after: str, *, is_chinese: bool
) -> tuple[str, bool] | None:
    """Find the relation that the words between two entities state.

    Args:
        between: the text between them.
        first: type of the first entity.
        second: type of the second one.
        after: the text after the second one.
        is_chinese: whether the sentence is Chinese.

    Returns:
        The predicate, and whether the second entity is its subject; None if nothing is stated.
    """
    words = " ".join(between.strip(_MARKUP).split())
    if is_chinese and second in {"person", "organisation"} and _BY.fullmatch(words):
        if _MADE.match(after):
            return "created by", False
        if _FOUNDED.match(after):
            return "founded by", False
    for pattern in _patterns("zh" if is_chinese else "en", first, second):
        if pattern.words.fullmatch(words):
            return pattern.predicate, pattern.is_inverse
    return None


@cache
def _patterns(language: str, first: str, second: str) -> list[_Pattern]:
    """Return the patterns for two types, in the order of the file."""
    found: list[_Pattern] = []
    for written, predicate, firsts, seconds, words in _rows():
        fits = (not firsts or first in firsts.split()) and (not seconds or second in seconds.split())
        if written == language and fits:
            pattern = re.compile(_ADVERBS[language] + f"(?:{words.replace('{determiner}', _DETERMINER)})")
            found.append(_Pattern(pattern, predicate.removeprefix("-"), predicate.startswith("-")))
    return found


@cache
def _rows() -> list[list[str]]:
    path = files("loom_core.knowledge.ingest.extraction") / "data" / "statements.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]
