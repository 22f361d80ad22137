"""A request as the body of a chat-completions call, in the way the vendor wants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from loom_core.llm.chat_completions.conversation import safe_name, wire_messages
from loom_core.llm.json_schema.dialects import adapted
from loom_core.llm.json_schema.strict import strict
from loom_core.llm.transport.parameters import granted

if TYPE_CHECKING:
    from loom_core.llm.interface import ChatRequest, OutputSchema
    from loom_core.llm.spec import ProviderSpec
    from loom_core.llm.transport.parameters import Granted

__all__ = ["chat_body"]

_LIMIT_WHERE_NEEDED = 4096


def chat_body(
    request: ChatRequest, spec: ProviderSpec, *, model: str, stream: bool = False
) -> tuple[dict[str, Any], Granted]:
    """The fields of a request's body, to be `encoded`, and what of its wishes it says.

    What the vendor does not take is left out or said otherwise, as `ProviderSpec` tells; `ChatRequest.extra`
    has the last word, objects in it being put into those that are there.

    Raises:
        InvalidInputError: the tool that is chosen is not there, or the conversation cannot be said.
    """
    wishes = granted(request, spec)
    tools = _tools(request, spec, wishes)
    messages = wire_messages(
        request.messages, spec, model=model, tools=bool(tools), instructions=wishes.instructions
    )
    body: dict[str, Any] = {"model": model, "messages": messages, **tools}
    if request.output and (response_format := _response_format(request.output, spec, wishes)):
        body["response_format"] = response_format
    limit = request.max_tokens
    if limit is not None or spec.max_tokens_required:
        body[spec.max_tokens_field] = _LIMIT_WHERE_NEEDED if limit is None else limit
    if wishes.temperature is not None:
        body["temperature"] = wishes.temperature
    if wishes.top_p is not None:
        body["top_p"] = wishes.top_p
    if request.stop and spec.stops:
        body["stop"] = list(request.stop)
    if stream:
        body["stream"] = True
        if spec.stream_usage:
            body["stream_options"] = {"include_usage": True}
    said_by_effort: Mapping[str, Any] = spec.efforts[wishes.effort] if wishes.effort else {}
    for more in (spec.body, said_by_effort, request.extra):
        body = _with(body, more)
    return body, wishes


def _tools(request: ChatRequest, spec: ProviderSpec, wishes: Granted) -> dict[str, Any]:
    """The fields that say what may be called, and what has to be."""
    choice = wishes.tool_choice
    if choice == "none" and "none" not in spec.tool_choices:
        return {}
    tools = [
        _tool(tool.name, tool.description, adapted(tool.parameters, spec.schema)) for tool in request.tools
    ]
    if request.output and wishes.output_tool:
        schema, exact = _output_schema(request.output, spec)
        about = request.output.description or "Give the answer."
        tools.append(_tool(wishes.output_tool, about, schema, exact=exact))
    if not tools:
        return {}
    if choice == "auto":
        return {"tools": tools}
    if choice not in {"none", "required"}:
        return {"tools": tools, "tool_choice": {"type": "function", "function": {"name": choice}}}
    return {"tools": tools, "tool_choice": choice}


def _tool(
    name: str, description: str, parameters: Mapping[str, Any], *, exact: bool = False
) -> dict[str, Any]:
    """A tool.

    Those of the caller are never `strict`: optional arguments would come as null, which tools do not expect.
    """
    function: dict[str, Any] = {"name": name, "parameters": parameters}
    if description:
        function["description"] = description
    if exact:
        function["strict"] = True
    return {"type": "function", "function": function}


def _response_format(output: OutputSchema, spec: ProviderSpec, wishes: Granted) -> dict[str, Any] | None:
    if wishes.json_mode == "json_object":
        return {"type": "json_object"}
    if wishes.json_mode != "json_schema":
        return None
    schema, exact = _output_schema(output, spec)
    named: dict[str, Any] = {"name": safe_name(output.name, otherwise="answer"), "schema": schema}
    if output.description:
        named["description"] = output.description
    if exact:
        named["strict"] = True
    return {"type": "json_schema", "json_schema": named}


def _output_schema(output: OutputSchema, spec: ProviderSpec) -> tuple[dict[str, Any], bool]:
    """The schema as the vendor takes it, and whether that is its strict form."""
    exact = strict(output.schema) if spec.strict_tools else None
    return (adapted(output.schema, spec.schema), False) if exact is None else (exact, True)


def _with(fields: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with more of them; objects in both are put together, of all else the later counts."""
    both = dict(fields)
    for name, value in more.items():
        here = both.get(name)
        if isinstance(here, Mapping) and isinstance(value, Mapping):
            value = _with(cast("Mapping[str, Any]", here), cast("Mapping[str, Any]", value))
        both[name] = value
    return both
