"""Request body of Anthropic's Messages API: conversation, tools, and structured output.

The conversation fits the API: alternating roles, the user first and last, tool results before the user's
text, no empty texts, ids and names of plain letters, arguments that are an object.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.dialects import adapt_schema
from loom_core.llm.json_schema.strict import to_strict_schema
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.transport.parameters import map_parameters
from loom_core.llm.transport.replay import needs_filler, pair_tool_results, with_reasoning_to_replay

if TYPE_CHECKING:
    from loom_core.llm.interface import ChatRequest
    from loom_core.llm.messages import AssistantPart, Message, UserPart
    from loom_core.llm.transport.parameters import SupportedParameters
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["Conversation", "messages_body", "output_schema", "safe_name", "wire_conversation"]

_LONGEST_ANSWER = 32_000
"""Default limit, as the API requires one: all models since Claude 4 can write this many tokens."""

_SMALLEST_BUDGET = 1024
_CHOICES_OF_FORMS = frozenset({"anyOf", "oneOf", "allOf"})


def messages_body(
    request: ChatRequest, spec: ProviderSpec, *, model: str
) -> tuple[dict[str, Any], SupportedParameters]:
    """Return the fields of a request body, for `encode_body`, and the supported parameters.

    What the vendor does not support is left out or mapped, as `ProviderSpec` says. The fields of
    `ChatRequest.extra` replace those of the same name.

    Raises:
        InvalidInputError: the chosen tool is missing, or the conversation cannot be expressed.
    """
    schema = output_schema(request.output.schema) if request.output else None
    if schema is None:
        spec = _with_schema_in_prompt(spec)
    conversation = wire_conversation(request.messages, spec, model=model, tools=bool(request.tools))
    limit = _LONGEST_ANSWER if request.max_tokens is None else request.max_tokens
    supported, effort = _effort(request, spec, conversation, limit)
    if _cannot_drop_thoughts(spec, effort):
        spec = replace(spec, replay="never")
        conversation = wire_conversation(request.messages, spec, model=model, tools=bool(request.tools))
    body: dict[str, Any] = {"model": model, "max_tokens": limit, "messages": conversation.messages}
    if system := "\n\n".join(filter(None, (conversation.system, supported.instructions))):
        body["system"] = system
    body |= _tools(request, spec, supported, conversation)
    stop = [text for text in request.stop if text.strip()]  # the API refuses white space alone
    if stop and spec.stops:
        body["stop_sequences"] = stop
    if supported.temperature is not None:
        body["temperature"] = supported.temperature
    if supported.top_p is not None:
        body["top_p"] = supported.top_p
    body |= {**spec.body, **effort, **request.extra}
    if supported.json_mode == "json_schema":
        format_ = {"type": "json_schema", "schema": schema}
        body["output_config"] = {"format": format_, **body.get("output_config", {})}
    return body, supported


def _cannot_drop_thoughts(spec: ProviderSpec, effort: Mapping[str, Any]) -> bool:
    """Return whether thinking that does not fit its prefix fails the request.

    With thinking off, the model needs no thinking back.
    """
    said: Mapping[str, Any] = {**spec.body, **effort}.get("thinking", {})
    return "block_binding" in spec.body.get("thinking", {}) and "block_binding" not in said


def _with_schema_in_prompt(spec: ProviderSpec) -> ProviderSpec:
    """Return the spec with the schema in the prompt, for schemas that the API cannot express."""
    modes = {
        name: "prompt" for name in ("json_mode", "json_mode_thinking") if getattr(spec, name) == "json_schema"
    }
    return replace(spec, **modes) if modes else spec


def _effort(
    request: ChatRequest, spec: ProviderSpec, conversation: Conversation, limit: int
) -> tuple[SupportedParameters, Mapping[str, Any]]:
    """Return the supported parameters, and the fields for the thinking effort.

    A thinking budget leaves half of the response's tokens for the rest. If that is too little for thinking,
    or a turn continues that another model began, a model with a budget does not think.
    """
    supported = map_parameters(request, spec)
    fields: Mapping[str, Any] = spec.efforts[supported.effort] if supported.effort else {}
    thinking: Mapping[str, Any] = fields.get("thinking", {})
    if "budget_tokens" not in thinking:
        return supported, fields
    budget = min(thinking["budget_tokens"], limit // 2)
    if budget >= _SMALLEST_BUDGET and not conversation.continues_without_thinking:
        return supported, {**fields, "thinking": {**thinking, "budget_tokens": budget}}
    return map_parameters(replace(request, effort="off"), spec), spec.efforts.get("off", {})


def _tools(
    request: ChatRequest, spec: ProviderSpec, supported: SupportedParameters, conversation: Conversation
) -> dict[str, Any]:
    tools = [_tool(each.name, each.description, each.parameters, spec) for each in request.tools]
    if supported.output_tool and request.output:
        tools.append(_tool(supported.output_tool, request.output.description, request.output.schema, spec))
    choice = supported.tool_choice
    if not tools:
        # The API refuses a conversation with calls if there are no tools.
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
    """Return a tool. The schema has no alternatives at its top level, as the API takes none there."""
    form = {"type": "object", **adapt_schema(schema, spec.schema)}
    tool = {"name": name, "input_schema": {key: form[key] for key in form if key not in _CHOICES_OF_FORMS}}
    return {**tool, "description": description} if description else tool


_Json: TypeAlias = Mapping[str, Any]

_KEPT = frozenset({"type", "title", "description", "enum", "const", "required", "default"})
_FORMATS = frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split())


def output_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema in the keywords that the API knows, or None if they cannot express it.

    Limits of numbers, texts and lists are left out, so the response has to be validated. Recursive schemas
    are cut off. Optional fields stay optional. The API cannot express maps with arbitrary names, and values
    of any type.

    Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations

    Raises:
        InvalidInputError: the schema is nested too deeply.
    """
    if to_strict_schema(schema) is None:  # OpenAI's strict mode and this API have the same limits here
        return None
    return _part(adapt_schema(schema, "inline"))


def _part(schema: _Json) -> dict[str, Any]:
    part = {keyword: value for keyword, value in schema.items() if keyword in _KEPT}
    if schema.get("format") in _FORMATS:
        part["format"] = schema["format"]
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            part["anyOf"] = _parts(schema[keyword])
    if "allOf" in schema:
        part["allOf"] = _parts(schema["allOf"])
    if "items" in schema:
        part["items"] = _part(schema["items"])
        if schema.get("minItems") in {0, 1}:
            part["minItems"] = schema["minItems"]
    if "object" in _types(schema):
        properties = cast("Mapping[str, _Json]", schema.get("properties") or {})
        part["properties"] = {name: _part(each) for name, each in properties.items()}
        part["additionalProperties"] = False
    return part


def _parts(schemas: Sequence[_Json]) -> list[dict[str, Any]]:
    return [_part(each) for each in schemas]


def _types(schema: _Json) -> Sequence[str]:
    types: str | Sequence[str] = schema.get("type", ())
    return (types,) if isinstance(types, str) else types


_Block: TypeAlias = dict[str, Any]

_SAFE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_TRUNCATION_NOTE = "(The beginning of this conversation is left out.)"
_CONTINUE_PROMPT = "Go on."
_NO_OUTPUT = "(no output)"
_IMAGE_UNSEEN = "(an image, which you cannot be shown)"
_IMAGE_FOLLOWS = "(an image: it follows)"


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation in wire format.

    Attributes:
        system: all system messages as one text; empty where there is none.
        messages: the other messages, in the API's format.
    """

    system: str
    messages: list[dict[str, Any]]

    @property
    def called(self) -> list[str]:
        """Names of the tools that were called, without duplicates."""
        return list(
            dict.fromkeys(
                block["name"]
                for message in self.messages
                for block in message["content"]
                if block["type"] == "tool_use"
            )
        )

    @property
    def continues_without_thinking(self) -> bool:
        """Whether tool results come last, and their turn does not begin with thinking.

        This happens after a change of models. Models with a thinking budget refuse it. Results along with
        something else, such as an image, begin a turn for the API, and continue one for us.
        """
        first: Mapping[str, Any] | None = None
        for message in reversed(self.messages):
            if message["role"] == "assistant":
                first = message
                continue
            kinds = {block["type"] for block in message["content"]}
            if first is not None and kinds != {"tool_result"} and not _begins_with_thinking(first):
                return True
            if "tool_result" not in kinds:
                break
        return False


def wire_conversation(
    messages: Sequence[Message], spec: ProviderSpec, *, model: str, tools: bool = False
) -> Conversation:
    """Convert a conversation to wire format.

    Args:
        messages: the conversation, oldest first; `pair_tool_results` orders it, and thinking goes back by
            `with_reasoning_to_replay`.
        spec: the vendor.
        model: the model, for errors.
        tools: whether the request carries tools.

    Raises:
        InvalidInputError: it is empty, or has an image that the model does not support. In tool results such
            an image is replaced by a note.
    """
    writer = _Writer(spec, model, tools=tools)
    for message in with_reasoning_to_replay(pair_tool_results(messages), spec, tools=tools):
        writer.add(message)
    return writer.finish()


def _begins_with_thinking(message: Mapping[str, Any]) -> bool:
    return message["content"][0]["type"] in {"thinking", "redacted_thinking"}


def safe_name(name: str) -> str:
    """Return a tool name in the letters that the API accepts; models invent others."""
    return _UNSAFE_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "unnamed"


class _Writer:
    """Builds the conversation: merges what the user and the tools say between two responses."""

    def __init__(self, spec: ProviderSpec, model: str, *, tools: bool) -> None:
        self._spec = spec
        self._model = model
        self._tools = tools
        self._systems: list[str] = []
        self._messages: list[dict[str, Any]] = []
        self._results: list[_Block] = []
        self._said: list[_Block] = []

    def add(self, message: Message) -> None:
        match message:
            case SystemMessage():
                if message.text.strip():
                    self._systems.append(message.text)
            case UserMessage():
                self._said += self._user_blocks(message.parts)
            case ToolMessage():
                self._results.append(self._result(message))
            case AssistantMessage():
                if blocks := self._answer_blocks(message):
                    self._flush_user()
                    self._append("assistant", blocks)

    def finish(self) -> Conversation:
        self._flush_user()
        if not self._messages and not self._systems:
            raise InvalidInputError(
                "The conversation has no message that a model could answer.", advice="Add a user message."
            )
        if self._messages and self._messages[0]["role"] == "assistant":
            self._messages.insert(0, {"role": "user", "content": [_text(_TRUNCATION_NOTE)]})
        if not self._messages or self._messages[-1]["role"] == "assistant":
            # New models do not support prefill: the last message has to be the user's.
            self._messages.append({"role": "user", "content": [_text(_CONTINUE_PROMPT)]})
        return Conversation("\n\n".join(self._systems), self._messages)

    def _flush_user(self) -> None:
        if blocks := [*self._results, *self._said]:
            self._append("user", blocks)
        self._results, self._said = [], []

    def _append(self, role: str, blocks: list[_Block]) -> None:
        if self._messages and self._messages[-1]["role"] == role:
            self._messages[-1]["content"] += blocks
        else:
            self._messages.append({"role": role, "content": blocks})

    def _user_blocks(self, parts: Sequence[UserPart]) -> list[_Block]:
        return [
            _text(part.text) if isinstance(part, TextPart) else self._image(part)
            for part in parts
            if isinstance(part, ImagePart) or part.text.strip()
        ]

    def _result(self, message: ToolMessage) -> _Block:
        content: list[_Block] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                if part.text.strip():
                    content.append(_text(part.text))
            elif not self._can_show(part):
                content.append(_text(_IMAGE_UNSEEN))
            elif self._spec.tool_images and not message.failed:  # failures take text only
                content.append(self._image(part))
            else:
                content.append(_text(_IMAGE_FOLLOWS))
                self._said.append(self._image(part))
        result: _Block = {
            "type": "tool_result",
            "tool_use_id": _wire_id(message.call_id),
            "content": content or [_text(_NO_OUTPUT)],
        }
        return {**result, "is_error": True} if message.failed else result

    def _can_show(self, image: ImagePart) -> bool:
        if not self._spec.images:
            return False
        return image.media_type in _MEDIA_TYPES if image.data else bool(image.url) and self._spec.image_urls

    def _image(self, image: ImagePart) -> _Block:
        if not self._can_show(image):
            raise self._image_error(image)
        if not image.data:
            return {"type": "image", "source": {"type": "url", "url": image.url}}
        data = b64encode(image.data).decode()
        source = {"type": "base64", "media_type": image.media_type, "data": data}
        return {"type": "image", "source": source}

    def _image_error(self, image: ImagePart) -> InvalidInputError:
        who = f"The model {self._model} of {self._spec.title}"
        if not self._spec.images:
            return InvalidInputError(
                f"{who} takes no images.", advice="Leave the image out, or ask a model that takes images."
            )
        if image.data:
            return InvalidInputError(
                f"{who} takes no images of the type {image.media_type}.",
                advice="Give the image as JPEG, PNG, GIF or WebP.",
            )
        if image.url:
            return InvalidInputError(
                f"{who} takes images as bytes, not by URL.",
                advice="Fetch the image, and give its bytes.",
            )
        return InvalidInputError("An image of the conversation is empty.", advice="Give its bytes, or a URL.")

    def _answer_blocks(self, message: AssistantMessage) -> list[_Block]:
        blocks = [
            block
            for part in message.parts
            if (block := _answer_block(part, named=bool(message.provider))) is not None
        ]
        while blocks and blocks[-1]["type"] in {"thinking", "redacted_thinking"}:
            blocks.pop()  # cut off during thinking; no message may end like that
        thought = any(block["type"] in {"thinking", "redacted_thinking"} for block in blocks)
        if blocks and not thought and needs_filler(message, self._spec, tools=self._tools):
            blocks.insert(0, {"type": "thinking", "thinking": self._spec.replay_filler, "signature": ""})
        return blocks


def _answer_block(part: AssistantPart, *, named: bool) -> _Block | None:
    """Convert a part of a response to a block; `named` says whether its provider is known."""
    match part:
        case TextPart():
            return _text(part.text) if part.text.strip() else None
        case ToolCallPart():
            arguments = {"unreadable": part.unreadable} if part.unreadable else part.arguments
            return {
                "type": "tool_use",
                "id": _wire_id(part.id),
                "name": safe_name(part.name),
                "input": arguments,
            }
        case ReasoningPart():
            return _thinking_block(part) if named else None


def _thinking_block(part: ReasoningPart) -> _Block:
    if part.came_in == "redacted_thinking":
        return {"type": "redacted_thinking", "data": part.opaque.get("data", "")}
    block = {"type": "thinking", "thinking": part.text}
    return {**block, "signature": part.opaque["signature"]} if "signature" in part.opaque else block


def _text(text: str) -> _Block:
    return {"type": "text", "text": text}


def _wire_id(id_: str) -> str:
    """Return an id in the letters that the API accepts: another vendor's id becomes a stable hash."""
    if _SAFE_ID.fullmatch(id_):
        return id_
    return f"call_{sha256(id_.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
