"""Which requests of the chat-completions format a vendor takes: what holds for all, and their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import cast

from loom_core.testing.vendors.chat_messages import check_messages
from loom_core.testing.vendors.chat_quirks import QUIRKS
from loom_core.testing.vendors.chat_thinking import thinks
from loom_core.testing.vendors.chat_vendors import ChatVendor, fits
from loom_core.testing.vendors.json_fields import Json, mapping, mappings
from loom_core.testing.vendors.json_schema_rules import check_gemini, check_inline
from loom_core.testing.vendors.memory import Memory
from loom_core.testing.vendors.refusal import Refused

__all__ = ["check_chat"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_chat(vendor: ChatVendor, body: Json, memory: Memory) -> None:
    """Refuse what the vendor refuses.

    Raises:
        Refused: with the vendor's status and code.
    """
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise Refused("you must provide a model parameter", param="model")
    if not fits(model, vendor.models):
        raise Refused(f"The model `{model}` does not exist.", status=404, param="model")
    if vendor.body_fields is not None and (unknown := sorted(set(body) - vendor.body_fields)):
        raise Refused(
            f"Unknown parameter: '{unknown[0]}'.", openai_code="unknown_parameter", param=unknown[0]
        )
    _check_limits(vendor, body)
    check_messages(vendor, model, mappings(body, "messages"))
    thinking = thinks(vendor.name, body)
    _check_tools(vendor, body, thinking=thinking)
    _check_format(vendor, body, thinking=thinking)
    for quirk in QUIRKS.get(vendor.name, ()):
        quirk(body, thinking, memory)


def _check_limits(vendor: ChatVendor, body: Json) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        if name not in body:
            continue
        if name not in vendor.token_fields:
            raise Refused(f"Unknown parameter: '{name}'.", param=name)
        if type(body[name]) is not int or body[name] < 1:
            raise Refused(f"Invalid '{name}': must be a positive integer.", param=name)
    if {"max_tokens", "max_completion_tokens"} <= body.keys():
        raise Refused("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    if type(body.get("stream", False)) is not bool:
        raise Refused("Invalid type for 'stream': expected a boolean.", param="stream")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Refused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    temperature = body.get("temperature")
    if temperature is not None and not 0 <= temperature <= 2:
        raise Refused("Invalid 'temperature': must be between 0 and 2.", param="temperature")
    stop: object = body.get("stop")
    stops = [stop] if isinstance(stop, str) else cast("list[object]", stop or [])
    if len(stops) > 4 or not all(isinstance(text, str) and text for text in stops):
        raise Refused("Invalid 'stop': up to 4 texts that are not empty.", param="stop")


def _check_tools(vendor: ChatVendor, body: Json, *, thinking: bool) -> None:
    tools, choice = mappings(body, "tools"), body.get("tool_choice")
    if "tools" not in body:
        if choice is not None:
            raise Refused("'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
        return
    if not tools:
        raise Refused("Invalid 'tools': empty array.", openai_code="empty_array", param="tools")
    names: set[str] = set()
    for tool in tools:
        names.add(_check_tool(vendor, tool, names))
    _check_choice(vendor, cast("str", body["model"]), choice, names, thinking=thinking)


def _check_tool(vendor: ChatVendor, tool: Json, names: set[str]) -> str:
    function = mapping(tool, "function")
    name = function.get("name")
    if tool.get("type") != "function" or not isinstance(name, str):
        raise Refused("Missing required parameter: 'tools[0].function.name'.", param="tools")
    if not _NAME.fullmatch(name):
        raise Refused(
            f"Invalid 'tools[0].function.name': {name!r} does not match '^[a-zA-Z0-9_-]+$' of 64 characters.",
            openai_code="invalid_value",
            param="tools[0].function.name",
        )
    if name in names:
        raise Refused(f"Tool names must be unique: {name!r}.", param="tools")
    parameters = mapping(function, "parameters")
    if "parameters" in function and parameters.get("type") != "object":
        raise Refused(
            f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"'.",
            openai_code="invalid_function_parameters",
            param="tools[0].function.parameters",
        )
    _check_schema(vendor, parameters)
    return name


def _check_choice(vendor: ChatVendor, model: str, choice: object, names: set[str], *, thinking: bool) -> None:
    kind = choice if isinstance(choice, str) else "auto"
    if isinstance(choice, Mapping):
        kind = "named"
        chosen = mapping(cast("Json", choice), "function").get("name")
        if chosen not in names:
            raise Refused(f"Tool choice {chosen!r} not found in 'tools' parameter.", param="tool_choice")
    allowed = vendor.tool_choices
    if thinking and vendor.tool_choices_thinking is not None:
        allowed = vendor.tool_choices_thinking
    if kind not in allowed:
        raise Refused(
            f"The tool_choice parameter does not support being set to {kind} here"
            + (" in thinking mode." if thinking else "."),
            param="tool_choice",
        )
    if kind == "auto" and not fits(model, vendor.tool_parser):
        raise Refused(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        )


def _check_format(vendor: ChatVendor, body: Json, *, thinking: bool) -> None:
    if body.get("response_format") is None:
        return
    format_ = mapping(body, "response_format")
    kind = format_.get("type")
    allowed = vendor.formats
    if thinking and vendor.formats_thinking is not None:
        allowed = vendor.formats_thinking
    if kind not in allowed:
        raise Refused(f"This response_format type is unavailable now: {kind!r}.", param="response_format")
    if kind == "json_object" and vendor.json_word:
        said = json.dumps(body["messages"], ensure_ascii=False).casefold()
        if "json" not in said:
            raise Refused(
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type "
                "'json_object'.",
                param="messages",
            )
    if kind == "json_schema":
        inner = mapping(format_, "json_schema")
        name, schema = inner.get("name"), mapping(inner, "schema")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Refused(
                "Missing required parameter: 'response_format.json_schema.name'.", param="response_format"
            )
        if not schema:
            raise Refused(
                "Missing required parameter: 'response_format.json_schema.schema'.", param="response_format"
            )
        _check_schema(vendor, schema)


def _check_schema(vendor: ChatVendor, schema: Json) -> None:
    if vendor.schema == "inline":
        check_inline(schema)
    elif vendor.schema == "gemini":
        check_gemini(schema)
