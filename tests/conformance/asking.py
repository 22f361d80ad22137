"""The conformance suite's server that asks: its user, the client's model, its roots."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from mcp.server import ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

from loom_core.server.calls.context import ToolContext
from loom_core.server.calls.elicitation import ask
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.prompts import PromptMessage
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.protocol.tools import ToolFunction

_DEADLINE = 20.0


class Said(BaseModel):
    """Outcome of a question."""

    text: str


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Confirmation(BaseModel):
    ok: bool


class Context(BaseModel):
    context: str


class Person(BaseModel):
    """A default of each kind (SEP-1034)."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


# Every kind of choice (SEP-1330), among them one that no type of Python gives: `enumNames` is deprecated.
_CHOICES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [
                {"const": "value1", "title": "First Option"},
                {"const": "value2", "title": "Second Option"},
                {"const": "value3", "title": "Third Option"},
            ],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"const": "value1", "title": "First Choice"},
                    {"const": "value2", "title": "Second Choice"},
                    {"const": "value3", "title": "Third Choice"},
                ]
            },
        },
    },
}


# Two names of the suite are longer than a tool's may be with us.
_SHORT = {
    "test_input_required_result_multiple_inputs": "test_multiple_inputs",
    "test_input_required_result_tampered_state": "test_tampered_state",
}


def register(server: LoomServer) -> None:
    """Add the fixtures."""
    server.protocol.middleware.append(_shortened)
    _register_questions(server)
    _register_requests(server)
    _register_rounds(server)


def _register_questions(server: LoomServer) -> None:
    @_fixture(server)
    async def test_elicitation(
        message: Annotated[str, Field(description="The question.")], ctx: ToolContext
    ) -> ToolReply[Said]:
        """Asks the user."""
        answer = await ask(ctx, message, Name, deadline=_DEADLINE)
        return _said(f"User response: action={answer.outcome}, content={_shown(answer.value)}")

    @_fixture(server)
    async def test_elicitation_sep1034_defaults(ctx: ToolContext) -> ToolReply[Said]:
        """Asks with a default of each kind."""
        answer = await ask(ctx, "Please check your details.", Person, deadline=_DEADLINE)
        return _said(f"Elicitation completed: action={answer.outcome}, content={_shown(answer.value)}")

    @_fixture(server)
    async def test_elicitation_sep1330_enums(ctx: ToolContext) -> ToolReply[Said]:
        """Asks with a choice of each kind."""
        request = ElicitRequest(
            params=ElicitRequestFormParams(message="Please choose.", requested_schema=_CHOICES)
        )
        answer = (await ctx.client_input.fetch({"choices": request}, deadline=_DEADLINE))["choices"]
        assert isinstance(answer, ElicitResult)
        return _said(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}")

    @server.prompt(title="Ask for context")
    async def test_input_required_result_prompt(ctx: ToolContext) -> Sequence[PromptMessage]:
        """A prompt that asks the user what it needs."""
        answer = await ask(ctx, "What context should the prompt use?", Context, name="user_context")
        used = answer.value.context if answer.value else "none"
        return [PromptMessage(f"Use this context: {used}")]


def _register_requests(server: LoomServer) -> None:
    @_fixture(server)
    async def test_sampling(
        prompt: Annotated[str, Field(description="What the client's model is asked.")], ctx: ToolContext
    ) -> ToolReply[Said]:
        """Asks the client's model."""
        ctx.require("sampling")
        return _said(f"LLM response: {await _sampled(ctx, 'answer', prompt, 100)}")

    @_fixture(server)
    async def test_missing_capability(ctx: ToolContext) -> ToolReply[Said]:
        """Can do nothing without the client's model."""
        ctx.require("sampling")
        return _said("The client has declared what is needed.")

    @_fixture(server)
    async def test_input_required_result_sampling(ctx: ToolContext) -> ToolReply[Said]:
        """Asks the client's model in a round trip."""
        return _said(await _sampled(ctx, "capital_question", "What is the capital of France?", 100))

    @_fixture(server)
    async def test_input_required_result_list_roots(ctx: ToolContext) -> ToolReply[Said]:
        """Asks for the client's roots in a round trip."""
        responses = await ctx.client_input.fetch({"client_roots": ListRootsRequest()}, deadline=_DEADLINE)
        return _said(f"Roots: {_roots(responses)}")

    @_fixture(server)
    async def test_multiple_inputs(ctx: ToolContext) -> ToolReply[Said]:
        """Asks for three things at once."""
        requests: dict[str, InputRequest] = {
            "user_name": ElicitRequest(
                params=ElicitRequestFormParams(
                    message="What is your name?",
                    requested_schema={
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                    },
                )
            ),
            "greeting": _sampling("Generate a greeting", 50),
            "client_roots": ListRootsRequest(),
        }
        responses = await ctx.client_input.fetch(requests, deadline=_DEADLINE)
        name = responses["user_name"]
        assert isinstance(name, ElicitResult)
        return _said(f"{_text(responses['greeting'])} {name.content} {_roots(responses)}")

    @_fixture(server)
    async def test_input_required_result_capabilities(ctx: ToolContext) -> ToolReply[Said]:
        """Asks for what the client can give, and nothing else."""
        answer = await ask(ctx, "What is your name?", Name, name="user_name")
        told = [] if answer.value is None else [answer.value.name]
        if ctx.can("sampling"):
            told.append(await _sampled(ctx, "greeting", "Generate a greeting", 50))
        return _said(" ".join(told) or "The client can give nothing.")


def _register_rounds(server: LoomServer) -> None:
    @_fixture(server)
    async def test_input_required_result_elicitation(ctx: ToolContext) -> ToolReply[Said]:
        """Asks for a name in a round trip."""
        answer = await ask(ctx, "What is your name?", Name, name="user_name")
        return _said(f"Hello, {answer.value.name}!" if answer.value else answer.outcome)

    @_fixture(server)
    async def test_input_required_result_request_state(ctx: ToolContext) -> ToolReply[Said]:
        """Asks for a confirmation, with a state."""
        answer = await ask(ctx, "Please confirm", Confirmation, name="confirm")
        return _said(f"state-ok: {answer.outcome}")

    @_fixture(server)
    async def test_tampered_state(ctx: ToolContext) -> ToolReply[Said]:
        """Asks for a confirmation, with a state that must come back as it was."""
        answer = await ask(ctx, "Please confirm", Confirmation, name="confirm")
        return _said(answer.outcome)

    @_fixture(server)
    async def test_input_required_result_multi_round(ctx: ToolContext) -> ToolReply[Said]:
        """Asks two questions, one after the other."""
        name = await ask(ctx, "Step 1: What is your name?", Name, name="step1")
        color = await ask(ctx, "Step 2: What is your favorite color?", Color, name="step2")
        return _said(f"{_shown(name.value)} {_shown(color.value)}")


async def _shortened(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware that lets the suite call tools by its names."""
    if ctx.method == "tools/call" and ctx.params and (short := _SHORT.get(ctx.params.get("name", ""))):
        ctx = replace(ctx, params={**ctx.params, "name": short})
    return await call_next(ctx)


def _fixture(server: LoomServer) -> Callable[[ToolFunction], ToolFunction]:
    return server.tool(title="Fixture", read_only=True, destructive=False, idempotent=True, open_world=False)


def _said(text: str) -> ToolReply[Said]:
    return tool_result(text, Said(text=text))


def _shown(value: BaseModel | None) -> str:
    return "{}" if value is None else value.model_dump_json()


def _sampling(prompt: str, tokens: int) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(text=prompt))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=tokens))


async def _sampled(ctx: ToolContext, name: str, prompt: str, tokens: int) -> str:
    responses = await ctx.client_input.fetch({name: _sampling(prompt, tokens)}, deadline=_DEADLINE)
    return _text(responses[name])


def _text(response: object) -> str:
    assert isinstance(response, CreateMessageResult)
    return response.content.text if isinstance(response.content, TextContent) else response.content.type


def _roots(responses: Mapping[str, object]) -> str:
    found = responses["client_roots"]
    assert isinstance(found, ListRootsResult)
    return ", ".join(str(root.uri) for root in found.roots)
