"""Messages of a conversation with a language model, and their parts.

All messages have `metadata`, JSON for the program's own use: it stays with the message in memories, journals
and files, and no model or vendor gets it. Messages that differ only in it are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "AssistantMessage",
    "AssistantPart",
    "ImagePart",
    "Message",
    "MessageLike",
    "ReasoningPart",
    "SystemMessage",
    "TextPart",
    "ToolCallPart",
    "ToolMessage",
    "UserMessage",
    "UserPart",
]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image, as bytes or by URL.

    Attributes:
        data: the file's bytes; empty where there is a `url`.
        media_type: such as `image/png`.
        url: an `https:` URL that the vendor fetches.
    """

    data: bytes = b""
    media_type: str = "image/png"
    url: str = ""


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Reasoning of a model before its response, in the form to be replayed.

    Attributes:
        text: the reasoning, or a summary of it; empty if the vendor hides it.
        came_in: a field of the message (`reasoning_content`, `reasoning`), or the type of a content block
            (`thinking`, `redacted_thinking`).
        opaque: further fields that only the vendor understands: a signature, ids, a list of blocks. They go
            back unchanged, or not at all.
    """

    text: str
    came_in: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call of the model.

    Attributes:
        id: the id that the result refers to.
        name: the tool.
        arguments: its arguments; empty if `unreadable` is set.
        unreadable: the arguments as the model wrote them, if they are not a JSON object.
        opaque: further fields of the call that have to go back with it, such as a thought signature.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unreadable: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict[str, Any])


UserPart: TypeAlias = TextPart | ImagePart
AssistantPart: TypeAlias = TextPart | ReasoningPart | ToolCallPart


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """A message with the program's instructions."""

    text: str
    role: Literal["system"] = "system"
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message of the user."""

    parts: tuple[UserPart, ...]
    role: Literal["user"] = "user"
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)

    @property
    def text(self) -> str:
        """All text, joined."""
        return _text_of(self.parts)


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A message of the model, with its parts in order of arrival.

    Attributes:
        parts: text, reasoning and tool calls.
        provider: name of its provider (`ProviderSpec.name`); opaque fields go back to the same one only.
            Empty if no model wrote it.
        model: the model that wrote it.
    """

    parts: tuple[AssistantPart, ...]
    provider: str = ""
    model: str = ""
    role: Literal["assistant"] = "assistant"
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)

    @property
    def text(self) -> str:
        """All text, joined."""
        return _text_of(self.parts)

    @property
    def reasoning(self) -> str:
        """All reasoning that can be read, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of a tool call.

    Attributes:
        call_id: the `ToolCallPart.id` it answers.
        parts: text, and images if the vendor takes them in tool results.
        failed: whether it reports a failure.
    """

    call_id: str
    parts: tuple[UserPart, ...]
    failed: bool = False
    role: Literal["tool"] = "tool"
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)

    @property
    def text(self) -> str:
        """All text, joined."""
        return _text_of(self.parts)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
MessageLike: TypeAlias = Message | Mapping[str, Any]
"""A message, or a mapping in the usual form `{"role": …, "content": …}`."""


def _text_of(parts: Sequence[object]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))
