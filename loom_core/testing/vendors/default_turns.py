"""What a fake model says where nobody wrote a script: something that follows from the request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from loom_core.testing.vendors.example_values import example_value
from loom_core.testing.vendors.json_fields import Json, mapping, mappings
from loom_core.testing.vendors.script import Call, Tokens, Turn

__all__ = ["Asked", "asked_by_anthropic", "asked_by_chat", "default_turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What counts of a request.

    Attributes:
        text: the last message's.
        answered: whether that message answers tool calls.
        tools: names and schemas of arguments of the tools.
        choice: `auto`, `none`, `required`, or the name of a tool.
        schema: what the answer has to be; None for any text.
        thinks: whether the model thinks and lets others see it.
        size: of the request, in characters.
    """

    text: str
    answered: bool
    tools: Mapping[str, Json]
    choice: str
    schema: Json | None
    thinks: bool
    size: int


def asked_by_chat(body: Json, *, thinks: bool) -> Asked:
    """What a chat-completions request asks."""
    last = mappings(body, "messages")[-1]
    choice: Any = body.get("tool_choice") or "auto"
    format_ = mapping(body, "response_format")
    schema: Json | None = None
    if format_.get("type") == "json_schema":
        schema = format_["json_schema"]["schema"]
    elif format_.get("type") == "json_object":
        schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    return Asked(
        text=_text(last.get("content")),
        answered=last["role"] == "tool",
        tools={
            tool["function"]["name"]: tool["function"].get("parameters") or {}
            for tool in mappings(body, "tools")
        },
        choice=choice if isinstance(choice, str) else choice["function"]["name"],
        schema=schema,
        thinks=thinks,
        size=len(str(body["messages"])),
    )


def asked_by_anthropic(body: Json, *, thinks: bool) -> Asked:
    """What a request of Anthropic's format asks."""
    last = mappings(body, "messages")[-1]
    content = last["content"]
    blocks = [] if isinstance(content, str) else mappings(last, "content")
    results = [block for block in blocks if block["type"] == "tool_result"]
    choice = mapping(body, "tool_choice") or {"type": "auto"}
    format_ = mapping(mapping(body, "output_config"), "format")
    return Asked(
        text=_text([*({"text": _text(result.get("content"))} for result in results), *blocks] or content),
        answered=bool(results),
        tools={tool["name"]: tool["input_schema"] for tool in mappings(body, "tools")},
        choice={"any": "required", "tool": choice.get("name", "")}.get(choice["type"], choice["type"]),
        schema=format_.get("schema"),
        thinks=thinks,
        size=len(str(body["messages"])),
    )


def default_turn(asked: Asked) -> Turn:
    """Calls the tool that has to be called, or the first if a user spoke last; else repeats what was said."""
    usage = Tokens(
        input=asked.size // 4 + 1, output=len(asked.text) // 4 + 8, reasoning=4 if asked.thinks else 0
    )
    reasoning = f"They say: {asked.text[:40]}" if asked.thinks else ""
    if asked.tools and asked.choice != "none" and not (asked.answered and asked.choice == "auto"):
        name = asked.choice if asked.choice in asked.tools else next(iter(asked.tools))
        arguments = cast("Json", example_value(asked.tools[name], asked.text))
        return Turn(reasoning=reasoning, calls=(Call(name, arguments),), usage=usage)
    if asked.schema is not None:
        value = example_value(asked.schema, asked.text)
        return Turn(text=json.dumps(value, ensure_ascii=False), reasoning=reasoning, usage=usage)
    heard = "The tools say" if asked.answered else "You say"
    return Turn(text=f"{heard}: {asked.text}", reasoning=reasoning, usage=usage)


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in cast("list[Json]", content or []))
