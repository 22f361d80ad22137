"""The tools that an agent has now, under the names by which models and people call them."""

from __future__ import annotations

import copy
import difflib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom_core.errors import ConfigError, LoomError, NotFoundError
from loom_core.llm.interface import ToolSpec
from loom_core.tokens import estimate_tokens
from loom_core.tools.arguments import ToolArguments
from loom_core.tools.interface import Tool
from loom_core.tools.patterns import matcher
from loom_core.tools.schemas.form import schema_problem
from loom_core.tools.tool_search import TOOL_SEARCH, ToolSearch

__all__ = ["ToolEntry", "Toolbox", "is_allowed"]

_log = logging.getLogger(__name__)

_NEAREST = 3
_MOST_SEARCHES = 100  # sets of patterns that are remembered, each with its words


def is_allowed(tool: Tool, allowed: Sequence[str] | None) -> bool:
    """Whether one of some patterns (`fs:*`, `server:tool`, `*`) fits a tool's name, of people or of models.

    Args:
        tool: the tool.
        allowed: the patterns; None allows every tool, none at all no tool.

    Raises:
        ConfigError: a pattern is wrong.
    """
    if allowed is None:
        return True
    return any(fits(tool.name) or fits(tool.wire_name) for fits in map(matcher, allowed))


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All tools at one time.

    Attributes:
        live: what the live sources gave.
        entries: by the name that models use, in order.
        names: all names, of people and of models.
        tools: the same, without `tool_search`.
    """

    live: tuple[tuple[Tool, ...], ...]
    entries: Mapping[str, ToolEntry]
    names: Mapping[str, ToolEntry]
    tools: tuple[Tool, ...]


class _OfferingSearch(ToolSearch):
    """Finds what may be called, and offers it."""

    def __init__(self, toolbox: Toolbox, allowed: tuple[str, ...] | None) -> None:
        super().__init__(self._callable)
        self._toolbox = toolbox
        self._allowed = allowed
        self._seen: tuple[Tool, ...] = ()
        self._fitting: tuple[Tool, ...] = ()

    def belongs_to(self, toolbox: Toolbox) -> bool:
        """Whether it is for the tools of this box."""
        return self._toolbox is toolbox

    def _callable(self) -> tuple[Tool, ...]:
        tools = self._toolbox.tools()
        if tools is not self._seen:
            fitting = tuple(tool for tool in tools if is_allowed(tool, self._allowed))
            self._seen, self._fitting = tools, fitting
        return self._fitting

    def search(self, query: str, *, limit: int = 5) -> tuple[list[Tool], int]:
        """As `ToolSearch.search`."""
        found, fitting = super().search(query, limit=limit)
        self._toolbox.offer(tool.wire_name for tool in found)
        return found, fitting


class Toolbox:
    """Tools that are given, and those that servers have now.

    With more than `most_shown` tools, or more than `most_tokens` of descriptions and schemas, a model is
    offered `tool_search` and the tools that it has found or called so far, besides those of `tools` as long
    as these alone are within the limits. It may call any tool that there is, offered or not.

    Args:
        tools: those that are always there.
        live: each gives the tools that there are now; as long as nothing has changed, the same tuple.
        most_shown: so many tools are offered at once.
        most_tokens: so many tokens of them.

    Raises:
        ConfigError: two of `tools` have the same name, or one has a schema that JSON cannot say. A live one
            whose name is taken, or whose schema is none, is left out, which is logged.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        live: Sequence[Callable[[], tuple[Tool, ...]]] = (),
        most_shown: int = 60,
        most_tokens: int = 16_000,
    ) -> None:
        self._given = tuple(tools)
        self._live = tuple(live)
        self._most_shown = most_shown
        self._most_tokens = most_tokens
        self._offered: dict[str, None] = {}
        self._searches: dict[tuple[str, ...] | None, ToolEntry] = {}
        self._own: dict[int, ToolEntry] = {}
        seen: dict[str, str] = {}
        for tool in self._given:
            for name in {tool.name, tool.wire_name}:
                if name in seen:
                    raise ConfigError(
                        f"Two tools are called {name!r}.", advice="Rename one of them, or leave it out."
                    )
            seen |= dict.fromkeys((tool.name, tool.wire_name), tool.name)
        self._seen = self._snapshot_of(self._now())
        for tool in self._given:
            if not self._own[id(tool)].can_be_offered:
                raise ConfigError(
                    f"The schema of the tool {tool.name!r} is no JSON.", advice="Give it as JSON has it."
                )

    def tools(self) -> tuple[Tool, ...]:
        """All tools that can be called now, without `tool_search`. The same tuple until they change."""
        return self._snapshot().tools

    def find(self, name: str, *, allowed: Sequence[str] | None = None) -> Tool:
        """The tool that models or people call so.

        Args:
            name: the name.
            allowed: patterns; a tool that fits none of them counts as not there. `tool_search` always is
                there, and finds only what is allowed.

        Raises:
            NotFoundError: there is none now; the advice names the nearest.
            ConfigError: a pattern is wrong.
        """
        entry = self._snapshot().names.get(name)
        if entry is None and name == TOOL_SEARCH:
            return self._search(allowed).tool
        if entry is None or not is_allowed(entry.tool, allowed):
            raise self._unknown(name, allowed)
        return entry.tool

    def current(self, tool: Tool) -> Tool:
        """The tool that has the name of one that was found before: as a rule the same.

        Raises:
            NotFoundError: there is none any more.
        """
        if isinstance(tool, _OfferingSearch) and tool.belongs_to(self):
            return tool
        return self.find(tool.wire_name)

    def prepare_arguments(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call as the tool takes them: checked, put right once, with defaults.

        Raises:
            InvalidInputError: they are wrong.
            ConfigError: the tool's own schema is.
        """
        entry = self._snapshot().names.get(tool.wire_name)
        if entry is None or entry.tool is not tool:  # it is a search, or has gone since it was found
            entry = ToolEntry(tool)
        return entry.prepare_arguments(arguments)

    def offer(self, names: Iterable[str]) -> None:
        """Show a model these tools from now on: it has found or called them.

        The latest `most_shown` are shown. `tool_search` and `ToolPipeline.plan` do this; besides, it is for
        who goes on with an old conversation.
        """
        for name in names:
            if (entry := self._snapshot().names.get(name)) is not None:
                self._offered.pop(entry.tool.wire_name, None)
                self._offered[entry.tool.wire_name] = None
        while len(self._offered) > self._most_shown:
            del self._offered[next(iter(self._offered))]

    def specs(self, *, allowed: Sequence[str] | None = None) -> tuple[ToolSpec, ...]:
        """What a model is offered now, in an order that stays the same as long as the tools do."""
        snapshot = self._snapshot()
        entries = [
            each
            for each in snapshot.entries.values()
            if is_allowed(each.tool, allowed) and each.can_be_offered
        ]
        if not self._fits(entries):
            given = [each for each in entries if any(each.tool is tool for tool in self._given)]
            first = given if self._fits(given) else []
            others = [each for each in entries if each.tool.wire_name in self._offered and each not in first]
            search = [] if TOOL_SEARCH in snapshot.entries else [self._search(allowed)]
            entries = [*first, *search, *others]
        return tuple(each.spec for each in entries)

    def _fits(self, entries: Sequence[ToolEntry]) -> bool:
        return len(entries) <= self._most_shown and sum(each.tokens for each in entries) <= self._most_tokens

    def _search(self, allowed: Sequence[str] | None) -> ToolEntry:
        key = None if allowed is None else tuple(allowed)
        if key not in self._searches:
            while len(self._searches) >= _MOST_SEARCHES:
                del self._searches[next(iter(self._searches))]
            self._searches[key] = ToolEntry(_OfferingSearch(self, key))
        return self._searches[key]

    def _now(self) -> tuple[tuple[Tool, ...], ...]:
        return tuple([source() for source in self._live])

    def _snapshot(self) -> _Snapshot:
        if self._live and (now := self._now()) != self._seen.live:
            self._seen = self._snapshot_of(now)
        return self._seen

    def _snapshot_of(self, live: tuple[tuple[Tool, ...], ...]) -> _Snapshot:
        before = self._own
        self._own = {}
        entries: dict[str, ToolEntry] = {}
        names: dict[str, ToolEntry] = {}
        for tool in (*self._given, *(tool for source in live for tool in source)):
            if tool.wire_name in names or tool.name in names:
                _log.warning("the tool %s is left out: another has its name", tool.name)
                continue
            entry = before.get(id(tool)) or ToolEntry(tool)
            self._own[id(tool)] = entries[tool.wire_name] = entry
            names[tool.wire_name] = names[tool.name] = entry
        return _Snapshot(live, entries, names, tuple(each.tool for each in entries.values()))

    def _unknown(self, name: str, allowed: Sequence[str] | None) -> NotFoundError:
        known = [each.tool for each in self._snapshot().entries.values() if is_allowed(each.tool, allowed)]
        names = {each.wire_name: each.name for each in known}
        ending = [each.wire_name for each in known if each.name.endswith(f":{name}")]
        by_name = {each.name: each.wire_name for each in known}
        close = difflib.get_close_matches(name, [*names, *by_name], n=2 * _NEAREST, cutoff=0.4)
        near = list(dict.fromkeys([*ending, *(by_name.get(each, each) for each in close)]))[:_NEAREST]
        shown = ", ".join(f"`{each}`" for each in near)
        return NotFoundError(
            f"There is no tool {name[:100]!r}.",
            advice=f"Did you mean {shown}?" if shown else "Use one of the tools that you were given.",
        )


class ToolEntry:
    """A tool, with what is worked out of it once.

    Attributes:
        tool: the tool.
    """

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self._spec: ToolSpec | None = None
        self._is_broken = False
        self._tokens = 0
        self._arguments: ToolArguments | None = None

    @property
    def spec(self) -> ToolSpec:
        """The tool as a model is offered it; see `Tool.spec`."""
        if self._spec is None:
            self._spec = self.tool.spec()
        return self._spec

    @property
    def can_be_offered(self) -> bool:
        """Whether it can be said to a model; a tool of somebody else's may have a schema that is none."""
        if self._spec is None and not self._is_broken:
            try:
                self._spec = self.tool.spec()
            except LoomError as error:
                self._is_broken = True
                _log.warning("the tool %s is not offered: %s", self.tool.name, error)
        return not self._is_broken

    @property
    def tokens(self) -> int:
        """About how many tokens it takes to offer it."""
        if not self._tokens:
            schema = json.dumps(self.spec.parameters, ensure_ascii=False)
            self._tokens = 1 + estimate_tokens(f"{self.spec.name}{self.spec.description}{schema}")
        return self._tokens

    def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call: checked, put right once, with defaults.

        Raises:
            InvalidInputError: they are wrong.
            ConfigError: the tool's own schema is.
        """
        given = self.tool.prepare_arguments(arguments)
        if given is not None:
            return given
        if self._arguments is None:
            schema = self.tool.args_schema
            if problem := schema_problem(schema):
                raise ConfigError(
                    f"`{self.tool.name}` cannot be called: its schema {problem}.", advice="Use another tool."
                )
            self._arguments = ToolArguments(self.tool.name, schema)
        properties: Mapping[str, Mapping[str, Any] | bool] = self.tool.args_schema.get("properties", {})
        checked = self._arguments.validate(arguments)
        defaults = {
            name: copy.deepcopy(part["default"])  # the tool may change what it is given
            for name, part in properties.items()
            if name not in checked and isinstance(part, Mapping) and "default" in part
        }
        return {**defaults, **checked}
