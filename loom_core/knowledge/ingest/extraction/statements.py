"""Statements between two entities: the words between them, and their types, say what relates them.

The predicates are those of `benchmarks/graph_gold/guideline.md`, the patterns those of `data/statements.tsv`.
A pattern has to match all of the words between, so that a negation, a condition or a second verb is not read
as the statement.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Pattern", "find_pattern", "find_predicate"]

_GENERIC = (
    r"(?:command|system call|function|method|class|module|package|option|parameter|variable|file|server"
    r"|program|tool|utility|protocol|library|system|format|project|extension|database|interface|type|statement"
    r"|directive|setting|header|macro|service|client|daemon|script|driver|plugin|company|clause|field)s?"
)
"""Nouns that may follow a name or come before it without a change of what is said: "the apt package"."""

_FUNCTION_WORDS = (
    "of|to|in|on|at|by|for|from|with|about|into|as|and|or|but|not|no|nor|only|if|when|where|because|since|while"
    "|that|which|who|than|out|up|access|copy|copies"
)
_ADJECTIVES = rf"(?: (?!(?:most|best|first|last|least|{_FUNCTION_WORDS})\b)[a-z][\w-]*(?<!ing)){{0,2}}"
_DETERMINER = (
    r"(?: (?:the|an?|its|all|any|both|its own|several|other|either|one of the))*"
    rf"(?: (?!(?:{_FUNCTION_WORDS})\b)[a-z][a-z-]*(?<!ing))?(?: {_GENERIC})?"
)
_GROUPS = {
    "CODE": "api command option config env error file",
    "THING": "product version",
    "NAME": "person organisation place event work law standard clause",
}
_MARKUP = "`*_\"“”'’《》「」 \n"
_TAIL = re.compile("{determiner}|{adjectives}")
_SUFFIX = re.compile(r"\(\d?[a-z]{0,2}\)[`*\"”’]*")
"""Suffix of a name: the section of a manual page, or the parentheses of a call."""

_ROLE = re.compile(r":(?:\w+:)?\w+:`")
_BEFORE_VERB = {
    "en": re.compile(
        rf"(?P<noun>{_GENERIC} )?(?:, (?:which|who) )?(?:(?:also|now|currently|usually|typically|normally"
        r"|always|often|only|then|still|simply|fully|itself|can|may|will|must|shall|directly|internally|therefore"
        r"|(?:has|have|had) been) )*"
    ),
    "zh": re.compile(
        "(?P<noun>命令|内核|函数|软件包|程序|工具|选项|系统|库|软件|协议|公司|项目)?"
        "(?:也|还|又|均|都|会|应当|应|必须|已经|已|主要|通常|默认)*"
    ),
}
"""A noun after the first entity, and adverbs and auxiliaries: they change nothing of what is said."""


class Pattern(NamedTuple):
    """A line of `statements.tsv`.

    Attributes:
        words: pattern of all the words between two entities.
        head: pattern of their beginning, which is quicker to compile.
        predicate: the relation that they state.
        is_inverse: whether the second entity is its subject.
        firsts: types of the first entity; empty for any.
        seconds: types of the second one, likewise.
        after: what the text after the second entity has to begin with, if anything.
    """

    words: str
    head: str
    predicate: str
    is_inverse: bool
    firsts: frozenset[str]
    seconds: frozenset[str]
    after: str


def find_predicate(
    between: str, first: str, second: str, after: str, *, is_chinese: bool
) -> tuple[str, bool] | None:
    """Return the predicate that `find_pattern` finds, and whether the second entity is its subject."""
    pattern = find_pattern(between, first, second, after, is_chinese=is_chinese)
    return (pattern.predicate, pattern.is_inverse) if pattern else None


def find_pattern(between: str, first: str, second: str, after: str, *, is_chinese: bool) -> Pattern | None:
    """Find the pattern that the words between two entities match.

    Args:
        between: the text between them.
        first: type of the first entity.
        second: type of the second one.
        after: the text after the second one.
        is_chinese: whether the sentence is Chinese.

    Returns:
        The first pattern that fits; None if nothing is stated.
    """
    for pattern in _matching(between, "zh" if is_chinese else "en"):
        if (
            (not pattern.firsts or first in pattern.firsts)
            and (not pattern.seconds or second in pattern.seconds)
            and _compile(pattern.after).match(after.lstrip(_MARKUP))
        ):
            return pattern
    return None


@lru_cache(maxsize=16384)
def _matching(between: str, language: str) -> tuple[Pattern, ...]:
    """Return the patterns that match all the words between two entities, in the order of the file."""
    bare = _ROLE.sub("", _SUFFIX.sub("", between, count=1) if _SUFFIX.match(between) else between)
    words = " ".join(bare.strip(_MARKUP).split())
    any_head, patterns = _patterns(language)
    before = _BEFORE_VERB[language].match(words)
    verb = words[before.end() :] if before else words
    candidates = [candidate for candidate in {words: None, verb: None} if any_head.match(candidate)]
    if not candidates:
        return ()
    # "files such as HEAD": the noun is what HEAD is, not the entity before it.
    is_noun = before is not None and before["noun"] is not None
    return tuple(
        pattern
        for pattern in patterns
        if any(_compile(pattern.head).match(each) for each in candidates)
        and any(_compile(pattern.words).fullmatch(each) for each in candidates)
        and not (is_noun and pattern.is_inverse and pattern.predicate == "is a")
    )


# Compiling all patterns takes a third of a second, and most are never needed.
_compile = cache(re.compile)


@cache
def _patterns(language: str) -> tuple[re.Pattern[str], list[Pattern]]:
    """Return a pattern of the beginning of whatever any of them matches, and the patterns in their order."""
    found: list[Pattern] = []
    for written, predicate, firsts, seconds, words, *after in _rows():
        if written == language:
            head, *tail = _TAIL.split(words, maxsplit=1)
            found.append(
                Pattern(
                    words.replace("{determiner}", _DETERMINER).replace("{adjectives}", _ADJECTIVES),
                    f"(?:{head})" if tail else rf"(?:{head})\Z",
                    predicate.removeprefix("-"),
                    predicate.startswith("-"),
                    _types(firsts),
                    _types(seconds),
                    after[0] if after else "",
                )
            )
    found.sort(key=lambda pattern: not pattern.after)  # the most specific first: A是B开发的C
    return re.compile("|".join(dict.fromkeys(pattern.head for pattern in found))), found


def _types(groups: str) -> frozenset[str]:
    return frozenset(type_ for group in groups.split() for type_ in _GROUPS.get(group, group).split())


@cache
def _rows() -> list[list[str]]:
    path = files("loom_core.knowledge.ingest.extraction") / "data" / "statements.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]
