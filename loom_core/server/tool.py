"""A tool: one Python function as the protocol sees it."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import CallToolResult, ToolAnnotations
from mcp_types import Tool as ToolDefinition
from pydantic import BaseModel

from loom_core.server.arguments import arguments_of, values_for
from loom_core.server.content import block
from loom_core.server.context import ToolContext, taking_context
from loom_core.server.results import ToolReply
from loom_core.server.wellformed import well_formed
from loom_core.tools.function_arguments import FunctionArguments
from loom_core.tools.schema import without_titles

if TYPE_CHECKING:
    from loom_core.server.caller import Scope

__all__ = ["DESCRIPTION_BYTES", "Tool", "ToolFunction", "ToolWording", "WordingFunction", "shaped"]

DESCRIPTION_BYTES = 2048
"""Hosts cut the description of a tool, and the instructions of a server, at this length."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolWording:
    """The part of a tool's definition that depends on what is there at the time of asking.

    Attributes:
        description: the whole description.
        arguments: name of an argument to JSON Schema keywords that are added to its schema, such as
            `{"source": {"enum": ["docs", "产品文档"]}}`. They inform the model; the tool itself checks.
    """

    description: str
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


ToolFunction = Callable[..., Awaitable[ToolReply[BaseModel]]]
"""An `async def` with annotated parameters that is itself annotated `-> ToolReply[SomeModel]`."""

WordingFunction = Callable[..., Awaitable[ToolWording]]
"""An `async def` without parameters, or with one of type `ToolContext` where who asks makes a difference."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function and what is said about it. Made by `Tool.of`, which checks all of it.

    Attributes:
        name: how models call it.
        arguments: what it accepts.
    """

    name: str
    arguments: FunctionArguments
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
    ) -> Tool:
        """Make a tool of a function; parameters as in `LoomServer.tool`.

        Raises:
            ValueError: the name, description, signature or return annotation is not as it must be.
        """
        if not title.strip():
            raise ValueError(f"tool {name!r}: a title is required")
        arguments = arguments_of(function, name, keywords=keywords)
        if reason := find_invalid_x_mcp_header(arguments.schema):
            raise ValueError(f"tool {name!r}: {reason}")
        definition = ToolDefinition(
            name=name,
            title=title,
            description=_described(name, description or inspect.getdoc(function) or ""),
            input_schema=_without(arguments.schema, hidden),
            output_schema=without_titles(
                _output_model(function, name).model_json_schema(mode="serialization")
            ),
            annotations=annotations,
            _meta=meta,
        )
        return cls(name, arguments, function, definition, taking_context(wording) if wording else None)

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of what it accepts."""
        return self.arguments.schema

    @property
    def scope(self) -> Scope:
        """What a caller needs to use it."""
        annotations = self._definition.annotations
        return "read" if annotations is not None and annotations.read_only_hint else "write"

    @property
    def worded(self) -> bool:
        """Whether its definition depends on what is there at the time of asking."""
        return self._wording is not None

    async def definition(self, context: ToolContext) -> ToolDefinition:
        """What `tools/list` says of it, now.

        A wording that fails is logged and the fixed definition given: one source that cannot be described
        must not hide the tool.
        """
        if self._wording is None:
            return self._definition
        try:
            return self._worded(await self._wording(context))
        except Exception:  # noqa: BLE001 - the wording reads stores that may be damaged in any way
            _log.exception("cannot word the tool %r; its fixed description is used", self.name)
            return self._definition

    async def call(self, given: dict[str, Any], context: ToolContext) -> CallToolResult:
        """Check the arguments, run the function and shape its reply.

        Raises:
            InvalidInputError: the arguments are not valid.
            Exception: whatever the function raises.
        """
        return shaped(await self._function(**values_for(self.arguments, given, context)))

    def _worded(self, wording: ToolWording) -> ToolDefinition:
        schema = dict(self._definition.input_schema)
        properties = dict(schema["properties"])
        for argument, keywords in wording.arguments.items():
            properties[argument] = {**properties[argument], **well_formed(dict(keywords))}
        schema["properties"] = properties
        description = _described(self.name, well_formed(wording.description))
        return self._definition.model_copy(update={"description": description, "input_schema": schema})


def _without(schema: dict[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """Copy the schema of a tool's arguments without those that are accepted but not offered."""
    properties = {name: each for name, each in schema["properties"].items() if name not in hidden}
    return {**schema, "properties": properties}


def shaped(reply: ToolReply[BaseModel]) -> CallToolResult:
    """Convert a reply to the protocol's form.

    Structured fields that have their default value are left out, as the output schema allows: many hosts show
    this to the model as well as the text, or in its place.
    """
    texts = [] if reply.contents and not reply.text else [reply.text]
    return CallToolResult(
        content=[block(content) for content in (*texts, *reply.contents)],
        structured_content=well_formed(
            reply.structured.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        ),
    )


def _described(name: str, description: str) -> str:
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
