"""Patterns of file names that models write, in the language of shells: `src/**/*.{py,md}`."""

from __future__ import annotations

import re
from functools import lru_cache

from loom_core.errors import InvalidInputError
from loom_core.tools.patterns import Matcher, text_search

__all__ = ["name_matcher"]


@lru_cache(maxsize=200)
def name_matcher(pattern: str) -> Matcher:
    """Matches paths with `/` from a folder on, such as `src/a.py`.

    `*` and `?` stand for anything in a name, `**` for any folders, `[ab]` for one of some characters,
    `{py,md}` for one of some texts. A pattern without `/` is about the name alone, in whatever folder.

    Raises:
        InvalidInputError: a bracket is not closed, or it is too large.
    """
    given = pattern.strip().removeprefix("./")
    whole = given if "/" in given else f"**/{given}"
    return text_search(rf"\A{_translated(whole.lstrip('/'), pattern)}\z")


def _translated(glob: str, pattern: str) -> str:
    parts: list[str] = []
    at, depth = 0, 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at):
            parts.append("(?:[^/]*/)*")
            at += 2
        elif glob.startswith("**", at):
            parts.append(".*")
            at += 1
        elif char == "*":
            parts.append("[^/]*")
        elif char == "?":
            parts.append("[^/]")
        elif char == "[":
            end = glob.find("]", at + 2)
            if end < 0:
                raise _unclosed(pattern)
            parts.append(_one_of(glob[at + 1 : end]))
            at = end
        elif char == "{":
            parts.append("(?:")
            depth += 1
        elif char in ",}" and depth:
            parts.append("|" if char == "," else ")")
            depth -= char == "}"
        else:
            parts.append(re.escape(char))
        at += 1
    if depth:
        raise _unclosed(pattern)
    return "".join(parts)


def _one_of(characters: str) -> str:
    negated = characters[0] in "!^" and len(characters) > 1
    plain = characters[1:] if negated else characters
    escaped = re.sub(r"[\\\[\]^&~]", lambda match: "\\" + match[0], plain)
    return f"[^/{escaped}]" if negated else f"[{escaped}]"


def _unclosed(pattern: str) -> InvalidInputError:
    return InvalidInputError(
        f"{pattern[:100]!r} has a bracket that is not closed.", advice="Close it, or write `?` in its place."
    )
