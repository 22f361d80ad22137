"""Read-only Cypher: which statements are let through, and what comes back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Collection

    from loom_core.knowledge.indexes.engines.child import Json

__all__ = ["CypherResult", "check_read_only"]

_LONGEST = 20_000
_OPENING = frozenset({"MATCH", "OPTIONAL", "RETURN", "UNWIND", "WITH"})
_REFUSED = frozenset(
    """ALTER ANALYZE ATTACH BEGIN CALL CHECKPOINT COMMENT COMMIT COPY CREATE DELETE DETACH DROP EXPLAIN EXPORT
    EXTENSION FORCE IMPORT INSTALL LOAD MACRO MERGE PROFILE PROJECT REMOVE ROLLBACK SET TRANSACTION UNINSTALL
    UPDATE USE""".split()
)
# The engine's own lexical grammar; a literal or comment that does not end matches none of these, and its
# opening mark is then refused. "1CREATE" is two tokens to the engine, so a number takes all letters with it.
_TOKEN = re.compile(
    r"""
      (?P<skip> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | /\*.*?\*/ | //[^\r\n]* | \s+ )
    | (?P<parameter> \$\w+ )
    | (?P<number> \d\w* )
    | (?P<word> \w+ )
    | (?P<open> ['"`] | /\* )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"\d+(?:[eE]\d*)?")
_ADVICE = (
    "Write one statement that only reads: MATCH … RETURN …; "
    "a name that is also a keyword goes in `backticks`."
)


@dataclass(frozen=True, slots=True)
class CypherResult:
    """What a statement gave.

    Attributes:
        columns: their names.
        rows: the rows, nodes and relations as objects.
        truncated: whether there are more rows than were asked for.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Json, ...], ...]
    truncated: bool


def check_read_only(statement: str, *, parameters: Collection[str] = ()) -> None:
    """Let a single reading statement through whose `$names` all have a value.

    This is the first of three walls: the statement then runs in a read-only transaction, in a child
    process with a copy of the database. It keeps out what those would still allow: reading and writing
    other files (`LOAD FROM`, `COPY TO`) and loading extensions.

    Raises:
        InvalidInputError: it is empty or too long, does not begin with a reading clause, holds a keyword
            that changes or reads anything besides the graph, is more than one statement, or names a
            parameter that is not given (the engine would take it for null).
    """
    if len(statement) > _LONGEST:
        raise InvalidInputError(
            f"The statement has {len(statement)} characters.", advice=f"Stay below {_LONGEST:,}."
        )
    words: list[str] = []
    ended = False
    for token in _TOKEN.finditer(statement):
        kind, text = token.lastgroup, token.group()
        if kind == "parameter" and text[1:] not in parameters:
            raise InvalidInputError(f"The parameter {text} is not given.", advice="Give it a value.")
        if kind == "skip":
            continue
        if ended:
            raise InvalidInputError("There is more than one statement.", advice=_ADVICE)
        if kind == "open":
            raise InvalidInputError(f"A {text} is not closed.", advice=_ADVICE)
        if kind == "number" and not _NUMBER.fullmatch(text):
            raise InvalidInputError(f"{text!r} is neither a number nor a name.", advice=_ADVICE)
        if kind == "word":
            words.append(text.upper())
        ended = text == ";"
    if not words:
        raise InvalidInputError("The statement is empty.", advice=_ADVICE)
    if words[0] not in _OPENING:
        raise InvalidInputError(f"A statement cannot begin with {words[0]}.", advice=_ADVICE)
    if refused := _REFUSED.intersection(words):
        raise InvalidInputError(f"{', '.join(sorted(refused))} is not allowed here.", advice=_ADVICE)
