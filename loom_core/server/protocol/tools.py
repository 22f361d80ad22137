"""Tools: Python functions with a definition, argument validation and structured results."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import CallToolResult, ToolAnnotations
from mcp_types import Tool as ToolDefinition
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from loom_core.errors import InvalidInputError
from loom_core.json_repair import well_formed
from loom_core.server.auth.caller import current_caller
from loom_core.server.calls.client_input import input_required
from loom_core.server.calls.context import ToolContext, bind_call_context
from loom_core.server.protocol.arguments import arguments_of, values_for
from loom_core.server.protocol.content import block
from loom_core.server.protocol.errors import error_text
from loom_core.server.protocol.results import ToolReply
from loom_core.tools.depth import inherit_depth
from loom_core.tools.function_arguments import FunctionArguments
from loom_core.tools.names import closest
from loom_core.tools.schemas.model_schema import outline, terse, without_titles

if TYPE_CHECKING:
    from mcp.server import Server, ServerRequestContext

    from loom_core.server.auth.caller import Scope

__all__ = [
    "DESCRIPTION_BYTES",
    "LiveTools",
    "SchemaFunction",
    "SchemaTool",
    "ServedTool",
    "ToolFunction",
    "ToolWording",
    "Tools",
    "WordingFunction",
    "to_call_result",
]

DESCRIPTION_BYTES = 2048
"""Hosts cut the description of a tool, and the instructions of a server, at this length."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolWording:
    """The dynamic part of a tool's definition, computed for each list.

    Attributes:
        description: the whole description.
        arguments: JSON Schema keywords that are added to the schema of an argument, by its name, such as
            `{"source": {"enum": ["docs", "产品文档"]}}`. They inform the model; the tool itself validates.
    """

    description: str
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


ToolFunction = Callable[..., Awaitable[ToolReply[BaseModel]]]
"""An `async def` with annotated parameters that is itself annotated `-> ToolReply[SomeModel]`."""

WordingFunction = Callable[..., Awaitable[ToolWording]]
"""An `async def` without parameters, or with one of type `ToolContext` if it depends on the caller."""


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A function with its tool definition. Created by `ServedTool.of`, which validates both.

    Attributes:
        name: name for models.
        arguments: its arguments.
    """

    name: str
    arguments: FunctionArguments
    _answer: type[BaseModel]
    _function: ToolFunction
    _definition: ToolDefinition
    _wording: WordingFunction | None

    @classmethod
    def of(
        cls,
        function: ToolFunction,
        *,
        name: str,
        title: str,
        description: str,
        annotations: ToolAnnotations,
        wording: WordingFunction | None,
        keywords: Mapping[str, Any] | None,
        hidden: Collection[str],
        meta: dict[str, Any] | None,
    ) -> ServedTool:
        """Create a tool from a function; parameters as in `LoomServer.tool`.

        Raises:
            ValueError: the name, description, signature or return annotation is invalid.
        """
        if not title.strip():
            raise ValueError(f"tool {name!r}: a title is required")
        arguments = arguments_of(function, name, keywords=keywords)
        if reason := find_invalid_x_mcp_header(arguments.schema):
            raise ValueError(f"tool {name!r}: {reason}")
        answer = _output_model(function, name)
        definition = ToolDefinition(
            name=name,
            title=title,
            description=_check_description(name, description or inspect.getdoc(function) or ""),
            input_schema=terse(_without(arguments.schema, hidden)),
            output_schema=outline(_answer_schema(answer)),
            annotations=annotations,
            _meta=meta,
        )
        return cls(
            name, arguments, answer, function, definition, bind_call_context(wording) if wording else None
        )

    @property
    def answer_schema(self) -> Mapping[str, Any]:
        """JSON Schema of its output, with descriptions; `tools/list` has an outline of it."""
        return _answer_schema(self._answer)

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments."""
        return self.arguments.schema

    @property
    def scope(self) -> Scope:
        """Scope a caller needs to use it."""
        annotations = self._definition.annotations
        return "read" if annotations is not None and annotations.read_only_hint else "write"

    @property
    def worded(self) -> bool:
        """Whether its definition is dynamic."""
        return self._wording is not None

    async def definition(self, context: ToolContext) -> ToolDefinition:
        """Return its current definition for `tools/list`.

        If its wording fails, that is logged and the static definition is returned: one broken source must not
        hide the tool.
        """
        if self._wording is None:
            return self._definition
        try:
            return self._apply_wording(await self._wording(context))
        except Exception:  # noqa: BLE001 - the wording reads stores that may be damaged in any way
            _log.exception("cannot word the tool %r; its fixed description is used", self.name)
            return self._definition

    async def call(self, given: dict[str, Any], context: ToolContext) -> CallToolResult:
        """Validate the arguments, run the function, and convert its reply.

        Raises:
            InvalidInputError: the arguments are not valid.
            Exception: whatever the function raises.
        """
        return to_call_result(await self._function(**values_for(self.arguments, given, context)))

    def _apply_wording(self, wording: ToolWording) -> ToolDefinition:
        schema = dict(self._definition.input_schema)
        properties = dict(schema["properties"])
        for argument, keywords in wording.arguments.items():
            properties[argument] = {**properties[argument], **well_formed(dict(keywords))}
        schema["properties"] = properties
        description = _check_description(self.name, well_formed(wording.description))
        return self._definition.model_copy(update={"description": description, "input_schema": schema})


def _without(schema: dict[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """Copy the schema of a tool's arguments without those that are accepted but not offered."""
    properties = {name: each for name, each in schema["properties"].items() if name not in hidden}
    return {**schema, "properties": properties}


def to_call_result(reply: ToolReply[BaseModel]) -> CallToolResult:
    """Convert a reply to the protocol's form.

    Structured fields with their default value are omitted, as the output schema allows: many hosts show the
    structured content to the model, too, or instead of the text.
    """
    texts = [] if reply.contents and not reply.text else [reply.text]
    return CallToolResult(
        content=[block(content) for content in (*texts, *reply.contents)],
        structured_content=well_formed(_dump(reply.structured)),
    )


def _dump(model: BaseModel) -> dict[str, Any]:
    try:
        return model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    except UnicodeEncodeError:  # half a surrogate pair in a name: pydantic passes it on in values only
        return to_jsonable_python(well_formed(model.model_dump(by_alias=True, exclude_defaults=True)))


def _answer_schema(answer: type[BaseModel]) -> dict[str, Any]:
    return without_titles(answer.model_json_schema(mode="serialization"))


def _check_description(name: str, description: str) -> str:
    if not description.strip():
        raise ValueError(f"tool {name!r}: a description is required")
    size = len(description.encode())
    if size > DESCRIPTION_BYTES:
        raise ValueError(
            f"tool {name!r}: the description has {size} bytes, hosts cut it at {DESCRIPTION_BYTES}"
        )
    return description


def _output_model(function: ToolFunction, name: str) -> type[BaseModel]:
    annotation = typing.get_type_hints(function).get("return")
    models = typing.get_args(annotation)
    if (
        typing.get_origin(annotation) is ToolReply
        and isinstance(models[0], type)
        and issubclass(models[0], BaseModel)
    ):
        return models[0]
    raise ValueError(f"tool {name!r}: the function must be annotated `-> ToolReply[SomeModel]`")


LiveTools: TypeAlias = "Callable[[], Sequence[SchemaTool]]"
"""Returns the current dynamic tools of the current caller."""


class Tools:
    """Tools for models, in the order of registration."""

    def __init__(self, protocol: Server[object]) -> None:
        """Start without tools.

        Args:
            protocol: the SDK's server, which gets the handlers.
        """
        self._tools: dict[str, ServedTool] = {}
        self._live: LiveTools | None = None
        protocol.get_tool_input_schema = self._input_schema
        protocol.add_request_handler("tools/list", types.PaginatedRequestParams, self._on_list)
        protocol.add_request_handler("tools/call", types.CallToolRequestParams, self._on_call)

    def add(self, tool: ServedTool) -> None:
        """Register a tool.

        Raises:
            ValueError: its name is taken.
        """
        if tool.name in self._tools:
            raise ValueError(f"tool {tool.name!r} is registered already")
        self._tools[tool.name] = tool

    def add_live(self, live: LiveTools) -> None:
        """Set the function that returns dynamic tools, which follow the registered ones."""
        self._live = live

    def get(self, name: str) -> ServedTool | SchemaTool:
        """Return the tool of that name.

        Raises:
            InvalidInputError: there is no such tool.
        """
        tool = self._find(name)
        if tool is None:
            names = [tool.name for tool in self._usable()]
            raise InvalidInputError(
                f"There is no tool `{name}`{closest(name, names)}.", advice=f"Tools: {', '.join(names)}."
            )
        return tool

    def scope(self, name: str) -> Scope | None:
        """Return the scope a caller needs to use a tool, or None if there is no such tool."""
        tool = self._find(name)
        return None if tool is None else tool.scope

    def answer_schemas(self) -> dict[str, Mapping[str, Any]]:
        """Return the output schemas of the static tools by name, with descriptions."""
        return {tool.name: tool.answer_schema for tool in self._tools.values()}

    def _find(self, name: str) -> ServedTool | SchemaTool | None:
        """Find the tool of that name; of two, the static one."""
        return self._tools.get(name) or next((tool for tool in self._others() if tool.name == name), None)

    def _others(self) -> Sequence[SchemaTool]:
        return self._live() if self._live is not None else ()

    def _usable(self) -> list[ServedTool | SchemaTool]:
        """Return the tools that the current caller may use."""
        caller = current_caller()
        live = [tool for tool in self._others() if tool.name not in self._tools]
        return [tool for tool in (*self._tools.values(), *live) if caller.may(tool.scope)]

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        """Return the schema against which the transport checks headers that repeat arguments."""
        tool = self._find(name)
        return None if tool is None else dict(tool.input_schema)

    async def _on_list(
        self, ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams
    ) -> types.ListToolsResult:
        context = ToolContext.of(ctx)
        tools = self._usable()
        definitions = [await tool.definition(context) for tool in tools]
        if self._live is not None or any(tool.worded for tool in tools):
            return types.ListToolsResult(tools=definitions, ttl_ms=0)
        return types.ListToolsResult(tools=definitions)

    async def _on_call(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            with inherit_depth(ctx.meta):
                return await self.get(params.name).call(params.arguments or {}, ToolContext.of(ctx))
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost handler of a tool call
            if needed := input_required(error):
                return needed
            text = error_text(error, f"tool `{params.name}`")
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


_CUT = " …"

SchemaFunction: TypeAlias = "Callable[[dict[str, Any], ToolContext], Awaitable[ToolReply[BaseModel]]]"
"""Gets the arguments, which are not validated, and the context of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTool:
    """Dynamic tool with a JSON Schema. Its function validates the arguments, as it may ask for missing ones.

    Attributes:
        name: name for models; `[a-z][a-z0-9_]{0,39}`.
        title: name for people.
        description: its description; truncated at 2 KB.
        input_schema: JSON Schema of its arguments, an object.
        output: model of its output.
        function: runs the tool.
        read_only: as for `LoomServer.tool`, like the following.
        destructive: see there.
        idempotent: see there.
        open_world: see there.
    """

    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output: type[BaseModel]
    function: SchemaFunction = field(repr=False)
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool

    @property
    def scope(self) -> Scope:
        """Scope a caller needs to use it."""
        return "read" if self.read_only else "write"

    @property
    def worded(self) -> bool:
        """True: its definition is dynamic."""
        return True

    async def definition(self, _context: ToolContext) -> ToolDefinition:
        """Return its definition for `tools/list`."""
        schema: dict[str, Any] = {"type": "object", "properties": {}, **self.input_schema}
        return ToolDefinition(
            name=self.name,
            title=well_formed(self.title),
            description=_truncate(well_formed(self.description)),
            input_schema=well_formed(schema),
            output_schema=outline(_answer_schema(self.output)),
            annotations=ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=self.open_world,
            ),
        )

    async def call(self, given: dict[str, Any], context: ToolContext) -> CallToolResult:
        """Run the function, and convert its reply.

        Raises:
            Exception: whatever the function raises.
        """
        return to_call_result(await self.function(given, context))


def _truncate(description: str) -> str:
    whole = description.encode()
    if len(whole) <= DESCRIPTION_BYTES:
        return description
    return whole[: DESCRIPTION_BYTES - len(_CUT.encode())].decode(errors="ignore") + _CUT
