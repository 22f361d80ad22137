"""Request body of the chat completions API: conversation, tools, and structured output.

Vendors agree on the format and differ in what they refuse. The conversation is what all of them accept: one
system message first, no empty messages, a result right after every call, ids and names of plain letters,
arguments that are JSON.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import InvalidInputError
from loom_core.llm.chat_completions.thinking import CAME_IN_TAGS, wrap_in_tags
from loom_core.llm.json_body import json_body
from loom_core.llm.json_schema.dialects import adapt_schema
from loom_core.llm.json_schema.strict import to_strict_schema
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.transport.parameters import map_parameters
from loom_core.llm.transport.replay import needs_filler, pair_tool_results, with_reasoning_to_replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.interface import ChatRequest, OutputSchema
    from loom_core.llm.messages import Message, ToolCallPart, UserPart
    from loom_core.llm.transport.parameters import SupportedParameters
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["chat_body", "safe_name", "wire_messages"]

_LIMIT_WHERE_NEEDED = 4096


def chat_body(
    request: ChatRequest, spec: ProviderSpec, *, model: str, stream: bool = False
) -> tuple[dict[str, Any], SupportedParameters]:
    """Return the fields of a request body, for `encode_body`, and the supported parameters.

    What the vendor does not support is left out or mapped, as `ProviderSpec` says; `ChatRequest.extra` has
    the last word, and its objects are merged into the existing ones.

    Raises:
        InvalidInputError: the chosen tool is missing, or the conversation cannot be expressed.
    """
    supported = map_parameters(request, spec)
    tools = _tools(request, spec, supported)
    messages = wire_messages(
        request.messages, spec, model=model, tools=bool(tools), instructions=supported.instructions
    )
    body: dict[str, Any] = {"model": model, "messages": messages, **tools}
    if request.output and (response_format := _response_format(request.output, spec, supported)):
        body["response_format"] = response_format
    limit = request.max_tokens
    if limit is not None or spec.max_tokens_required:
        body[spec.max_tokens_field] = _LIMIT_WHERE_NEEDED if limit is None else limit
    if supported.temperature is not None:
        body["temperature"] = supported.temperature
    if supported.top_p is not None:
        body["top_p"] = supported.top_p
    if request.stop and spec.stops:
        body["stop"] = list(request.stop)
    if stream:
        body["stream"] = True
        if spec.stream_usage:
            body["stream_options"] = {"include_usage": True}
    said_by_effort: Mapping[str, Any] = spec.efforts[supported.effort] if supported.effort else {}
    for more in (spec.body, said_by_effort, request.extra):
        body = _merge_fields(body, more)
    return body, supported


def _tools(request: ChatRequest, spec: ProviderSpec, supported: SupportedParameters) -> dict[str, Any]:
    """Return the fields `tools` and `tool_choice`."""
    choice = supported.tool_choice
    if choice == "none" and "none" not in spec.tool_choices:
        return {}
    tools = [
        _tool(tool.name, tool.description, adapt_schema(tool.parameters, spec.schema))
        for tool in request.tools
    ]
    if request.output and supported.output_tool:
        schema, exact = _output_schema(request.output, spec)
        about = request.output.description or "Give the answer."
        tools.append(_tool(supported.output_tool, about, schema, exact=exact))
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
    """Return a tool.

    The caller's tools are never `strict`: optional arguments would come as null, which tools do not expect.
    """
    function: dict[str, Any] = {"name": name, "parameters": parameters}
    if description:
        function["description"] = description
    if exact:
        function["strict"] = True
    return {"type": "function", "function": function}


def _response_format(
    output: OutputSchema, spec: ProviderSpec, supported: SupportedParameters
) -> dict[str, Any] | None:
    if supported.json_mode == "json_object":
        return {"type": "json_object"}
    if supported.json_mode != "json_schema":
        return None
    schema, exact = _output_schema(output, spec)
    named: dict[str, Any] = {"name": safe_name(output.name, otherwise="answer"), "schema": schema}
    if output.description:
        named["description"] = output.description
    if exact:
        named["strict"] = True
    return {"type": "json_schema", "json_schema": named}


def _output_schema(output: OutputSchema, spec: ProviderSpec) -> tuple[dict[str, Any], bool]:
    """Return the schema in the vendor's dialect, and whether it is strict."""
    exact = to_strict_schema(output.schema) if spec.strict_tools else None
    return (adapt_schema(output.schema, spec.schema), False) if exact is None else (exact, True)


def _merge_fields(fields: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Merge fields: objects in both are merged, for all else the later value counts."""
    both = dict(fields)
    for name, value in more.items():
        here = both.get(name)
        if isinstance(here, Mapping) and isinstance(value, Mapping):
            value = _merge_fields(cast("Mapping[str, Any]", here), cast("Mapping[str, Any]", value))
        both[name] = value
    return both


_SAFE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64

_NO_WORDS = "(empty)"
_NO_OUTPUT = "(no output)"
_IMAGE_FOLLOWS = "(an image: it follows in the next message)"
_IMAGE_UNSEEN = "(an image, which you cannot be shown)"
_TOOL_IMAGES = "Images from the tool results above:"


def wire_messages(
    messages: Sequence[Message],
    spec: ProviderSpec,
    *,
    model: str,
    tools: bool = False,
    instructions: str = "",
) -> list[dict[str, Any]]:
    """Convert a conversation to the `messages` of a request.

    Args:
        messages: the conversation, oldest first; `pair_tool_results` orders it, and reasoning goes back by
            `with_reasoning_to_replay`.
        spec: the vendor.
        model: the model, for errors.
        tools: whether the request carries tools.
        instructions: further instructions, as a system message or at the end of one.

    Raises:
        InvalidInputError: there are only system messages, or an image that the model does not support. In
            tool results such an image is replaced by a note.
    """
    wire: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    tool_images: list[dict[str, Any]] = []
    for message in with_reasoning_to_replay(pair_tool_results(messages), spec, tools=tools):
        if tool_images and not isinstance(message, ToolMessage):
            wire.append(_user_with_images(tool_images))
            tool_images = []
        match message:
            case SystemMessage(text=text):
                if text.strip():
                    wire.append({"role": "system", "content": text})
            case UserMessage():
                wire.append({"role": "user", "content": _user_content(message.parts, spec, model)})
            case AssistantMessage():
                ids |= _wire_ids(message, spec)
                if message.text.strip() or message.tool_calls:
                    wire.append(_assistant(message, ids, spec, tools=tools))
            case ToolMessage():
                content, images = _tool_content(message, spec, model)
                tool_images += images
                wire.append({"role": "tool", "tool_call_id": ids[message.call_id], "content": content})
    if tool_images:
        wire.append(_user_with_images(tool_images))
    if all(message["role"] == "system" for message in wire):
        raise InvalidInputError(
            "The conversation has no message that a model could answer.", advice="Add a user message."
        )
    return _merge_same_role(_place_system_messages(wire, spec, instructions))


def safe_name(name: str, *, otherwise: str) -> str:
    """Return a tool name that all vendors accept: models invent others, which vendors refuse later."""
    return _UNSAFE_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or otherwise


def _place_system_messages(
    wire: list[dict[str, Any]], spec: ProviderSpec, instructions: str
) -> list[dict[str, Any]]:
    """Place the system messages: where they were, or all in one message at the start."""
    more = [{"role": "system", "content": instructions}] if instructions else []
    if spec.systems:
        leading = next(place for place, message in enumerate(wire) if message["role"] != "system")
        return [*wire[:leading], *more, *wire[leading:]]
    texts = [message["content"] for message in (*wire, *more) if message["role"] == "system"]
    rest = [message for message in wire if message["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *rest] if texts else rest


def _merge_same_role(wire: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge consecutive messages of one role, which some models' chat templates refuse.

    Responses with calls or reasoning stay as they are: their extra fields belong to them alone.
    """
    done: list[dict[str, Any]] = []
    for message in wire:
        last = done[-1] if done else {}
        if message["role"] == last.get("role") == "user" or (
            message["role"] == last.get("role") == "assistant" and _is_plain(last) and _is_plain(message)
        ):
            done[-1] = {**last, "content": _join_content(last["content"], message["content"])}
        else:
            done.append(message)
    return done


def _is_plain(message: Mapping[str, Any]) -> bool:
    return not any(value for name, value in message.items() if name not in {"role", "content"})


def _join_content(first: object, second: object) -> object:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_blocks(first), *_as_blocks(second)]


def _as_blocks(content: object) -> list[object]:
    return [_text_block(content)] if isinstance(content, str) else cast("list[object]", content)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _user_content(parts: Sequence[UserPart], spec: ProviderSpec, model: str) -> str | list[dict[str, Any]]:
    """Return plain text, as some models take nothing else; a list of blocks if there are images."""
    if not any(isinstance(part, ImagePart) for part in parts):
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        return text if text.strip() else _NO_WORDS
    return [
        _text_block(part.text) if isinstance(part, TextPart) else _image_block(part, spec, model)
        for part in parts
        if isinstance(part, ImagePart) or part.text.strip()
    ]


def _image_block(image: ImagePart, spec: ProviderSpec, model: str) -> dict[str, Any]:
    if not spec.images:
        raise InvalidInputError(
            f"The model {model} of {spec.title} takes no images.",
            advice="Leave the image out, or ask a model that takes images.",
        )
    if image.data:
        url = f"data:{image.media_type};base64,{b64encode(image.data).decode()}"
    elif not image.url:
        raise InvalidInputError("An image of the conversation is empty.", advice="Give its bytes, or a URL.")
    elif not spec.image_urls:
        raise InvalidInputError(
            f"The model {model} of {spec.title} takes images as bytes, not by URL.",
            advice="Fetch the image, and give its bytes.",
        )
    else:
        url = image.url
    return {"type": "image_url", "image_url": {"url": url}}


def _tool_content(
    message: ToolMessage, spec: ProviderSpec, model: str
) -> tuple[str | list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a tool result, and the images that have to follow in a user message."""
    pieces: list[str] = []
    images: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            pieces.append(part.text)
        elif spec.images and (part.data or (part.url and spec.image_urls)):
            images.append(_image_block(part, spec, model))
            if not spec.tool_images:
                pieces.append(_IMAGE_FOLLOWS)
        else:
            pieces.append(_IMAGE_UNSEEN)
    text = "".join(pieces)
    if spec.tool_images and images:
        return [*([_text_block(text)] if text.strip() else []), *images], []
    return text if text.strip() else _NO_OUTPUT, images


def _user_with_images(images: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "user", "content": [_text_block(_TOOL_IMAGES), *images]}


def _wire_ids(message: AssistantMessage, spec: ProviderSpec) -> dict[str, str]:
    """Map the ids of a message's calls to ids that the vendor accepts.

    Its own ids stay. Other vendors' ids may be too long, or have other letters: such an id becomes a hash,
    which is the same in every request, so that the vendor's prompt cache stays valid.
    """
    own = message.provider == spec.name
    return {
        call.id: call.id if own or _SAFE_ID.fullmatch(call.id) else f"call_{_hash(call.id)}"
        for call in message.tool_calls
    }


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _assistant(
    message: AssistantMessage, ids: Mapping[str, str], spec: ProviderSpec, *, tools: bool
) -> dict[str, Any]:
    thoughts = "".join(
        part.text
        for part in message.parts
        if isinstance(part, ReasoningPart) and part.came_in == CAME_IN_TAGS
    )
    text = message.text if message.text.strip() else ""
    content = wrap_in_tags(thoughts) + text if thoughts and spec.think_tags else text
    wire: dict[str, Any] = {"role": "assistant", "content": content or None}
    wire |= _reasoning(message, spec, tools=tools)
    if message.tool_calls:
        wire["tool_calls"] = [
            _call(call, ids[call.id], _extras(message, number, spec))
            for number, call in enumerate(message.tool_calls)
        ]
    return wire


def _reasoning(message: AssistantMessage, spec: ProviderSpec, *, tools: bool) -> dict[str, Any]:
    """Return the reasoning fields of a message: opaque content as it came, else the text."""
    fields: dict[str, Any] = {}
    for part in message.parts:
        if not isinstance(part, ReasoningPart) or part.came_in == CAME_IN_TAGS:
            continue
        if opaque := {name: part.opaque[name] for name in spec.reasoning_fields if name in part.opaque}:
            fields |= opaque
        elif part.text and (name := _field_for(part, spec)):
            fields[name] = fields.get(name, "") + part.text
    filled = spec.replay_field or spec.reasoning_fields[0]
    if not fields.get(filled) and needs_filler(message, spec, tools=tools):
        fields[filled] = spec.replay_filler
    return fields


def _field_for(part: ReasoningPart, spec: ProviderSpec) -> str:
    """Return the field for reasoning: the vendor's, else the one it came in, if the vendor has it."""
    return spec.replay_field or (part.came_in if part.came_in in spec.reasoning_fields else "")


def _extras(message: AssistantMessage, number: int, spec: ProviderSpec) -> dict[str, Any]:
    """Return further fields of a call: those that came with it, or the vendor's filler.

    Vendors that sign calls sign the first one of an answer.
    """
    extras: dict[str, Any] = {}
    if message.provider == spec.name:
        opaque = message.tool_calls[number].opaque
        extras = {name: opaque[name] for name in spec.call_extras if name in opaque}
    return extras if extras or number > 0 else dict(spec.call_filler)


def _call(call: ToolCallPart, id_: str, extras: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": safe_name(call.name, otherwise="unnamed"), "arguments": _arguments(call)}
    return {**extras, "id": id_, "type": "function", "function": function}


def _arguments(call: ToolCallPart) -> str:
    """Return the arguments as JSON, also if they were none: many vendors parse them, and fail."""
    value = {"unreadable": call.unreadable} if call.unreadable else call.arguments
    return json.dumps(json_body(value), ensure_ascii=False)
