"""The conformance suite's server with the Tasks extension."""

from __future__ import annotations

from typing import Annotated

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from pydantic import BaseModel, Field

from loom_core.errors import InvalidInputError
from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.elicitation import ask
from loom_core.server.calls.tasks import TaskSupport, become_task
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.protocol.tools import ToolFunction


class Done(BaseModel):
    """Outcome of the work."""

    text: str


class Name(BaseModel):
    name: str


class Confirmation(BaseModel):
    confirm: bool


def register(server: LoomServer) -> None:
    """Add the fixtures."""
    _register_work(server)
    _register_questions(server)


def _register_work(server: LoomServer) -> None:
    async def greet(name: Annotated[str, Field(description="Whom to greet.")]) -> ToolReply[Done]:
        """Greets at once."""
        return _done(f"Hello, {name}!")

    async def slow_compute(
        seconds: Annotated[float, Field(description="How long it takes.", ge=0)],
        ctx: ToolContext,
        label: Annotated[str, Field(description="What it is called.")] = "",
    ) -> ToolReply[Done]:
        """Takes its time, as a task if it is any."""
        if seconds:
            await become_task(ctx, f"computing {label}")
            await anyio.sleep(seconds)
        return _done(f"computed {label} in {seconds:g} s")

    async def failing_job(ctx: ToolContext) -> ToolReply[Done]:
        """Fails as tools do."""
        await become_task(ctx, "failing")
        raise InvalidInputError("The job failed.", advice="It always does.")

    async def protocol_error_job(ctx: ToolContext) -> ToolReply[Done]:
        """Fails as no tool should."""
        await become_task(ctx, "failing")
        raise MCPError(INTERNAL_ERROR, "The job broke.")

    _add(server, greet, "none")
    _add(server, slow_compute, "optional")
    _add(server, failing_job, "required")
    _add(server, protocol_error_job, "optional")


def _register_questions(server: LoomServer) -> None:
    async def confirm_delete(
        filename: Annotated[str, Field(description="What to delete.")], ctx: ToolContext
    ) -> ToolReply[Done]:
        """Asks while it is a task."""
        await become_task(ctx, f"deleting {filename}")
        answer = await ask(ctx, f"Delete {filename}?", Confirmation, name="confirm")
        agreed = answer.value is not None and answer.value.confirm
        return _done(f"{filename}: {'deleted' if agreed else 'kept'}")

    async def multi_input(ctx: ToolContext) -> ToolReply[Done]:
        """Asks two questions at once while it is a task."""
        await become_task(ctx, "asking")
        names: list[str] = []

        async def ask_for(what: str) -> None:
            answer = await ask(ctx, f"What is the {what} name?", Name, name=what)
            names.append(answer.value.name if answer.value else answer.outcome)

        async with anyio.create_task_group() as questions:
            questions.start_soon(ask_for, "first")
            questions.start_soon(ask_for, "second")
        return _done(" and ".join(names))

    async def test_tool_with_task(ctx: ToolContext) -> ToolReply[Done]:
        """Asks first and then becomes a task."""
        answer = await ask(ctx, "What is your name?", Name, name="user_name")
        await become_task(ctx, "greeting")
        return _done(f"Hello, {answer.value.name if answer.value else answer.outcome}!")

    _add(server, confirm_delete, "optional")
    _add(server, multi_input, "optional")
    _add(server, test_tool_with_task, "required")


def _add(server: LoomServer, function: ToolFunction, task: TaskSupport) -> None:
    add = server.tool(
        title="Fixture", read_only=True, destructive=False, idempotent=True, open_world=False, task=task
    )
    add(function)


def _done(text: str) -> ToolReply[Done]:
    return tool_result(text, Done(text=text))
