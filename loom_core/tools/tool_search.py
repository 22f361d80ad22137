"""Tool search: find tools by purpose if there are too many to show them all to a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, ClassVar
from unicodedata import normalize

from loom_core.cjk import cjk_parts
from loom_core.tools.interface import CallContext, Tool, ToolAnnotations, ToolOutput

__all__ = ["TOOL_SEARCH", "ToolSearch", "search_words"]

TOOL_SEARCH = "tool_search"
"""Name of the tool search, for people and models."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_ENDINGS = ("ing", "ed", "s")
_MOST_FOUND = 20
_SHOWN = 300  # characters of a description
_MOST_ARGUMENTS = 12
# Weight of a word in the name, and saturation of the term frequency (as in BM25).
_NAME_WEIGHT = 3
_SATURATION = 1.2


def search_words(text: str) -> list[str]:
    """Tokenize a name or a description for search.

    `createIssue` and `create_issues` give the same tokens; Chinese gives characters and bigrams.
    """
    others, cjk = cjk_parts(normalize("NFKC", text))
    words = [_stem(word.casefold()) for part in others for word in _WORD.findall(part)]
    for run in cjk:
        words += [*run, *(run[at : at + 2] for at in range(len(run) - 1))]
    return words


def _stem(word: str) -> str:
    """Stem an English word, so that `creates`, `creating` and `create` match."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e") if len(word) > 3 else word


@dataclass(frozen=True, slots=True)
class _Index:
    """Lexical index of some tools, with weighted words."""

    tools: tuple[Tool, ...]
    words: tuple[Mapping[str, float], ...]
    rarity: Mapping[str, float]

    @classmethod
    def of(cls, tools: tuple[Tool, ...]) -> _Index:
        words = tuple(_weigh_words(tool) for tool in tools)
        having = Counter(word for each in words for word in each)
        return cls(tools, words, {word: log(1 + len(tools) / count) for word, count in having.items()})

    def best(self, query: str, limit: int) -> tuple[list[Tool], int]:
        """Return the best matches, and the number of all matches."""
        asked = {word: self.rarity[word] for word in search_words(query) if word in self.rarity}
        scored: list[tuple[float, int]] = []
        for number, words in enumerate(self.words):
            score = sum(
                rarity * words[word] / (words[word] + _SATURATION)
                for word, rarity in asked.items()
                if word in words
            )
            if score:
                scored.append((-score, number))
        scored.sort()
        return [self.tools[number] for _, number in scored[:limit]], len(scored)


def _weigh_words(tool: Tool) -> Mapping[str, float]:
    weights = Counter[str]()
    for word in search_words(tool.name):
        weights[word] += _NAME_WEIGHT
    arguments = " ".join(map(str, tool.args_schema.get("properties", ())))
    for word in search_words(f"{tool.description}\n{arguments}"):
        weights[word] += 1
    return weights


class ToolSearch(Tool):
    """`tool_search`: finds tools by words of their names, descriptions and arguments, in English and Chinese.

    Args:
        tools: returns the current tools; called at each search, so that removed tools are not found. As long
            as it returns the same tuple, the index is reused.
    """

    _SCHEMA: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": 500,
                "description": "What the tool should do, in a few words: `create an issue`, `读取文件`.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MOST_FOUND,
                "default": 5,
                "description": "How many tools are shown.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(self, tools: Callable[[], tuple[Tool, ...]]) -> None:
        self._tools = tools
        self._index = _Index.of(())

    @property
    def name(self) -> str:
        """`tool_search`, for people and models."""
        return TOOL_SEARCH

    @property
    def description(self) -> str:
        """When to search."""
        return (
            "Find tools by what they do. There are more tools than you were shown: search before you say "
            "that something cannot be done. Returns names, descriptions and arguments; call a tool by the "
            "name that stands in backquotes."
        )

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """A query, and the number of results."""
        return self._SCHEMA

    @property
    def annotations(self) -> ToolAnnotations:
        """Read-only, in a closed set of things."""
        return ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)

    def search(self, query: str, *, limit: int = 5) -> tuple[list[Tool], int]:
        """Return the best matches, and the number of all matches."""
        tools = self._tools()
        if tools is not self._index.tools:
            self._index = _Index.of(tools)
        return self._index.best(query, limit)

    def schema_of(self, tool: Tool) -> Mapping[str, Any]:
        """Return the schema of a tool's arguments, to show their names."""
        return tool.args_schema

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Search, and return a line for each tool; as structured data the names, and their number."""
        from loom_core.llm.json_schema.values import find_problems

        if wrong := find_problems(dict(arguments), self._SCHEMA):
            return ToolOutput(f"Invalid arguments for `tool_search`: {'; '.join(wrong)}.", is_error=True)
        found, fitting = self.search(arguments["query"], limit=int(arguments.get("limit", 5)))
        all_of_them = len(self._tools())
        if not found:
            text = f"None of the {all_of_them} tools fits. Try other words: what it acts on, what it does."
        else:
            text = "\n".join(_line(tool, self.schema_of(tool)) for tool in found)
            if fitting > len(found):
                text += (
                    f"\n[{len(found)} of {fitting} that fit shown; ask for more with `limit`, or say more]"
                )
        entries = [{"name": tool.name, "wire_name": tool.wire_name} for tool in found]
        return ToolOutput(text, {"tools": entries, "fitting": fitting, "total": all_of_them})


def _line(tool: Tool, schema: Mapping[str, Any]) -> str:
    about = " ".join(tool.description.split())
    if len(about) > _SHOWN:
        about = f"{about[:_SHOWN].rstrip()} …"
    return f"- `{tool.wire_name}` ({tool.name}): {about} {_arguments(schema)}"


def _arguments(schema: Mapping[str, Any]) -> str:
    names: Sequence[str] = [str(name) for name in schema.get("properties", ())]
    required = schema.get("required", ())
    if not names:
        return "Takes no arguments."
    listed = [f"{name} (required)" if name in required else name for name in names]
    more = ["…"] if len(listed) > _MOST_ARGUMENTS else []
    return f"Arguments: {', '.join([*listed[:_MOST_ARGUMENTS], *more])}."
