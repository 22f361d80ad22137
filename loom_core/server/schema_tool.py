"""A tool whose arguments a JSON Schema describes, not a signature: such as one that a file defines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp_types import CallToolResult, ToolAnnotations
from mcp_types import Tool as ToolDefinition
from pydantic import BaseModel

from loom_core.server.tool import DESCRIPTION_BYTES, shaped
from loom_core.server.wellformed import well_formed
from loom_core.tools.schema import without_titles

if TYPE_CHECKING:
    from loom_core.server.caller import Scope
    from loom_core.server.context import ToolContext
    from loom_core.server.results import ToolReply

__all__ = ["SchemaFunction", "SchemaTool"]

_CUT = " …"

SchemaFunction: TypeAlias = "Callable[[dict[str, Any], ToolContext], Awaitable[ToolReply[BaseModel]]]"
"""Is given the arguments as they came, unchecked, and the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTool:
    """See above. Its function checks the arguments, as it may ask for what is missing.

    Attributes:
        name: how models call it; `[a-z][a-z0-9_]{0,39}`.
        title: how people call it.
        description: what it does; cut at 2 KB.
        input_schema: JSON Schema of its arguments, an object.
        output: the model of what it answers.
        function: does it.
        read_only: as for `LoomServer.tool`, and so the following.
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
        """What a caller needs to use it."""
        return "read" if self.read_only else "write"

    @property
    def worded(self) -> bool:
        """That its definition depends on what is there at the time of asking."""
        return True

    async def definition(self, _context: ToolContext) -> ToolDefinition:
        """What `tools/list` says of it."""
        schema: dict[str, Any] = {"type": "object", "properties": {}, **self.input_schema}
        return ToolDefinition(
            name=self.name,
            title=well_formed(self.title),
            description=_cut(well_formed(self.description)),
            input_schema=well_formed(schema),
            output_schema=without_titles(self.output.model_json_schema(mode="serialization")),
            annotations=ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=self.open_world,
            ),
        )

    async def call(self, given: dict[str, Any], context: ToolContext) -> CallToolResult:
        """Run the function and shape its reply.

        Raises:
            Exception: whatever the function raises.
        """
        return shaped(await self.function(given, context))


def _cut(description: str) -> str:
    whole = description.encode()
    if len(whole) <= DESCRIPTION_BYTES:
        return description
    return whole[: DESCRIPTION_BYTES - len(_CUT.encode())].decode(errors="ignore") + _CUT
