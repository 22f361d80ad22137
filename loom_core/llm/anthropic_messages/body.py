"""A request as the body of a call of the messages API."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loom_core.llm.anthropic_messages.conversation import wire_conversation
from loom_core.llm.anthropic_messages.output_schema import output_schema
from loom_core.llm.json_schema.dialects import adapted
from loom_core.llm.transport.parameters import granted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.llm.anthropic_messages.conversation import Conversation
    from loom_core.llm.interface import ChatRequest
    from loom_core.llm.spec import ProviderSpec
    from loom_core.llm.transport.parameters import Granted

__all__ = ["messages_body"]

_LONGEST_ANSWER = 32_000
"""Where nobody says a limit, and the API wants one: what all models since Claude 4 can write."""

_SMALLEST_BUDGET = 1024
_CHOICES_OF_FORMS = frozenset({"anyOf", "oneOf", "allOf"})


def messages_body(request: ChatRequest, spec: ProviderSpec, *, model: str) -> tuple[dict[str, Any], Granted]:
    """The fields of a request's body, to be `encoded`, and what of its wishes it says.

    What the vendor does not take is left out or said otherwise, as `ProviderSpec` tells. The fields of
    `ChatRequest.extra` replace those of the same name.

    Raises:
        InvalidInputError: the tool that is chosen is not there, or the conversation cannot be said.
    """
    schema = output_schema(request.output.schema) if request.output else None
    if schema is None:
        spec = _without_schemas(spec)
    conversation = wire_conversation(request.messages, spec, model=model, tools=bool(request.tools))
    limit = _LONGEST_ANSWER if request.max_tokens is None else request.max_tokens
    wishes, effort = _effort(request, spec, conversation, limit)
    if _cannot_drop_thoughts(spec, effort):
        spec = replace(spec, replay="never")
        conversation = wire_conversation(request.messages, spec, model=model, tools=bool(request.tools))
    body: dict[str, Any] = {"model": model, "max_tokens": limit, "messages": conversation.messages}
    if system := "\n\n".join(filter(None, (conversation.system, wishes.instructions))):
        body["system"] = system
    body |= _tools(request, spec, wishes, conversation)
    stop = [text for text in request.stop if text.strip()]  # it takes none of white space alone
    if stop and spec.stops:
        body["stop_sequences"] = stop
    if wishes.temperature is not None:
        body["temperature"] = wishes.temperature
    if wishes.top_p is not None:
        body["top_p"] = wishes.top_p
    body |= {**spec.body, **effort, **request.extra}
    if wishes.json_mode == "json_schema":
        format_ = {"type": "json_schema", "schema": schema}
        body["output_config"] = {"format": format_, **body.get("output_config", {})}
    return body, wishes


def _cannot_drop_thoughts(spec: ProviderSpec, effort: Mapping[str, Any]) -> bool:
    """Whether a thought that does not fit its place makes the request fail, as nothing can be said of it.

    A model that is told not to think needs none of its thoughts back.
    """
    said: Mapping[str, Any] = {**spec.body, **effort}.get("thinking", {})
    return "block_binding" in spec.body.get("thinking", {}) and "block_binding" not in said


def _without_schemas(spec: ProviderSpec) -> ProviderSpec:
    """The vendor, where the schema is told to the model, as the API cannot say it."""
    modes = {
        name: "prompt" for name in ("json_mode", "json_mode_thinking") if getattr(spec, name) == "json_schema"
    }
    return replace(spec, **modes) if modes else spec


def _effort(
    request: ChatRequest, spec: ProviderSpec, conversation: Conversation, limit: int
) -> tuple[Granted, Mapping[str, Any]]:
    """What is granted, and the fields that say how much the model is to think.

    A budget of thinking leaves half of the answer's tokens for the rest. Where that is not enough to think,
    and where a turn goes on that another model began, a model with a budget does not think.
    """
    wishes = granted(request, spec)
    fields: Mapping[str, Any] = spec.efforts[wishes.effort] if wishes.effort else {}
    thinking: Mapping[str, Any] = fields.get("thinking", {})
    if "budget_tokens" not in thinking:
        return wishes, fields
    budget = min(thinking["budget_tokens"], limit // 2)
    if budget >= _SMALLEST_BUDGET and not conversation.goes_on_without_thinking:
        return wishes, {**fields, "thinking": {**thinking, "budget_tokens": budget}}
    return granted(replace(request, effort="off"), spec), spec.efforts.get("off", {})


def _tools(
    request: ChatRequest, spec: ProviderSpec, wishes: Granted, conversation: Conversation
) -> dict[str, Any]:
    tools = [_tool(each.name, each.description, each.parameters, spec) for each in request.tools]
    if wishes.output_tool and request.output:
        tools.append(_tool(wishes.output_tool, request.output.description, request.output.schema, spec))
    choice = wishes.tool_choice
    if not tools:
        # A conversation with calls in it is refused without tools.
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in conversation.called]
        choice = "none"
    if not tools:
        return {}
    match choice:
        case "auto":
            return {"tools": tools}
        case "none":
            return {
                "tools": tools,
                **({"tool_choice": {"type": "none"}} if "none" in spec.tool_choices else {}),
            }
        case "required":
            return {"tools": tools, "tool_choice": {"type": "any"}}
        case name:
            return {"tools": tools, "tool_choice": {"type": "tool", "name": name}}


def _tool(name: str, description: str, schema: Mapping[str, Any], spec: ProviderSpec) -> dict[str, Any]:
    """A tool. The arguments as a whole have one form, as the API takes no choice of forms there."""
    form = {"type": "object", **adapted(schema, spec.schema)}
    tool = {"name": name, "input_schema": {key: form[key] for key in form if key not in _CHOICES_OF_FORMS}}
    return {**tool, "description": description} if description else tool
