"""Patterns of definitions at the beginning of a line, in common programming languages.

No parser and no grammar: each line is matched separately, and indentation says what belongs to it. That is
correct for formatted code, and harmless elsewhere: an unrecognised definition stays
with what is before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

__all__ = ["CodeLanguage", "Definition", "code_extensions", "find_definition", "language_of"]

_NAME = r"(?P<name>[^\W\d][\w$]*[?!]?)"
_DOTTED = r"(?P<name>[^\W\d][\w$]*(?:(?:\.|::|:)~?[^\W\d][\w$]*)*[?!=]?)"
_MODIFIERS = (
    r"(?:(?:export|default|declare|pub(?:\([^)]*\))?|public|private|protected|internal|fileprivate|static|final"
    r"|abstract|sealed|open|override|virtual|async|inline|const|unsafe|partial|readonly|data|suspend|native"
    r'|synchronized|mutating|required|convenience|external|extern(?:\s+"[^"]*")?|template\s*<[^>]*>)\s+)*'
)
_NO_STATEMENT = r"(?!(?:return|else|new|throw|delete|case|goto|typedef|using|if|while|for|switch)\b)"
_TYPE = r"[\w$.:<>,\[\]?&*~ \t]+?[\s&*>\]]"


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition on a line of code.

    Attributes:
        name: its name as written, with dots between parts; for a Rust `impl`, its type's.
        container: whether it holds methods or other definitions.
    """

    name: str
    container: bool


@dataclass(frozen=True, slots=True)
class CodeLanguage:
    """Splitting rules of a family of languages.

    Attributes:
        containers: patterns of lines that open a class, module, interface…
        leaves: patterns of lines that open a function or another unit.
        comments: what begins a line that belongs to the definition below it: comments, decorators.
        block_comments: whether `/* … */` may run over several lines.
        triple_quotes: whether triple-quoted strings run over several lines.
        sections: whether all that follows a definition belongs to it, however it is indented.
    """

    containers: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    comments: tuple[str, ...] = ("#", "//")
    block_comments: bool = False
    triple_quotes: bool = False
    sections: bool = False


_Family = Literal["python", "brace", "end", "shell", "sql", "lisp", "section", "keys", "css", "none"]

_LANGUAGES: dict[_Family, CodeLanguage] = {
    "python": CodeLanguage(
        containers=(rf"(?:class|cdef\s+class)\s+{_NAME}",),
        leaves=(rf"(?:async\s+)?def\s+{_NAME}", rf"cp?def\s+[\w\s*]*?{_NAME}\s*\("),
        comments=("#", "@"),
        triple_quotes=True,
    ),
    "brace": CodeLanguage(
        containers=(
            rf"{_MODIFIERS}(?:class|interface|trait|namespace|object|protocol|extension|contract|library|mod"
            r"|module|enum\s+class|enum|record|struct|union|companion\s+object)\s+"
            rf"{_DOTTED}(?![\w$]|\s*[*&\w]+\s*[(=;])",  # `struct point *make(` is a function
            r"(?:unsafe\s+)?impl\b(?:\s*<[^{]*?>)?\s+(?:[^{]*?\bfor\s+)?(?P<name>[^\W\d]\w*)",
        ),
        leaves=(
            rf"{_MODIFIERS}(?:function\s*\*?|func|fn|fun|sub|init|macro_rules!|type|typealias|def)\s+{_DOTTED}",
            rf"func\s*\([^)]*\)\s*{_NAME}\s*[(\[]",  # a Go method
            rf"{_MODIFIERS}(?:const|let|var)\s+{_NAME}\s*(?::[^=]*)?=\s*(?:async\s*)?"
            r"(?:function\b|class\b|(?:\([^)]*\)|\w+)\s*(?::[^=]+)?=>)",
            # A JavaScript method, then a function in C and its descendants.
            rf"{_MODIFIERS}(?:get\s+|set\s+|\*\s*)?{_NAME}\s*\([^;]*\)\s*(?::[^;{{]*)?\{{",
            rf"{_MODIFIERS}{_NO_STATEMENT}{_TYPE}{_DOTTED}\s*\([^;]*$",
            r"(?P<name>\w+(?:::~?\w+)+)\s*\([^;]*$",  # a C++ constructor or destructor
            r"#define\s+(?P<name>\w+)\(",
        ),
        comments=("//", "/*", "*", "@", "#[", "["),
        block_comments=True,
    ),
    "end": CodeLanguage(
        containers=(rf"(?:class|module|defmodule|defprotocol|defimpl)\s+{_DOTTED}",),
        leaves=(
            rf"(?:local\s+)?function\s+{_DOTTED}",
            rf"(?:def|defp|defmacro|macro)\s+{_DOTTED}",
            rf"{_DOTTED}\s*(?:<-|=)\s*function\b",  # Lua, R
            rf"(?:mutable\s+)?struct\s+{_NAME}",  # Julia
        ),
        comments=("#", "--", "@"),
    ),
    "shell": CodeLanguage(
        leaves=(r"(?:function\s+)?(?P<name>[\w:.-]+)\s*\(\)", r"function\s+(?P<name>[\w:.-]+)"),
        comments=("#",),
    ),
    "sql": CodeLanguage(
        leaves=(
            r"(?i)(?:create|alter)\s+(?:(?:or\s+replace|temp|temporary|unique|materialized|external)\s+)*"
            r"(?:table|view|index|function|procedure|trigger|type|schema|sequence|database)\s+"
            r"(?:if\s+(?:not\s+)?exists\s+)?(?P<name>[\w.\"`\[\]]+)",
        ),
        comments=("--", "/*"),
        block_comments=True,
        sections=True,
    ),
    "lisp": CodeLanguage(leaves=(r"\((?:def[\w-]*|ns)\s+\(?(?P<name>[^\s()]+)",), comments=(";",)),
    "section": CodeLanguage(leaves=(r"\[+(?P<name>[^\]]+)\]+",), comments=("#", ";"), sections=True),
    "keys": CodeLanguage(leaves=(r"(?P<name>[\w.\"'/-]+)\s*:(?=\s|$)",), comments=("#",), sections=True),
    "css": CodeLanguage(
        leaves=(r"(?P<name>[^\s{}/][^{};]*?)\s*\{",), comments=("/*", "*", "//"), block_comments=True
    ),
    "none": CodeLanguage(),
}

_EXTENSIONS: dict[_Family, str] = {
    "python": ".py .pyi .pyx",
    "brace": ".c .h .cc .cpp .cxx .hh .hpp .cs .dart .go .groovy .java .js .jsx .mjs .cjs .ts .tsx .mts .cts "
    " .kt .kts .m .mm .php .pl .pm .proto .rs .scala .sol .swift .zig .vue .svelte",
    "end": ".rb .lua .ex .exs .jl .r",
    "shell": ".sh .bash .zsh .fish .ps1",
    "sql": ".sql",
    "lisp": ".clj .cljs .el .lisp .scm .rkt",
    "section": ".toml .ini .cfg .conf .properties",
    "keys": ".yaml .yml",
    "css": ".css .scss .less",
    "none": ".bat .cmake .gradle .graphql .hs .ml .erl .tf .xml .mk",
}
_FAMILIES: dict[str, _Family] = {
    extension: family for family, listed in _EXTENSIONS.items() for extension in listed.split()
}
_NOT_NAMES = frozenset(
    "if else for while switch catch return do try finally with when match unless until foreach using lock"
    " synchronized sizeof typeof assert await yield super this".split()
)
_MAX_LINE = 300
"""Longer lines are generated or minified, and only slow to match."""


def code_extensions() -> frozenset[str]:
    """Return extensions of source code: those there are rules for, and a few that are read whole."""
    return frozenset(_FAMILIES)


def language_of(extension: str) -> CodeLanguage:
    """Return the splitting rules for a file extension (lower case, with its dot); others are not split."""
    return _LANGUAGES[_FAMILIES.get(extension, "none")]


def find_definition(line: str, language: CodeLanguage) -> Definition | None:
    """Return the definition on a line, stripped of its indentation."""
    if len(line) > _MAX_LINE:
        return None
    for patterns, container in ((language.containers, True), (language.leaves, False)):
        for pattern in patterns:
            match = _compile(pattern).match(line)
            if match is not None and match["name"] not in _NOT_NAMES:
                return Definition(_plain(match["name"]), container)
    return None


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compile at first use: a server that reads no code does not pay for it."""
    return re.compile(pattern)


def _plain(name: str) -> str:
    """Return a name without quotes, with dots between its parts, and without Ruby's `self.`."""
    return name.strip("\"'`[] ").replace("::", ".").replace("~", "").removeprefix("self.")
