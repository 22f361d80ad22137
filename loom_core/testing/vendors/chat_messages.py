"""Which conversations of the chat-completions format a vendor takes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import cast

from loom_core.testing.vendors.chat_vendors import ChatVendor, fits
from loom_core.testing.vendors.json_fields import Json, mapping, mappings
from loom_core.testing.vendors.refusal import Refused

__all__ = ["check_messages"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_MESSAGE_FIELDS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})
_CALL_FIELDS = frozenset({"id", "type", "function", "index"})


def check_messages(vendor: ChatVendor, model: str, messages: Sequence[Json]) -> None:
    """Refuse a conversation that the vendor refuses.

    Raises:
        Refused: with the vendor's status and code.
    """
    if not messages:
        raise Refused(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.",
            openai_code="empty_array",
            param="messages",
        )
    waiting: list[str] = []  # ids of calls that have to be answered next
    seen: set[str] = set()
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        _check_role(vendor, message, number, where)
        _check_fields(vendor, message, where)
        if message["role"] == "tool":
            _check_answer(message, waiting, where)
        elif waiting:
            raise _unanswered(waiting, where)
        _check_content(vendor, model, message, where)
        if message["role"] == "assistant":
            waiting = _check_calls(vendor, message, seen, where)
    if waiting:
        raise _unanswered(waiting, "messages")
    if vendor.user_needed and not any(message["role"] == "user" for message in messages):
        raise Refused("No user query found in messages.", param="messages")


def _check_role(vendor: ChatVendor, message: Json, number: int, where: str) -> None:
    role = message.get("role")
    if role not in _ROLES or (role == "developer" and vendor.name != "openai"):
        raise Refused(
            f"Invalid value: {role!r}. Supported roles are system, user, assistant, tool.", param=where
        )
    if role == "system" and vendor.first_system and number > 0:
        raise Refused("System message must be at the beginning.", param=where)


def _check_fields(vendor: ChatVendor, message: Json, where: str) -> None:
    if vendor.message_fields is not None:
        unknown = sorted(set(message) - _MESSAGE_FIELDS - vendor.message_fields)
        if unknown:
            raise Refused(
                f"Unrecognized request argument supplied: {where}.{unknown[0]}",
                openai_code="unknown_parameter",
                param=f"{where}.{unknown[0]}",
            )
    if "tool_call_id" in message and message["role"] != "tool":
        raise Refused("Only tool messages have a 'tool_call_id'.", param=where)
    if "tool_calls" in message and message["role"] != "assistant":
        raise Refused("Only assistant messages have 'tool_calls'.", param=where)


def _unanswered(ids: Sequence[str], where: str) -> Refused:
    return Refused(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(ids),
        param=where,
    )


def _check_answer(message: Json, waiting: list[str], where: str) -> None:
    id_ = message.get("tool_call_id")
    if id_ not in waiting:
        raise Refused(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            f"'tool_calls'. tool_call_id {id_!r} is not found.",
            param=f"{where}.role",
        )
    waiting.remove(cast("str", id_))


def _check_content(vendor: ChatVendor, model: str, message: Json, where: str) -> None:
    content, role = message.get("content"), message["role"]
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            raise Refused(f"Invalid value for 'content': expected a string, got null. ({where})", param=where)
        return
    if isinstance(content, str):
        if not content.strip() and not vendor.empty_content and not message.get("tool_calls"):
            raise Refused(
                f"message at position {_number(where)} with role {role!r} must not be empty", param=where
            )
        return
    if not content:
        raise Refused(
            f"Invalid type for '{where}.content': a string, or a list that is not empty.", param=where
        )
    for part in mappings(message, "content"):
        match part.get("type"):
            case "text" if isinstance(part.get("text"), str):
                if not part["text"] and not vendor.empty_content:
                    raise Refused(f"message at position {_number(where)} must not be empty", param=where)
            case "image_url" if role == "user":
                _check_image(vendor, model, part, where)
            case kind:
                raise Refused(f"Invalid value: {kind!r}. ({where}.content)", param=where)


def _number(where: str) -> str:
    """The number in `messages[3]`."""
    return where.removeprefix("messages[").removesuffix("]")


def _check_image(vendor: ChatVendor, model: str, part: Json, where: str) -> None:
    url = mapping(part, "image_url").get("url")
    if not isinstance(url, str):
        raise Refused(f"Invalid image_url. ({where})", param=where)
    if not fits(model, vendor.images):
        raise Refused(f"{where}: the model {model} takes no images: unknown variant `image_url`", param=where)
    if not url.startswith("data:image/"):
        if not vendor.image_urls or not url.startswith(("https://", "http://")):
            raise Refused(f"Invalid image URL, give the image in base64. ({where})", param=where)
    elif ";base64," not in url or not url.partition(";base64,")[2]:
        raise Refused(f"Invalid base64 image_url. ({where})", param=where)


def _check_calls(vendor: ChatVendor, message: Json, seen: set[str], where: str) -> list[str]:
    if message.get("tool_calls") is None:
        return []
    calls = mappings(message, "tool_calls")
    if not calls:
        raise Refused(f"Invalid '{where}.tool_calls': empty array.", openai_code="empty_array", param=where)
    ids: list[str] = []
    for call in calls:
        id_, function = call.get("id"), mapping(call, "function")
        if not isinstance(id_, str) or not id_:
            raise Refused(f"Missing required parameter: '{where}.tool_calls[0].id'.", param=where)
        if id_ in seen:
            raise Refused(f"Duplicate value for 'tool_call_id' of {id_!r}. ({where})", param=where)
        if call.get("type") != "function":
            raise Refused(f"Missing required parameter: '{where}.tool_calls[0].type'.", param=where)
        if vendor.name == "openai" and (unknown := sorted(set(call) - _CALL_FIELDS)):
            raise Refused(
                f"Unknown parameter: '{where}.tool_calls[0].{unknown[0]}'.",
                openai_code="unknown_parameter",
                param=where,
            )
        name = function.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Refused(f"Invalid '{where}.tool_calls[0].function.name': {name!r}.", param=where)
        if not _is_object(function.get("arguments")):
            raise Refused(
                f"Invalid '{where}.tool_calls[0].function.arguments': must be the JSON text of an object.",
                param=where,
            )
        seen.add(id_)
        ids.append(id_)
    return ids


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
