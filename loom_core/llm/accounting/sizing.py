"""Token estimation for messages and tools, before a vendor has counted them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom_core.llm.json_body import json_body
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
)
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom_core.llm.interface import ToolSpec
    from loom_core.llm.messages import AssistantPart, Message, UserPart

__all__ = ["estimate_answer", "estimate_json", "estimate_message", "estimate_tool"]

_MESSAGE = 4
"""Overhead of a message in tokens: its role, its beginning and its end."""

_TOOL = 12
"""Overhead of a tool description in tokens."""

_IMAGE = 1000
"""Tokens of an image: OpenAI counts 765 for a square of 1024 pixels, Anthropic 1 600 at most."""


def estimate_message(message: Message) -> int:
    """Estimate the tokens of a message, with all of its reasoning.

    Raises:
        InvalidInputError: the arguments of a tool call contain a value that JSON cannot express.
    """
    if isinstance(message, AssistantMessage):
        return _MESSAGE + estimate_answer(message.parts)
    if isinstance(message, SystemMessage):
        return _MESSAGE + estimate_tokens(message.text)
    return _MESSAGE + sum(map(_estimate_part, message.parts))


def estimate_answer(parts: Iterable[AssistantPart]) -> int:
    """Estimate the tokens of a response; raises as `estimate_message` does."""
    size = 0
    for part in parts:
        match part:
            case TextPart(text) | ReasoningPart(text):
                size += estimate_tokens(text)
            case ToolCallPart():
                size += _MESSAGE + estimate_tokens(part.name)
                size += estimate_tokens(part.unreadable) if part.unreadable else estimate_json(part.arguments)
    return size


def estimate_tool(tool: ToolSpec) -> int:
    """Estimate the tokens of a tool description."""
    words = estimate_tokens(tool.name) + estimate_tokens(tool.description)
    return _TOOL + words + estimate_json(tool.parameters)


def estimate_json(value: Mapping[str, Any]) -> int:
    """Estimate the tokens of an object as it is sent.

    Raises:
        InvalidInputError: it contains a value that JSON cannot express.
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(json_body(value), ensure_ascii=False)  # as it is sent, if it can be
    return estimate_tokens(text)


def _estimate_part(part: UserPart) -> int:
    return _IMAGE if isinstance(part, ImagePart) else estimate_tokens(part.text)
