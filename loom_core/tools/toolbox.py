"""Toolbox: the current tools of an agent, by their names for models and for people.

The program may set (inject) arguments of tools, which models neither see nor choose.
"""

from __future__ import annotations

import copy
import difflib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loom_core.errors import ConfigError, InvalidInputError, LoomError, NotFoundError
from loom_core.llm.interface import ToolSpec
from loom_core.tokens import estimate_tokens
from loom_core.tools.arguments import ToolArguments
from loom_core.tools.interface import Tool
from loom_core.tools.patterns import matcher
from loom_core.tools.schemas.form import schema_problem
from loom_core.tools.tool_search import TOOL_SEARCH, ToolSearch

__all__ = ["ArgumentInjection", "ToolEntry", "Toolbox", "is_allowed"]

_log = logging.getLogger(__name__)

_NEAREST = 3
_MOST_SEARCHES = 100  # cached sets of patterns, each with its index


def is_allowed(tool: Tool, allowed: Sequence[str] | None) -> bool:
    """Return whether a pattern (`fs:*`, `server:tool`, `*`) matches a tool's name, for people or models.

    Args:
        tool: the tool.
        allowed: the patterns; None allows every tool, an empty list none.

    Raises:
        ConfigError: a pattern is invalid.
    """
    if allowed is None:
        return True
    return any(fits(tool.name) or fits(tool.wire_name) for fits in map(matcher, allowed))


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Snapshot of all tools.

    Attributes:
        live: the tuples of the live sources.
        entries: by the name for models, in order.
        names: all names, for people and for models.
        tools: the same, without `tool_search`.
    """

    live: tuple[tuple[Tool, ...], ...]
    entries: Mapping[str, ToolEntry]
    names: Mapping[str, ToolEntry]
    tools: tuple[Tool, ...]


class _OfferingSearch(ToolSearch):
    """Tool search that offers the tools it finds to the model."""

    def __init__(self, toolbox: Toolbox, allowed: tuple[str, ...] | None) -> None:
        super().__init__(self._callable)
        self.toolbox = toolbox
        self._allowed = allowed
        self._seen: tuple[Tool, ...] = ()
        self._fitting: tuple[Tool, ...] = ()

    def schema_of(self, tool: Tool) -> Mapping[str, Any]:
        """Return the arguments that a model may choose."""
        return self.toolbox.schema_of(tool)

    def _callable(self) -> tuple[Tool, ...]:
        tools = self.toolbox.tools()
        if tools is not self._seen:
            fitting = tuple(tool for tool in tools if is_allowed(tool, self._allowed))
            self._seen, self._fitting = tools, fitting
        return self._fitting

    def search(self, query: str, *, limit: int = 5) -> tuple[list[Tool], int]:
        """Search, and offer the results; see `ToolSearch.search`."""
        found, fitting = super().search(query, limit=limit)
        self.toolbox.offer(tool.wire_name for tool in found)
        return found, fitting


class Toolbox:
    """Fixed tools, and the current tools of servers.

    With more than `most_shown` tools, or more than `most_tokens` of descriptions and schemas, a model is
    offered `tool_search` and the tools that it has found or called so far, and those of `tools` as long as
    these alone are within the limits. It may call any existing tool, offered or not.

    Args:
        tools: the fixed tools.
        live: each returns the current tools of a source; the same tuple as long as nothing has changed.
        most_shown: maximum number of offered tools.
        most_tokens: maximum tokens of offered tools.
        inject: arguments that are set from the data of the run (`run(goal, context=…)`): by pattern of the
            tool's name, the key of the data for each, as `{"crm:*": {"customer_id": "customer"}}`. Models
            do not see them; permissions, approvals and the audit do.

    Raises:
        ConfigError: two of `tools` have the same name, or one has an invalid schema. A live tool whose name
            is taken, or whose schema is invalid, is left out, which is logged.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        live: Sequence[Callable[[], tuple[Tool, ...]]] = (),
        most_shown: int = 60,
        most_tokens: int = 16_000,
        inject: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._given = tuple(tools)
        self._live = tuple(live)
        self._most_shown = most_shown
        self._most_tokens = most_tokens
        self._inject = inject or {}
        self._injection = ArgumentInjection(self._inject)
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
                    f"The schema of the tool {tool.name!r} is not JSON.", advice="Give it as JSON has it."
                )

    def with_tools(self, tools: Iterable[Tool]) -> Toolbox:
        """Return a toolbox that has further fixed tools, before those of this one.

        Raises:
            ConfigError: two fixed tools have the same name, or one has an invalid schema.
        """
        given = (*tools, *self._given)
        return Toolbox(
            given,
            live=self._live,
            most_shown=self._most_shown,
            most_tokens=self._most_tokens,
            inject=self._inject,
        )

    def tools(self) -> tuple[Tool, ...]:
        """Return all current tools, without `tool_search`; the same tuple until they change."""
        return self._snapshot().tools

    def find(self, name: str, *, allowed: Sequence[str] | None = None) -> Tool:
        """Return the tool of a name, for models or for people.

        Args:
            name: the name.
            allowed: patterns; a tool that matches none of them counts as missing. `tool_search` always
                exists, and finds only allowed tools.

        Raises:
            NotFoundError: there is none now; the advice suggests similar names.
            ConfigError: a pattern is invalid.
        """
        entry = self._snapshot().names.get(name)
        if entry is None and name == TOOL_SEARCH:
            return self._search(allowed).tool
        if entry is None or not is_allowed(entry.tool, allowed):
            raise self._unknown(name, allowed)
        return entry.tool

    def current(self, tool: Tool) -> Tool:
        """Return the current tool with the name of an earlier one: usually the same.

        Raises:
            NotFoundError: it no longer exists.
        """
        if isinstance(tool, _OfferingSearch) and tool.toolbox is self:
            return tool
        return self.find(tool.wire_name)

    def prepare_arguments(
        self, tool: Tool, arguments: Mapping[str, Any], *, data: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        """Inject and validate the arguments of a call, repair them once, and add defaults.

        Args:
            tool: the tool.
            arguments: the arguments of the model.
            data: the data of the run, for arguments that are injected.

        Raises:
            InvalidInputError: they are invalid.
            ConfigError: the tool's own schema is invalid.
        """
        return self._entry(tool).prepare_arguments(arguments, data or {})

    def schema_of(self, tool: Tool) -> Mapping[str, Any]:
        """Return the schema of the arguments that a model may choose: all that are not injected."""
        return _without_arguments(tool.args_schema, self._entry(tool).injected)

    def chosen_arguments(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a call without those that are injected: what a model may see of them."""
        injected = self._entry(tool).injected
        return {name: value for name, value in arguments.items() if name not in injected}

    def _entry(self, tool: Tool) -> ToolEntry:
        entry = self._snapshot().names.get(tool.wire_name)
        if entry is None or entry.tool is not tool:  # it is a search, or was removed since
            entry = ToolEntry(tool, self._injection.keys_for(tool))
        return entry

    def offer(self, names: Iterable[str]) -> None:
        """Offer these tools to the model from now on: it has found or called them.

        The latest `most_shown` are offered. `tool_search` and `ToolPipeline.plan` call this; call it also to
        continue an old conversation.
        """
        for name in names:
            if (entry := self._snapshot().names.get(name)) is not None:
                self._offered.pop(entry.tool.wire_name, None)
                self._offered[entry.tool.wire_name] = None
        while len(self._offered) > self._most_shown:
            del self._offered[next(iter(self._offered))]

    def specs(self, *, allowed: Sequence[str] | None = None) -> tuple[ToolSpec, ...]:
        """Return the tools offered to a model now, in a stable order."""
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
            self._searches[key] = ToolEntry(_OfferingSearch(self, key), {})
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
            entry = before.get(id(tool)) or ToolEntry(tool, self._injection.keys_for(tool))
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
    """A tool with its cached definition, size and validator.

    Attributes:
        tool: the tool.
        injected: the key of the run's data for each argument that is injected.
    """

    def __init__(self, tool: Tool, injected: Mapping[str, str]) -> None:
        self.tool = tool
        self.injected = injected
        self._spec: ToolSpec | None = None
        self._is_broken = False
        self._tokens = 0
        self._arguments: ToolArguments | None = None

    @property
    def spec(self) -> ToolSpec:
        """The tool's definition for models; see `Tool.spec`."""
        if self._spec is None:
            spec = self.tool.spec()
            self._spec = replace(spec, parameters=_without_arguments(spec.parameters, self.injected))
        return self._spec

    @property
    def can_be_offered(self) -> bool:
        """Whether its definition is valid; a third-party tool may have an invalid schema."""
        if self._spec is None and not self._is_broken:
            try:
                _ = self.spec
            except LoomError as error:
                self._is_broken = True
                _log.warning("the tool %s is not offered: %s", self.tool.name, error)
        return not self._is_broken

    @property
    def tokens(self) -> int:
        """Estimated tokens of its definition."""
        if not self._tokens:
            schema = json.dumps(self.spec.parameters, ensure_ascii=False)
            self._tokens = 1 + estimate_tokens(f"{self.spec.name}{self.spec.description}{schema}")
        return self._tokens

    def prepare_arguments(self, arguments: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inject and validate the arguments of a call; see `Toolbox.prepare_arguments`."""
        if self.injected:
            arguments = _inject_arguments(arguments, self.injected, data, tool=self.tool.name)
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
            name: copy.deepcopy(part["default"])  # the tool may modify its arguments
            for name, part in properties.items()
            if name not in checked and isinstance(part, Mapping) and "default" in part
        }
        return {**defaults, **checked}


class ArgumentInjection:
    """Chooses the arguments that are set from the data of the run, such as the id of a customer.

    Args:
        rules: by pattern of a tool's name, for people or models, the key of the data for each argument:
            `{"crm:*": {"customer_id": "customer"}}`.

    Raises:
        ConfigError: a pattern is invalid.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, str]]) -> None:
        self._rules = [(matcher(pattern), dict(keys)) for pattern, keys in rules.items()]

    def keys_for(self, tool: Tool) -> Mapping[str, str]:
        """Return the key of the data for each argument of a tool that is injected."""
        found = [keys for fits, keys in self._rules if fits(tool.name) or fits(tool.wire_name)]
        if not found:
            return {}
        properties: object = tool.args_schema.get("properties")
        if not isinstance(properties, Mapping):  # a schema of a third party may be anything
            return {}
        return {argument: key for keys in found for argument, key in keys.items() if argument in properties}


def _without_arguments(schema: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """Return a schema of arguments without some of them; the same one if it has none of them."""
    if not names:
        return schema
    left = {name: part for name, part in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", ()) if name not in names]
    others = {key: part for key, part in schema.items() if key not in {"properties", "required"}}
    return {**others, "properties": left, **({"required": required} if required else {})}


def _inject_arguments(
    given: Mapping[str, Any], keys: Mapping[str, str], data: Mapping[str, Any], *, tool: str
) -> Mapping[str, Any]:
    """Return arguments of a call with those that are injected; data that are missing set none."""
    fixed = {argument: data[key] for argument, key in keys.items() if key in data}
    for argument in keys:
        if argument in given and (argument not in fixed or given[argument] != fixed[argument]):
            raise InvalidInputError(
                f"`{argument}` of `{tool}` is set by the program and cannot be chosen.",
                advice="Leave it out.",
            )
    return {**given, **fixed}
