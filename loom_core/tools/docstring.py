"""What a function's docstring tells a model: what it is for, and what its arguments mean."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Docstring"]

_ARGUMENTS = frozenset({"args", "arguments", "parameters", "params"})
# What only programmers read.
_LEFT_OUT = frozenset(
    {"attributes", "example", "examples", "note", "notes", "raises", "see also", "todo", "yields"}
)
_SECTION = re.compile(r"([A-Z][A-Za-z ]{1,20}):")
_ARGUMENT = re.compile(r"\*{0,2}(\w+)(?: ?\([^)]*\))?:(?:\s+(.*))?")


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring in Google's style.

    Attributes:
        description: everything but the sections that are about arguments or for programmers. `Returns:`
            stays, as a model has to know what it gets.
        arguments: what is said of each argument, on one line.
    """

    description: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, function: object) -> Docstring:
        """Read the docstring of a function; one without has an empty description."""
        text: list[str] = []
        arguments: dict[str, str] = {}
        for title, lines in _sections((inspect.getdoc(function) or "").splitlines()):
            if title.casefold() in _ARGUMENTS:
                arguments.update(_arguments(lines))
            elif title.casefold() not in _LEFT_OUT:
                text += [f"{title}:", *lines] if title else lines
        return cls("\n".join(text).strip(), arguments)


def _sections(lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """The text before the first section, with an empty title, and each section with its lines.

    A section is a title alone on its line, at the margin, over lines that are indented.
    """
    title, begun = "", 0
    for number, line in enumerate(lines):
        below = next((later for later in lines[number + 1 :] if later.strip()), "")
        match = _SECTION.fullmatch(line.rstrip())
        ends = title and line[:1].strip()  # text at the margin again
        if not (match and below[:1].isspace()) and not ends:
            continue
        yield title, lines[begun:number]
        title, begun = (match[1], number + 1) if match and below[:1].isspace() else ("", number)
    yield title, lines[begun:]


def _arguments(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    name, words = "", list[str]()
    for line in lines:
        match = _ARGUMENT.fullmatch(line[margin:].rstrip()) if line[margin : margin + 1].strip() else None
        if match is not None:
            if name:
                yield name, " ".join(words)
            name, words = match[1], (match[2] or "").split()
        else:
            words += line.split()
    if name:
        yield name, " ".join(words)
