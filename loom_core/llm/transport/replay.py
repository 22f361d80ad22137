"""Replay of a conversation: pair tool calls with results, and select the reasoning to send back.

Vendors differ most in reasoning: one responds with 400 if it is missing, another if it is present, a third if
a character of it has changed. `ProviderSpec.replay` says what each requires.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.llm.messages import (
    AssistantMessage,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message
    from loom_core.llm.vendors import ProviderSpec


__all__ = ["NO_RESULT", "needs_filler", "pair_tool_results", "with_reasoning_to_replay"]

NO_RESULT = "There is no result: the tool was not run, or was stopped."
"""The result of a call without a result in the conversation."""


def pair_tool_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Put exactly one result for each tool call right after the message with the call.

    Conversations that were stopped, shortened or written by hand often violate this, and vendors refuse them.
    So: results come in the order of the calls, before other messages; a call without a result gets
    `NO_RESULT`; a result without a call is dropped, and so is a second one; a call with a repeated id gets a
    new one, and its result, too. Valid conversations stay as they are.
    """
    done: list[Message] = []
    seen: dict[str, int] = {}
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AssistantMessage) or not message.tool_calls:
            done.append(message)
            continue
        end = position
        while end < len(messages) and not isinstance(messages[end], AssistantMessage):
            end += 1
        done += _answer_calls(message, messages[position:end], seen)
    return tuple(done)


def _answer_calls(
    message: AssistantMessage, following: Sequence[Message], seen: dict[str, int]
) -> list[Message]:
    """Return a message, the results of its calls, and the other messages after it."""
    results: defaultdict[str, deque[ToolMessage]] = defaultdict(deque)
    for result in following:
        if isinstance(result, ToolMessage):
            results[result.call_id].append(result)
    ids = [_unique_id(call.id, seen) for call in message.tool_calls]
    answers: list[Message] = []
    for call, id_ in zip(message.tool_calls, ids, strict=True):
        found = results[call.id].popleft() if results[call.id] else None
        if found is None:
            found = ToolMessage(id_, (TextPart(NO_RESULT),), failed=True)
        answers.append(found if found.call_id == id_ else replace(found, call_id=id_))
    renamed = iter(ids)
    parts = tuple(
        replace(part, id=next(renamed)) if isinstance(part, ToolCallPart) else part for part in message.parts
    )
    return [message if parts == message.parts else replace(message, parts=parts), *answers]


def _unique_id(id_: str, seen: dict[str, int]) -> str:
    """Return the id, or a new one if it is taken; `seen` has the last suffix of each."""
    id_ = unused = id_ or "call"
    while unused in seen:
        seen[id_] += 1
        unused = f"{id_}_{seen[id_]}"
    seen[unused] = 1
    return unused


def with_reasoning_to_replay(
    messages: Sequence[Message], spec: ProviderSpec, *, tools: bool
) -> tuple[Message, ...]:
    """Keep only the reasoning that has to be replayed to the vendor.

    It stays unchanged. It goes back only to the provider that it came from (`AssistantMessage.provider`), and
    so do signatures. Reasoning of a message without a provider was written by hand: it goes back as text, but
    not if it has opaque fields.

    Args:
        messages: the conversation, oldest first.
        spec: the vendor.
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
    """Return whether a message without reasoning needs `ProviderSpec.replay_filler`.

    If the vendor requires reasoning with tools, as DeepSeek does, every message does; else every message with
    tool calls, as with Kimi.
    """
    if spec.replay_filler is None:
        return False
    return tools if spec.replay == "with_tools" else bool(message.tool_calls)


def _first_replayed(messages: Sequence[Message], spec: ProviderSpec, *, tools: bool) -> int:
    """Return the index of the first message whose reasoning goes back."""
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
