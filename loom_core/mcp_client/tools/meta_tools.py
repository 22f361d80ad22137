"""Resources and prompts of a server as tools, because models can only call tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from loom_core.mcp_client.connections.sanitization import plain_line
from loom_core.mcp_client.tools.output import OutputParts
from loom_core.mcp_client.tools.tool import ServerTool, ToolEnvironment
from loom_core.tools.arguments import ToolArguments
from loom_core.tools.interface import CallContext, ToolAnnotations, ToolOutput

if TYPE_CHECKING:
    import mcp_types

    from loom_core.mcp_client.connections.connection import ServerConnection

__all__ = ["MetaTool", "meta_tools"]

_ABOUT_BYTES = 500  # of what a server says of one resource or prompt
_PAGE = 100
_LONGEST_URI = 4000

_Answer: TypeAlias = Callable[["ServerConnection", Mapping[str, Any], OutputParts], Awaitable[int]]
"""Fetches an answer, and returns its TTL in milliseconds; 0 if the server does not say."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Definition of one meta tool.

    Attributes:
        name: its own name, without the server's id.
        says: its description, with `{server}` for the id.
        answer: asks the server, and adds the answer to the output.
        takes: JSON Schemas of its arguments, by name.
        required: names of required arguments.
    """

    name: str
    says: str
    answer: _Answer
    takes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    required: tuple[str, ...] = ()


class MetaTool(ServerTool):
    """A tool of Loom's for the resources or prompts of a server.

    By the protocol these requests change nothing, but a server may do anything: as with its own tools, they
    count as read-only for a trusted server only.
    """

    def __init__(self, own_name: str, kind: _Kind, home: ToolEnvironment) -> None:
        super().__init__(own_name, home)
        self._kind = kind
        self._trusted = home.connection.config.trusted
        self._schema: Mapping[str, Any] = {
            "type": "object",
            "properties": kind.takes,
            "required": list(kind.required),
            "additionalProperties": False,
        }
        self._arguments = ToolArguments(self.name, self._schema)

    @property
    def description(self) -> str:
        """The tool's purpose, in Loom's words."""
        return self._kind.says.format(server=self.server)

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """JSON Schema of its arguments."""
        return self._schema

    @property
    def annotations(self) -> ToolAnnotations:
        """Read-only hint for a trusted server; else the worst case."""
        if not self._trusted:
            return ToolAnnotations()
        return ToolAnnotations(read_only=True, destructive=False, idempotent=True)

    async def _run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        checked = self._arguments.validate(arguments)
        key = (self.server, self._kind.name)
        if (kept := self._home.cache.get(key, checked)) is not None:
            return kept
        parts, ttl_ms = OutputParts(), 0
        with anyio.move_on_after(context.seconds) as waiting:
            ttl_ms = await self._kind.answer(self._home.connection, checked, parts)
        if waiting.cancelled_caught:
            return self._to_failure(f"The server {self.server} did not answer within {context.seconds:g} s.")
        output = parts.output(server=self.server)
        self._home.cache.put(key, checked, output, ttl_ms=ttl_ms)
        return output


def meta_tools(
    home: ToolEnvironment, capabilities: mcp_types.ServerCapabilities, *, taken: Collection[str]
) -> list[MetaTool]:
    """Create the tools for a server's resources and prompts.

    Args:
        home: environment of the tools.
        capabilities: the server's capabilities.
        taken: names of its own tools; a name of ours that is taken gets the prefix `mcp_`.
    """
    kinds = (_RESOURCES if capabilities.resources else ()) + (_PROMPTS if capabilities.prompts else ())
    return [MetaTool(f"mcp_{kind.name}" if kind.name in taken else kind.name, kind, home) for kind in kinds]


async def _list_resources(
    connection: ServerConnection, arguments: Mapping[str, Any], parts: OutputParts
) -> int:
    resources = await connection.list_resources()
    templates = await connection.list_resource_templates()
    lines = [_resource_line(each) for each in resources]
    lines += [f"- {_uri(each.uri_template)} (fill in what is in braces){_about(each)}" for each in templates]
    parts.text(_page(lines, arguments, "resources"))
    return 0


async def _read_resource(
    connection: ServerConnection, arguments: Mapping[str, Any], parts: OutputParts
) -> int:
    result = await connection.read_resource(arguments["uri"])
    for content in result.contents:
        parts.resource(content)
    if not result.contents:
        parts.text("[the resource is empty]")
    return result.ttl_ms


async def _list_prompts(
    connection: ServerConnection, arguments: Mapping[str, Any], parts: OutputParts
) -> int:
    prompts = await connection.list_prompts()
    parts.text(_page([_prompt_line(prompt) for prompt in prompts], arguments, "prompts"))
    return 0


async def _get_prompt(connection: ServerConnection, arguments: Mapping[str, Any], parts: OutputParts) -> int:
    result = await connection.get_prompt(arguments["name"], arguments.get("arguments"))
    for message in result.messages:
        parts.text(f"[{message.role}]")
        parts.block(message.content)
    if not result.messages:
        parts.text("[the prompt is empty]")
    return 0


def _resource_line(resource: mcp_types.Resource) -> str:
    facts = [plain_line(resource.mime_type or ""), f"{resource.size:,} bytes" if resource.size else ""]
    inside = ", ".join(fact for fact in facts if fact)
    return f"- {_uri(resource.uri)}{inside and f' ({inside})'}{_about(resource)}"


def _prompt_line(prompt: mcp_types.Prompt) -> str:
    arguments = ", ".join(
        f"{plain_line(argument.name)}{' (required)' if argument.required else ''}"
        for argument in prompt.arguments or ()
    )
    return f"- {plain_line(prompt.name)}{_about(prompt)}{arguments and f' Arguments: {arguments}.'}"


def _about(entry: mcp_types.Resource | mcp_types.ResourceTemplate | mcp_types.Prompt) -> str:
    said = [entry.title or (entry.name if not hasattr(entry, "arguments") else ""), entry.description or ""]
    text = ". ".join(plain_line(part, most=_ABOUT_BYTES) for part in said if part)
    return text and f": {text}"


def _uri(uri: str) -> str:
    return plain_line(uri, most=_LONGEST_URI)


def _page(lines: Sequence[str], arguments: Mapping[str, Any], what: str) -> str:
    start = int(arguments.get("start", 0))
    shown = lines[start : start + _PAGE]
    if not shown:
        return f"There are {len(lines)} {what}, none from {start} on." if lines else f"There are no {what}."
    text = "\n".join(shown)
    left = len(lines) - start - len(shown)
    return f"{text}\n[{left} more: ask with start={start + len(shown)}]" if left else text


_START: Mapping[str, Any] = {
    "start": {
        "type": "integer",
        "minimum": 0,
        "default": 0,
        "description": f"How many to skip; {_PAGE} are shown at once.",
    }
}
_RESOURCES = (
    _Kind(
        "list_resources",
        "List the resources of the server {server}: addresses, names and descriptions.",
        _list_resources,
        _START,
    ),
    _Kind(
        "read_resource",
        "Read one resource of the server {server} by its address.",
        _read_resource,
        {"uri": {"type": "string", "minLength": 1, "description": "URI from list_resources or a tool."}},
        ("uri",),
    ),
)
_PROMPTS = (
    _Kind(
        "list_prompts",
        "List the prompts of the server {server}, with their purpose and arguments.",
        _list_prompts,
        _START,
    ),
    _Kind(
        "get_prompt",
        "Get one of the prompts of the server {server}, filled in.",
        _get_prompt,
        {
            "name": {"type": "string", "minLength": 1, "description": "Name from list_prompts."},
            "arguments": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Arguments by name.",
            },
        },
        ("name",),
    ),
)
