"""What a conversation with a language model is made of."""

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
    """Text that is meant for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image, as bytes or by address.

    Attributes:
        data: the file's bytes; empty where there is a `url`.
        media_type: such as `image/png`.
        url: an `https:` address that the vendor fetches by itself.
    """

    data: bytes = b""
    media_type: str = "image/png"
    url: str = ""


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """What a model thought before it answered, as it has to be sent back.

    Attributes:
        text: the thinking, or a summary of it; empty where the vendor keeps it to itself.
        came_in: a field of the message (`reasoning_content`, `reasoning`), or the type of a content block
            (`thinking`, `redacted_thinking`).
        opaque: what else came with it and means something to the vendor only: a signature, ids, a list of
            blocks. It goes back unchanged, or not at all.
    """

    text: str
    came_in: str = ""
    opaque: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool that the model wants called.

    Attributes:
        id: what the result refers to.
        name: the tool.
        arguments: what it is to be called with; empty where `unreadable` is not.
        unreadable: the arguments as the model wrote them, where they are not a JSON object.
        opaque: what else came with the call and has to go back with it, such as a thought signature.
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
    """What the model is told about its task, by the program."""

    text: str
    role: Literal["system"] = "system"


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user says."""

    parts: tuple[UserPart, ...]
    role: Literal["user"] = "user"

    @property
    def text(self) -> str:
        """All text, joined."""
        return _text_of(self.parts)


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What a model answered, its parts in the order in which they came.

    Attributes:
        parts: text, reasoning and tool calls.
        provider: name of the provider that answered (`ProviderSpec.name`); what is opaque goes back to the
            same one only. Empty for an answer that no model gave.
        model: which model answered.
    """

    parts: tuple[AssistantPart, ...]
    provider: str = ""
    model: str = ""
    role: Literal["assistant"] = "assistant"

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
    """What a tool answered.

    Attributes:
        call_id: the `ToolCallPart.id` it answers.
        parts: text, and images where the vendor takes them from tools.
        failed: whether it tells of a failure.
    """

    call_id: str
    parts: tuple[UserPart, ...]
    failed: bool = False
    role: Literal["tool"] = "tool"

    @property
    def text(self) -> str:
        """All text, joined."""
        return _text_of(self.parts)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
MessageLike: TypeAlias = Message | Mapping[str, Any]
"""A message, or a mapping of the well-known form `{"role": …, "content": …}`."""


def _text_of(parts: Sequence[object]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))
