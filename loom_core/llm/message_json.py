"""Serialization of messages as JSON, without loss; files keep messages in this form."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.errors import InvalidInputError
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
    from loom_core.llm.messages import AssistantPart, Message, UserPart

__all__ = ["message_from_json", "message_to_json"]

_T = TypeVar("_T")


def message_to_json(message: Message) -> dict[str, Any]:
    """Serialize a message as JSON, with its metadata; empty fields are left out.

    Texts may have lone surrogates, as models write them: write the JSON in ASCII, or with an encoder that
    accepts them.
    """
    return {**_fields(message), **_drop_empty(metadata=message.metadata)}


def _fields(message: Message) -> dict[str, Any]:
    match message:
        case SystemMessage():
            return {"role": "system", "text": message.text}
        case UserMessage():
            return {"role": "user", "parts": [_part_to_json(part) for part in message.parts]}
        case AssistantMessage():
            return {
                "role": "assistant",
                "parts": [_part_to_json(part) for part in message.parts],
                **_drop_empty(provider=message.provider, model=message.model),
            }
        case ToolMessage():
            return {
                "role": "tool",
                "call_id": message.call_id,
                "parts": [_part_to_json(part) for part in message.parts],
                **_drop_empty(failed=message.failed),
            }


def message_from_json(data: object) -> Message:
    """Deserialize a message written by `message_to_json`.

    Raises:
        InvalidInputError: it is no such message.
    """
    try:
        return _message(_mapping(data))
    except KeyError as error:
        raise _invalid(f"{error} is missing") from None
    except (TypeError, ValueError) as error:
        raise _invalid(str(error)) from None


def _message(fields: Mapping[str, Any]) -> Message:
    metadata = _mapping(fields.get("metadata", {}))
    match fields["role"]:
        case "system":
            return SystemMessage(_text(fields["text"]), metadata=metadata)
        case "user":
            return UserMessage(_parts(fields, _user_part), metadata=metadata)
        case "assistant":
            provider, model = _text(fields.get("provider", "")), _text(fields.get("model", ""))
            return AssistantMessage(
                _parts(fields, _assistant_part), provider=provider, model=model, metadata=metadata
            )
        case "tool":
            failed = fields.get("failed", False) is True
            return ToolMessage(
                _text(fields["call_id"]), _parts(fields, _user_part), failed=failed, metadata=metadata
            )
        case role:
            raise ValueError(f"its role is {role!r}")


def _part_to_json(part: UserPart | AssistantPart) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            data = b64encode(part.data).decode("ascii")
            return {"type": "image", "media_type": part.media_type, **_drop_empty(data=data, url=part.url)}
        case ReasoningPart():
            return {
                "type": "reasoning",
                "text": part.text,
                **_drop_empty(came_in=part.came_in, opaque=part.opaque),
            }
        case ToolCallPart():
            return {
                "type": "tool_call",
                "id": part.id,
                "name": part.name,
                **_drop_empty(arguments=part.arguments, unreadable=part.unreadable, opaque=part.opaque),
            }


def _drop_empty(**fields: object) -> dict[str, Any]:
    return {
        name: dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if value
    }


def _parts(fields: Mapping[str, Any], read: Callable[[Mapping[str, Any]], _T]) -> tuple[_T, ...]:
    parts: object = fields["parts"]
    if not isinstance(parts, list):
        raise TypeError("its parts are not a list")
    return tuple(read(_mapping(part)) for part in cast("Sequence[object]", parts))


def _user_part(part: Mapping[str, Any]) -> UserPart:
    match part["type"]:
        case "text":
            return TextPart(_text(part["text"]))
        case "image":
            data = b64decode(_text(part.get("data", "")), validate=True)
            return ImagePart(data, media_type=_text(part["media_type"]), url=_text(part.get("url", "")))
        case kind:
            raise ValueError(f"a part of it is of type {kind!r}")


def _assistant_part(part: Mapping[str, Any]) -> AssistantPart:
    match part["type"]:
        case "text":
            return TextPart(_text(part["text"]))
        case "reasoning":
            return ReasoningPart(
                _text(part["text"]),
                came_in=_text(part.get("came_in", "")),
                opaque=_mapping(part.get("opaque", {})),
            )
        case "tool_call":
            return ToolCallPart(
                _text(part["id"]),
                _text(part["name"]),
                _mapping(part.get("arguments", {})),
                unreadable=_text(part.get("unreadable", "")),
                opaque=_mapping(part.get("opaque", {})),
            )
        case kind:
            raise ValueError(f"a part of it is of type {kind!r}")


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"there is {type(value).__name__} where an object should be")
    return cast("Mapping[str, Any]", value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"there is {type(value).__name__} where a text should be")
    return value


def _invalid(why: str) -> InvalidInputError:
    return InvalidInputError(
        f"A message cannot be read: {why}.", advice="Give what `message_to_json` has written."
    )
