"""Parsing of conversations: mappings of the chat completions format to messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import InvalidInputError
from loom_core.llm.json_body import json_body
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

if TYPE_CHECKING:
    from loom_core.llm.messages import AssistantPart, Message, MessageLike, UserPart

__all__ = ["as_messages", "read_tool_call"]

_MESSAGES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)
_DEEPEST_ARGUMENTS = 100
_ADVICE = 'Write a message as {"role": "user", "content": "…"}, or use the classes of loom_core.llm.messages.'


def as_messages(messages: Sequence[MessageLike]) -> tuple[Message, ...]:
    """Convert a conversation to Loom's messages.

    Mappings have the fields of the chat-completions format: `role` (`system`, `developer`, `user`,
    `assistant`, `tool`), `content` (a text, or a list of `{"type": "text", "text": …}` and
    `{"type": "image_url", "image_url": {"url": …}}`), for an assistant also `reasoning_content` and
    `tool_calls` (`{"id", "function": {"name", "arguments"}}`), for a tool `tool_call_id`. `metadata`, an
    object, stays with the message.

    Raises:
        InvalidInputError: a message is invalid; the error says which one, and why.
    """
    if isinstance(messages, str | Mapping):
        raise InvalidInputError(
            "The conversation is a single text or message, not a list of messages.", advice=_ADVICE
        )
    return tuple(_message(number, message) for number, message in enumerate(messages))


def _message(number: int, message: MessageLike) -> Message:
    if isinstance(message, _MESSAGES):
        return message
    try:
        fields = _object(message, "it")
        read = _read(fields)
        if metadata := fields.get("metadata"):
            return replace(read, metadata=_object(metadata, "its metadata"))
        return read
    except KeyError as error:
        raise _invalid(number, f"{error} is missing") from None
    except (TypeError, ValueError) as error:
        raise _invalid(number, str(error)) from None


def _read(message: Mapping[str, Any]) -> Message:
    match message.get("role"):
        case "system" | "developer":
            return SystemMessage("".join(part.text for part in _texts(message.get("content"))))
        case "user":
            return UserMessage(_parts(message.get("content")))
        case "assistant":
            return AssistantMessage(_assistant_parts(message))
        case "tool":
            return ToolMessage(
                _string(message["tool_call_id"], "its tool_call_id"), _parts(message.get("content"))
            )
        case role:
            raise ValueError(f"its role is {role!r}")


def _invalid(number: int, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"Message {number + 1} of the conversation cannot be used: {why}.", advice=_ADVICE
    )


def _parts(content: object) -> tuple[UserPart, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, list | tuple):
        raise TypeError(f"its content is of type {type(content).__name__}")
    return tuple(map(_part, cast("Sequence[object]", content)))


def _part(part: object) -> UserPart:
    if isinstance(part, TextPart | ImagePart):
        return part
    if isinstance(part, Mapping):
        fields = cast("Mapping[str, Any]", part)
        match fields.get("type"):
            case "text":
                return TextPart(_string(fields["text"], "the text of its content"))
            case "image_url":
                image = _object(fields["image_url"], "its image_url")
                return _image(_string(image["url"], "the url of its image"))
            case kind:
                raise ValueError(f"a part of its content is of type {kind!r}")
    raise TypeError(f"a part of its content is of type {type(part).__name__}")


def _image(url: str) -> ImagePart:
    if not url.startswith("data:"):
        return ImagePart(url=url)
    from base64 import b64decode

    head, _, data = url.removeprefix("data:").partition(",")
    media_type, _, encoding = head.partition(";")
    if encoding != "base64":
        raise ValueError("an image in a data: address is not in base64")
    return ImagePart(b64decode(data, validate=True), media_type=media_type)


def _texts(content: object) -> list[TextPart]:
    if isinstance(content, str):
        return [TextPart(content)]
    parts = _parts(content)
    texts = [part for part in parts if isinstance(part, TextPart)]
    if len(texts) < len(parts):
        raise ValueError("only users and tools can send images")
    return texts


def _assistant_parts(message: Mapping[str, Any]) -> tuple[AssistantPart, ...]:
    parts: list[AssistantPart] = []
    for field_ in ("reasoning_content", "reasoning"):
        if isinstance(reasoning := message.get(field_), str) and reasoning:
            parts.append(ReasoningPart(reasoning, came_in=field_))
            break
    parts += [part for part in _texts(message.get("content")) if part.text]
    calls: object = message.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise TypeError("its tool_calls are not a list")
    parts += map(_tool_call, cast("Sequence[object]", calls))
    return tuple(parts)


def _tool_call(call: object) -> ToolCallPart:
    fields = _object(call, "a tool call")
    function = _object(fields["function"], "the function of a tool call")
    id_, name = (
        _string(fields["id"], "the id of a tool call"),
        _string(function["name"], "the name of a tool"),
    )
    return read_tool_call(id_, name, function.get("arguments"))


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict | Mapping):  # `dict` first, as `Mapping` is slow to check
        raise TypeError(f"{what} is of type {type(value).__name__}, not an object")
    return cast("Mapping[str, Any]", value)


def _string(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is of type {type(value).__name__}, not text")
    return value


def read_tool_call(
    id_: str, name: str, arguments: object, *, opaque: Mapping[str, Any] | None = None
) -> ToolCallPart:
    """Create a tool call; its arguments are a JSON text, as vendors send them, or an object.

    Missing arguments, an empty text and `null` become an empty object, as many models write them so. NaN and
    infinite numbers, which are no JSON, become texts: no schema takes them for a number. Arguments nested too
    deeply to be sent back are unreadable.
    """
    value: object = arguments
    if isinstance(arguments, str):
        try:
            if arguments.strip():
                value = json.loads(arguments, parse_constant=str, parse_float=_finite_or_text)
            else:
                value = None
            json_body({"arguments": value}, deepest=_DEEPEST_ARGUMENTS)
        except (ValueError, RecursionError, InvalidInputError):
            return ToolCallPart(id_, name, unreadable=arguments, opaque=opaque or {})
    if value is None:
        value = {}
    if not isinstance(value, Mapping):
        return ToolCallPart(id_, name, unreadable=str(arguments), opaque=opaque or {})
    return ToolCallPart(id_, name, cast("Mapping[str, Any]", value), opaque=opaque or {})


def _finite_or_text(digits: str) -> float | str:
    number = float(digits)
    return number if isfinite(number) else digits
