"""A conversation as a text that a model can be given to summarise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loom_core.agent.compaction.clearing import blob_address
from loom_core.agent.compaction.summary import is_summary
from loom_core.llm.messages import AssistantMessage, ImagePart, SystemMessage, ToolMessage, UserMessage
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom_core.llm.messages import Message, ToolCallPart, UserPart

__all__ = ["shortened", "transcript"]

_LONGEST_SAID = 6000  # characters that are shown of what the user or the model says
_LONGEST_RESULT = 2000
_LONGEST_ARGUMENTS = 1000


def transcript(messages: Sequence[Message], *, most_tokens: int) -> list[str]:
    """A conversation as texts of at most so many tokens each; earlier summaries and reasoning are left out.

    Very long messages are shown by their beginning and their end.

    Args:
        messages: the conversation, oldest first.
        most_tokens: of one text, by `estimate_tokens`; an entry that is longer by itself is cut.
    """
    parts: list[list[str]] = [[]]
    room = most_tokens
    for entry in _entries(messages):
        size = estimate_tokens(entry) + 2
        if size > most_tokens:
            entry = shortened(entry, most_tokens // 2)  # a character is a token at most
            size = estimate_tokens(entry) + 2
        if size > room and parts[-1]:
            parts.append([])
            room = most_tokens
        parts[-1].append(entry)
        room -= size
    return ["\n\n".join(part) for part in parts if part]


def _entries(messages: Iterable[Message]) -> Iterable[str]:
    names: dict[str, str] = {}
    for message in messages:
        if is_summary(message):
            continue
        match message:
            case SystemMessage(text=text):
                yield f"[system] {shortened(text, _LONGEST_SAID)}"
            case UserMessage():
                yield f"[user] {shortened(_shown(message.parts), _LONGEST_SAID)}"
            case AssistantMessage():
                names |= {call.id: call.name for call in message.tool_calls}
                if message.text.strip():
                    yield f"[assistant] {shortened(message.text, _LONGEST_SAID)}"
                yield from (f"[call] {_call(call)}" for call in message.tool_calls)
            case ToolMessage():
                kind = "failure" if message.failed else "result"
                shown = _shown(message.parts)
                address = blob_address(shown)
                text = shortened(shown, _LONGEST_RESULT)
                where = f" (whole: {address})" if address and address not in text else ""
                yield f"[{kind} of {names.get(message.call_id, 'a tool')}] {text}{where}"


def _shown(parts: Iterable[UserPart]) -> str:
    return "".join("(an image)" if isinstance(part, ImagePart) else part.text for part in parts)


def _call(call: ToolCallPart) -> str:
    written = call.unreadable or json.dumps(call.arguments, ensure_ascii=False, default=str)
    return f"{call.name} {shortened(written, _LONGEST_ARGUMENTS)}"


def shortened(text: str, longest: int) -> str:
    """A text without its middle, where it is too long."""
    text = text.strip()
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    tail = longest - head
    return f"{text[:head]}\n[… {len(text) - longest:,} characters left out …]\n{text[len(text) - tail :]}"
