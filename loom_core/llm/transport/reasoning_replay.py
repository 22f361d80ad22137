"""Which reasoning of earlier answers goes back to a vendor, and where its lack has to be said.

Vendors differ most here: one answers 400 where reasoning is missing, another where it is there, a third where
a letter of it has changed. `ProviderSpec.replay` says what each wants.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.llm.messages import AssistantMessage, ReasoningPart, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["needs_filler", "with_reasoning_to_replay"]


def with_reasoning_to_replay(
    messages: Sequence[Message], spec: ProviderSpec, *, tools: bool
) -> tuple[Message, ...]:
    """The conversation with the reasoning that goes back, and no other.

    What stays is unchanged. It goes back to the provider that it came from, which `AssistantMessage.provider`
    names: reasoning of another one never does, and neither do its signatures. Reasoning of a message that
    names none was written by hand: it goes back as text; with something opaque it does not.

    Args:
        messages: the conversation, oldest first.
        spec: the vendor that is asked.
        tools: whether the request carries tools.
    """
    first = _first_replayed(messages, spec, tools=tools)
    return tuple(
        _without_foreign(message, spec, dropped=number < first)
        if isinstance(message, AssistantMessage)
        else message
        for number, message in enumerate(messages)
    )


def needs_filler(message: AssistantMessage, spec: ProviderSpec, *, tools: bool) -> bool:
    """Whether a message that has no reasoning has to say so, by `ProviderSpec.replay_filler`.

    That is every one where reasoning is wanted as soon as there are tools, as with DeepSeek, and every one
    with tool calls elsewhere, as with Kimi.
    """
    if spec.replay_filler is None:
        return False
    return tools if spec.replay == "with_tools" else bool(message.tool_calls)


def _first_replayed(messages: Sequence[Message], spec: ProviderSpec, *, tools: bool) -> int:
    """The place of the first message whose reasoning goes back."""
    match spec.replay:
        case "always":
            return 0
        case "with_tools":
            return 0 if tools else len(messages)
        case "same_turn":
            users = [number for number, message in enumerate(messages) if isinstance(message, UserMessage)]
            return users[-1] + 1 if users else 0
        case "never":
            return len(messages)


def _without_foreign(message: AssistantMessage, spec: ProviderSpec, *, dropped: bool) -> AssistantMessage:
    parts = tuple(
        part
        for part in message.parts
        if not isinstance(part, ReasoningPart) or (not dropped and _is_own(part, message, spec))
    )
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)


def _is_own(part: ReasoningPart, message: AssistantMessage, spec: ProviderSpec) -> bool:
    return message.provider == spec.name or (not message.provider and not part.opaque)
