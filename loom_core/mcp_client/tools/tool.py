"""Adapter of a server's tool to Loom's `Tool`."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from loom_core.errors import InvalidInputError, LoomError
from loom_core.mcp_client.connections.sanitization import plain, plain_line, plain_schema
from loom_core.mcp_client.tools.output import call_output
from loom_core.mcp_client.tools.pins import definition_hash, pin_of
from loom_core.tools.arguments import ToolArguments
from loom_core.tools.failures import failure_of
from loom_core.tools.interface import CallContext, Tool, ToolAnnotations, ToolFailure, ToolOutput
from loom_core.tools.names import display_name, wire_name
from loom_core.tools.schemas.check import SchemaCheck
from loom_core.tools.schemas.form import schema_problem

if TYPE_CHECKING:
    import mcp_types
    from pydantic import BaseModel

    from loom_core.mcp_client.configuration.trust import ToolPin
    from loom_core.mcp_client.connections.connection import ServerConnection
    from loom_core.mcp_client.tools.pins import Approvals
    from loom_core.mcp_client.tools.result_cache import ResultCache

__all__ = ["MCPTool", "ServerTool", "ToolEnvironment", "effective_annotations"]

_log = logging.getLogger(__name__)


class ToolEnvironment(Protocol):
    """Environment of a server's tool; see `ServerTools`."""

    @property
    def connection(self) -> ServerConnection:
        """The server."""
        ...

    @property
    def approvals(self) -> Approvals:
        """The user's approvals."""
        ...

    @property
    def cache(self) -> ResultCache:
        """Cache of results."""
        ...

    def refusal(self, tool: ServerTool) -> str:
        """Say why a tool must not be called now, with advice; empty if it may."""
        ...


class ServerTool(Tool):
    """A tool that a server has, or that Loom offers for a server.

    Attributes:
        server: the server's id in the configuration.
        own_name: the server's own name for it.
    """

    def __init__(self, own_name: str, home: ToolEnvironment) -> None:
        self.server = home.connection.name
        self.own_name = own_name
        self._home = home
        self._name = display_name(self.server, plain_line(own_name))
        self._wire_name = wire_name(self.server, own_name)

    @property
    def name(self) -> str:
        """`server:tool`."""
        return self._name

    @property
    def wire_name(self) -> str:
        """`server__tool` where that is possible; see `names.wire_name`."""
        return self._wire_name

    @property
    def needs_seconds(self) -> float:
        """Infinite: the connection has its own timeout, with a limited number of restarts."""
        return math.inf

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        """Check the arguments and ask the server; see `Tool.call`."""
        if refusal := self._home.refusal(self):
            return self._to_failure(refusal)
        try:
            return await self._run(arguments, context or CallContext())
        except LoomError as error:
            return self._to_failure(str(error), failure_of(error, whole_call=True))

    @abstractmethod
    async def _run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        """Run it.

        Raises:
            LoomError: the arguments are wrong, or the server gives no answer.
        """

    def _to_failure(self, text: str, failure: ToolFailure | None = None) -> ToolOutput:
        about = {"server": self.server}
        return ToolOutput(plain(text, most=8000), is_error=True, metadata=about, failure=failure)


class MCPTool(ServerTool):
    """A tool of a server.

    Texts of its definition are sanitized, and truncated at 2 KB. Its annotations count for a trusted server
    only (see `effective_annotations`). Structured data of a result that violates the tool's own schema is
    left out, with a warning; its text stays.

    Attributes:
        digest: hash of its definition.
    """

    def __init__(self, definition: mcp_types.Tool, home: ToolEnvironment, *, digest: str) -> None:
        super().__init__(definition.name, home)
        self.digest = digest
        self._definition = definition
        self._title = plain_line(_title(definition))
        self._description = plain(definition.description or "")
        self._schema: Mapping[str, Any] = {
            "type": "object",
            "properties": {},
            **plain_schema(definition.input_schema),
        }
        self._annotations = effective_annotations(
            definition.annotations, trusted=home.connection.config.trusted
        )
        self._arguments = ToolArguments(self.name, definition.input_schema)
        self._fingerprint = (
            definition_hash(definition, words=False) if home.connection.config.trusted else digest
        )
        self._results = _output_check(definition.output_schema)
        self._model: type[BaseModel] | None = None

    @property
    def title(self) -> str:
        """The server's title of the tool for people; its name if there is no title."""
        return self._title or plain_line(self.own_name)

    @property
    def description(self) -> str:
        """The server's description of the tool, sanitized; its title if there is none."""
        return self._description or self.title

    @property
    def args_schema(self) -> Mapping[str, Any]:
        """The server's schema, of type `object`, with sanitized descriptions."""
        return self._schema

    @property
    def args_model(self) -> type[BaseModel]:
        """A Pydantic model of the arguments, for programs; see `schema_model`."""
        if self._model is None:
            from loom_core.mcp_client.tools.schema_model import schema_model

            self._model = schema_model(self.name, self._definition.input_schema)
        return self._model

    @property
    def annotations(self) -> ToolAnnotations:
        """Effects of a call, as far as the server is trusted."""
        return self._annotations

    @property
    def claimed(self) -> ToolAnnotations:
        """Effects of a call as the server claims them, for display only."""
        return effective_annotations(self._definition.annotations, trusted=True)

    @property
    def fingerprint(self) -> str:
        """Hash of the definition for approvals; for a trusted server, without its texts."""
        return self._fingerprint

    @property
    def approval_reason(self) -> str:
        """Reason why it needs an approval: never approved, or changed since; else empty."""
        return self._home.approvals.reason(self.server, self.own_name, self.fingerprint)

    @property
    def keeps_approval(self) -> bool:
        """Whether an approval holds until the tool's definition changes."""
        return True

    @property
    def is_trusted(self) -> bool:
        """Whether the operator trusts its server."""
        return self._home.connection.config.trusted

    @property
    def approval_advice(self) -> str:
        """The command that approves it."""
        return f"An operator approves it by {self._home.approvals.command(self.name)}."

    @property
    def pin(self) -> ToolPin:
        """Pin of its current definition, to store when it is approved."""
        return pin_of(self._definition, digest=self.fingerprint)

    async def approve(self) -> None:
        """Record the approval of its current definition, for all processes of this home.

        Raises:
            ConfigError: `trust.json` cannot be read or written.
            StoreBusyError: another process writes it.
        """
        await self._home.approvals.approve(self.server, {self.own_name: self.pin})

    def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments, validated and corrected by the schema that the server sent."""
        return self._arguments.validate(arguments)

    async def abandon(self, *, context: CallContext) -> None:
        """Cancel the task that a call has become; see `Tool.abandon`."""
        if context.task_id:
            await self._home.connection.cancel_task(context.task_id)

    async def _run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        checked = self._arguments.validate(arguments)
        key = (self.server, self.digest)
        if self.annotations.read_only and (kept := self._home.cache.get(key, checked)) is not None:
            return kept
        begun = perf_counter()
        if context.task_id:
            result = await self._home.connection.wait_for_task(
                context.task_id,
                self.own_name,
                seconds=context.seconds,
                progress=context.progress,
                ask=context.ask,
            )
        else:
            result = await self._home.connection.call_tool(
                self.own_name,
                checked,
                seconds=context.seconds,
                repeatable=self.annotations.repeatable,
                progress=context.progress,
                ask=context.ask,
                depth=context.depth,
                keep_task=context.keep_task,
            )
        output = call_output(result, server=self.server, seconds=perf_counter() - begun)
        if problem := self._result_problem(result):
            _log.warning("the data that %s answers with is left out: %s", self.name, problem)
            warning = f"Its structured data is left out: {problem}"
            output = replace(output, structured=None, warnings=(warning,))
        if self.annotations.read_only:
            self._home.cache.put(key, checked, output, ttl_ms=_ttl_ms(result))
        return output

    def _result_problem(self, result: mcp_types.CallToolResult) -> str:
        """Describe how an answer's data violates the tool's output schema; empty if it does not."""
        if self._results is None or result.structured_content is None or result.is_error:
            return ""
        try:
            errors = self._results.errors(result.structured_content)
        except InvalidInputError as error:
            return error.message
        return plain_line(errors[0].message, most=200) if errors else ""


def _output_check(schema: Mapping[str, Any] | None) -> SchemaCheck | None:
    """Build the check of a tool's results; None if the tool has no usable output schema."""
    usable = schema is not None and not schema_problem({"properties": {"result": schema}})
    return SchemaCheck(schema) if schema is not None and usable else None


def effective_annotations(given: mcp_types.ToolAnnotations | None, *, trusted: bool) -> ToolAnnotations:
    """Return the effective annotations of a server's tool.

    For an untrusted server its annotations are ignored, and the worst is assumed, so it cannot make its tools
    look harmless. For a trusted one they count; if a tool is marked as read-only and as destructive, it
    counts as destructive.
    """
    if given is None or not trusted:
        return ToolAnnotations()
    read_only = given.read_only_hint is True and given.destructive_hint is not True
    return ToolAnnotations(
        read_only=read_only,
        destructive=given.destructive_hint is not False and not read_only,
        idempotent=given.idempotent_hint is True,
        open_world=given.open_world_hint is not False,
    )


def _title(definition: mcp_types.Tool) -> str:
    return definition.title or (definition.annotations and definition.annotations.title) or ""


def _ttl_ms(result: mcp_types.CallToolResult) -> int:
    """Return the TTL of a result in milliseconds, if the server gives one."""
    ttl = (result.meta or {}).get("ttlMs")
    return ttl if isinstance(ttl, int) and not isinstance(ttl, bool) else 0
